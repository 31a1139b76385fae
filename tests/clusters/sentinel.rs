//! Servers that sentinels watch.

use std::time::{Duration, Instant};

use keylapse::{Client, Done, ErrorKind, Failure, Lapse, Listener, Schedule, Servers};
use keylapse_support::took_at_most;
use keylapse_testing::SentinelGroup;

use crate::attached::beside::Beside;
use crate::capture::Capture;
use crate::load::{Load, MANY, topic};
use crate::outcome::Outcome;
use crate::reach::{as_app, assert_nothing_refused, sentinel_group};
use crate::support::{PATIENCE, Running};

/// Timers for eight seconds, two of them before the fault.
async fn during(fault: impl AsyncFnOnce(&SentinelGroup, &Load)) -> Outcome {
    crate::support::show_log();
    let group = sentinel_group().await;
    let load = Load::at(&group.url(), 2, 2000, Duration::from_millis(4)).await;
    load.until_handled(400).await;
    let harm = async {
        fault(&group, &load).await;
        group.wait_until_ok().await.unwrap();
    };
    load.harm(harm).await;
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_nothing_refused(group.servers()).await;
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_master_costs_no_timer() {
    during(async |group, load| {
        let master = group.master().await.unwrap();
        load.kill(&master);
        group.wait_for_master_other_than(&master).await.unwrap();
    })
    .await;
}

/// The connections to the old one stay open for eleven seconds, and it answers PING: they are left at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_is_followed_at_once() {
    let outcome = during(async |group, load| {
        // Sentinels promote a replica first, and the old one last: until then it takes arms from who has not heard.
        let followed = async {
            group.failover().await.unwrap();
            group.wait_until_ok().await.unwrap();
        };
        load.while_replaced(followed).await;
    })
    .await;
    assert!(outcome.latest() < 10_000, "the last was {} ms late", outcome.latest());
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_master_that_is_stopped_replaced_and_continued_costs_no_timer() {
    during(async |group, _| {
        let master = group.master().await.unwrap();
        master.suspend().unwrap();
        group.wait_for_master_other_than(&master).await.unwrap();
        master.resume().unwrap();
    })
    .await;
}

/// Who asks it meanwhile whether it is the master has its answer when it goes on: it was true before.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_master_says_of_itself_after_a_silence_is_not_believed() {
    let group =
        crate::reach::sentinel_builder().down_after(Duration::from_millis(500)).start().await.unwrap();
    let master = group.master().await.unwrap();
    master.suspend().unwrap();
    let (log, _kept) = Capture::start();
    let handler = |_: Lapse<u32>| std::future::ready(Ok::<_, Failure>(Done));
    let running = Running::start(Listener::builder(group.url()).on(topic(2), handler));
    group.wait_for_master_other_than(&master).await.unwrap();
    master.resume().unwrap();
    running.until_anchored().await;
    let found: Vec<_> = log.lines().into_iter().filter(|line| line.contains(" primary=")).collect();
    let old = format!(" primary=127.0.0.1:{}", master.port());
    assert!(!found.is_empty() && found.iter().all(|line| !line.contains(&old)), "{found:?}");
    running.stop().await.unwrap();
}

/// Their claims and ends are made on one server, and may be unknown to the next.
#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_run_through_failovers_are_settled_or_run_again_under_their_ids() {
    let group = crate::reach::sentinel_group().await;
    let time = Duration::from_millis(300);
    let load = Load::that_takes(time, &group.url(), 2, MANY, Duration::from_millis(4)).await;
    load.until_handled(300).await;
    let harm = async {
        let followed = async {
            group.failover().await.unwrap();
            group.wait_until_ok().await.unwrap();
        };
        load.while_replaced(followed).await;
        load.until_more_handled(200).await;
        let master = group.master().await.unwrap();
        load.kill(&master);
        group.wait_for_master_other_than(&master).await.unwrap();
        group.wait_until_ok().await.unwrap();
    };
    load.harm(harm).await;
    load.until_more_handled(200).await;
    let stats = load.running.stats.clone();
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    let (total, ran) = (stats.total(), (outcome.all - outcome.unreplicated) as u64);
    assert!(total.handled - total.fenced >= ran, "each has ended once with the token that counts: {total:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_sentinel_may_be_down_and_all_may_be_started_again_one_by_one() {
    let outcome = during(async |group, _| {
        let beside = Beside::watched(group).await;
        for sentinel in group.sentinels() {
            sentinel.kill();
            let url = as_app(&group.url());
            Schedule::connect(&url).await.expect("two others answer");
            sentinel.restart().await.unwrap();
        }
        beside.end().await;
    })
    .await;
    assert_eq!((outcome.doubled, outcome.unreplicated), (0, 0));
}

/// The machine of the master is gone, and one of the sentinels with it: it says nothing, and refuses nothing either.
#[tokio::test(flavor = "multi_thread")]
async fn timed_a_sentinel_that_says_nothing_holds_up_nobody() {
    let group = sentinel_group().await;
    let (schedule, hour) =
        (Schedule::connect(&as_app(&group.url())).await.unwrap(), Duration::from_secs(3600));
    let silent = group.sentinels().last().unwrap();
    silent.suspend().unwrap();
    let begun = Instant::now();
    let stranger = Schedule::connect(&as_app(&group.url())).await.unwrap();
    let _ = stranger.arm(&topic(1), ["1"], hour, &1).await.unwrap();
    took_at_most(Duration::from_secs(1), begun.elapsed(), "one that waits for no sentinel");
    let master = group.master().await.unwrap();
    master.kill();
    group.wait_for_master_other_than(&master).await.unwrap();
    let _ = schedule.arm(&topic(1), ["2"], hour, &2).await.unwrap();
    silent.resume().unwrap();
}

/// The one who would know is silent, so that it may pass.
#[tokio::test(flavor = "multi_thread")]
async fn that_a_sentinel_knows_nothing_is_final_only_if_all_have_answered() {
    let group = sentinel_group().await;
    let [first, others @ ..] = group.sentinels() else { panic!("three sentinels") };
    first.command(["SENTINEL", "REMOVE", group.name()]).await.unwrap();
    others.iter().for_each(|other| other.suspend().unwrap());
    let client = Client::new(&as_app(&group.url())).unwrap().retry_for(Duration::from_secs(1));
    let refused = Schedule::connect(client).await.unwrap_err();
    assert!(refused.is_transient() && refused.to_string().contains("others do not"), "{refused}");
    others.iter().for_each(|other| other.resume().unwrap());
    Schedule::connect(&as_app(&group.url())).await.expect("the others know");
}

/// Until another is the master, there is none that takes it: and that is what patience is for.
#[tokio::test(flavor = "multi_thread")]
async fn an_arm_that_a_demoted_master_refuses_waits_for_the_next() {
    let group = sentinel_group().await;
    let schedule = Schedule::new(Client::new(&as_app(&group.url())).unwrap().retry_for(PATIENCE));
    let (master, hour) = (group.master().await.unwrap(), Duration::from_secs(3600));
    let _ = schedule.arm(&topic(1), ["0"], hour, &0).await.unwrap();
    let other = group.servers().iter().find(|server| **server != master).unwrap();
    let demoted = async {
        master.command(["REPLICAOF", "127.0.0.1", &other.port().to_string()]).await.unwrap();
        // The sentinels have it the master again, or another.
        schedule.arm(&topic(1), ["1"], hour, &1).await
    };
    let _ = demoted.await.expect("it waits");
}

/// Each mistake has a message of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_url_says_wrongly_is_named() {
    let group = sentinel_group().await;
    let connect =
        async |client: keylapse::Result<Client>| Schedule::connect(client.unwrap()).await.unwrap_err();
    let sentinels = || group.sentinels().iter().map(|node| format!("127.0.0.1:{}", node.port()));
    let unknown = connect(Servers::sentinel(sentinels(), "theirmaster").try_into()).await;
    assert!(unknown.to_string().contains("no sentinel watches a primary named theirmaster"), "{unknown}");
    let server = group.master().await.unwrap();
    let no_sentinel = Servers::sentinel([format!("127.0.0.1:{}", server.port())], group.name());
    let no_sentinel = connect(no_sentinel.try_into()).await;
    assert!(no_sentinel.to_string().contains("is not a sentinel"), "{no_sentinel}");
    assert_eq!(no_sentinel.kind(), ErrorKind::Unsupported);
    let no_cluster = connect(Servers::cluster([format!("127.0.0.1:{}", server.port())]).try_into()).await;
    assert!(no_cluster.to_string().contains("is not part of a cluster"), "{no_cluster}");
    let of_a_sentinel = connect(Servers::cluster(sentinels()).try_into()).await;
    assert!(of_a_sentinel.to_string().contains("redis+sentinel://"), "{of_a_sentinel}");
}
