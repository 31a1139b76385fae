//! What every call does on several servers.

use std::time::Duration;

use keylapse::dead_letters::Replayed;
use keylapse::timers::{Durably, MarkerKey};
use keylapse::{Backoff, Cancelled, Done, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_testing::{LocalCluster, RedisReply};

use keylapse_console::Console;
use keylapse_support::{APP_PASSWORD, APP_USER, eventually};

use crate::load::{Load, topic};
use crate::reach::{self, as_app, assert_nothing_refused};
use crate::support::{PATIENCE, Running, reporting, until_dead};

/// What the owner of a key answers about it.
async fn ask(cluster: &LocalCluster, command: &str, key: &str) -> RedisReply {
    let owner = cluster.owner_of_key(key).await.unwrap();
    owner.command([command, key]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_of_all_partitions_run_once_and_on_time() {
    let cluster = reach::cluster().await;
    let load = Load::start(&cluster, 8, 1000, Duration::from_millis(1)).await;
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    assert_nothing_refused(&cluster.nodes()).await;
}

fn notices() -> Topic<u32> {
    let backoff = Backoff::fixed(Duration::from_secs(3600));
    Topic::new("app:notice:{id}").unwrap().partitions(6).retry(backoff).max_attempts(2)
}

/// Each key's number says which attempt is to come, wherever the key lies.
#[tokio::test(flavor = "multi_thread")]
async fn trigger_keys_follow_their_timers_on_servers_of_their_own() {
    let cluster = reach::cluster().await;
    let (schedule, topic) = (reach::schedule(&as_app(&cluster.url())), notices());
    let (hour, keys) =
        (Duration::from_secs(3600), (0..30).map(|n| format!("app:notice:{n}")).collect::<Vec<_>>());
    for number in 0..30_u32 {
        let armed = schedule.arm(&topic, [number.to_string()], hour, &number).await.unwrap();
        assert_eq!(armed.receipt().unwrap().marker, MarkerKey::Set);
        let again = schedule.arm(&topic, [number.to_string()], 2 * hour, &number).await.unwrap();
        assert_eq!(again.receipt().unwrap().marker, MarkerKey::Set, "it moves what it has replaced");
    }
    let deadlines = async || {
        let mut all = Vec::new();
        for key in &keys {
            assert_eq!(ask(&cluster, "GET", key).await, RedisReply::Bulk("1".into()));
            let RedisReply::Int(at) = ask(&cluster, "PEXPIRETIME", key).await else { panic!("a number") };
            all.push(at);
        }
        all
    };
    let before = deadlines().await;
    for number in 0..30 {
        let _ = schedule.reschedule(&topic, [number.to_string()], hour).await.unwrap();
    }
    let after = deadlines().await;
    assert!(before.iter().zip(&after).all(|(before, after)| after < before), "{before:?} {after:?}");
    for number in 0..30 {
        let cancelled = schedule.cancel(&topic, [number.to_string()]).await.unwrap();
        assert_eq!(cancelled, Cancelled::Cancelled);
    }
    for key in &keys {
        assert_eq!(ask(&cluster, "EXISTS", key).await, RedisReply::Int(0));
    }
    assert_nothing_refused(&cluster.nodes()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_dead_letters_reports_pauses_and_the_end_of_a_topic_are_the_same_there() {
    let cluster = reach::cluster().await;
    let (schedule, topic) = (reach::schedule(&as_app(&cluster.url())), notices());
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
        let end = if lapse.attempt() == 1 { Err(Failure::retry("again")) } else { Ok(Done) };
        ((*lapse.payload(), lapse.attempt()), end)
    });
    let running = Running::start(Listener::builder(as_app(&cluster.url())).on(topic.clone(), handler));
    running.until_anchored().await;
    schedule.pause(&topic, "a test").await.unwrap();
    let durably = Durably::replicas(1);
    let armed = schedule.arm(&topic, ["1"], Duration::ZERO, &1).durably(durably).await.unwrap();
    assert_eq!(armed.receipt().unwrap().reached.unwrap().replicas, 1, "that of its own partition's primary");
    assert!(reported.try_next().is_none());
    schedule.resume(&topic).await.unwrap();
    assert_eq!(reported.next().await, (1, 1));
    running.until("the retry", |stats| stats.topic("app.notice").unwrap().retried == 1).await;
    eventually(PATIENCE, "the key of the retry", async || {
        ask(&cluster, "GET", "app:notice:1").await == RedisReply::Bulk("2".into())
    })
    .await;
    let _ = schedule.reschedule(&topic, ["1"], Duration::ZERO).await.unwrap();
    assert_eq!(reported.next().await, (1, 2));

    let doomed = topic.clone().max_attempts(1);
    assert_eq!(schedule.serving(&doomed).await.unwrap().len(), 1);
    eventually(PATIENCE, "a report of each primary by itself", async || {
        schedule.listeners().await.unwrap_or_default().iter().any(|listener| listener.nodes.len() == 3)
    })
    .await;
    running.stop().await.unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
        let end: Result<Done, Failure> = Err(Failure::dead("no"));
        (*lapse.payload(), end)
    });
    let running = Running::start(Listener::builder(as_app(&cluster.url())).on(doomed.clone(), handler));
    for number in 0..6_u32 {
        assert!(
            schedule.arm(&doomed, [number.to_string()], Duration::ZERO, &number).await.unwrap().is_armed()
        );
        reported.next().await;
    }
    until_dead(&schedule, &doomed, 6).await;
    running.stop().await.unwrap();
    let letters = schedule.dead_letters(&doomed).page(10).await.unwrap();
    assert_eq!(schedule.replay(&letters[0]).await.unwrap(), Replayed::Replayed);
    assert!(schedule.drop_dead_letter(&letters[1]).await.unwrap());
    let console = Console::connect(&*as_app(&cluster.url())).await.unwrap();
    let gone = console.destroy(&doomed).forced().await.unwrap();
    assert_eq!((gone.timers, gone.dead_letters), (1, 4));
    assert_nothing_refused(&cluster.nodes()).await;
}

/// A topic that was made for one server gets partitions for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_repartitioned_over_the_servers() {
    let cluster = reach::cluster().await;
    let (schedule, one, eight) = (reach::schedule(&as_app(&cluster.url())), topic(1), topic(8));
    for number in 0..200_u32 {
        let later = Duration::from_secs(if number % 2 == 0 { 3600 } else { 2 });
        assert!(schedule.arm(&one, [number.to_string()], later, &number).await.unwrap().is_armed());
    }
    let console = Console::connect(&*as_app(&cluster.url())).await.unwrap();
    let moved = console.repartition(&one, 8).await.unwrap();
    assert!(moved.timers > 100, "{moved:?}");
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok(Done)));
    let running = Running::start(Listener::builder(as_app(&cluster.url())).on(eight.clone(), handler));
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 100 {
        assert!(seen.insert(reported.next().await), "none runs twice");
    }
    assert!(seen.iter().all(|number| number % 2 == 1));
    running.stop().await.unwrap();
    for number in (0..200).step_by(2) {
        let cancelled = schedule.cancel(&eight, [number.to_string()]).await.unwrap();
        assert_eq!(cancelled, Cancelled::Cancelled, "{number}");
    }
    assert_nothing_refused(&cluster.nodes()).await;
}

/// By any of its nodes; and as one server it is refused, with the right URL.
#[tokio::test(flavor = "multi_thread")]
async fn any_seed_may_be_down_and_one_server_of_a_cluster_is_told_from_a_server_alone() {
    let cluster = reach::cluster().await;
    let (hosts, nodes) = (as_app(&cluster.url()), cluster.nodes());
    nodes[5].kill();
    let seeds = [nodes[5].port(), nodes[3].port()].map(|port| format!("127.0.0.1:{port}"));
    let servers = keylapse::Servers::cluster(&seeds).user(APP_USER).password(APP_PASSWORD);
    let schedule = Schedule::connect(servers).await.expect("the other seed answers");
    assert!(schedule.arm(&notices(), ["1"], Duration::from_secs(60), &1).await.unwrap().is_armed());

    // Unlike `connect`, it asks nothing that another node may have to answer.
    let alone = Schedule::new(keylapse::Client::new(&as_app(&nodes[0].url())).unwrap());
    let mut refusals = Vec::new();
    for topic in 0..8 {
        let topic = Topic::<u32>::new(&format!("app:t{topic}:{{id}}")).unwrap().marker_keys(false);
        refusals.extend(alone.arm(&topic, ["1"], Duration::from_secs(60), &1).await.err());
    }
    let said = refusals.first().expect("it has a third of the slots").to_string();
    assert!(said.contains("redis+cluster://"), "{said}");

    let database = Schedule::connect(&format!("{hosts}3")).await.unwrap_err().to_string();
    assert!(database.contains("database"), "{database}");
}

/// See `facts.rs` for the reason.
#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_and_expiries_are_heard_on_connections_of_their_own() {
    let cluster = crate::attached::scene::three().await;
    let scene = crate::attached::scene::Scene::start(cluster, 1).await;
    let mut both = [0, 0];
    for node in scene.cluster.nodes() {
        let Ok(RedisReply::Bulk(clients)) = node.command(["CLIENT", "LIST"]).await else {
            panic!("an answer")
        };
        for client in String::from_utf8_lossy(&clients).lines() {
            let has = |what: &str| {
                client.split(' ').any(|field| field.strip_prefix(what).is_some_and(|count| count != "0"))
            };
            assert!(!(has("sub=") && has("ssub=")), "{client}");
            both = [both[0] + usize::from(has("sub=")), both[1] + usize::from(has("ssub="))];
        }
    }
    assert!(both[0] == 3 && both[1] > 0, "{both:?}");
    scene.end().await;
}
