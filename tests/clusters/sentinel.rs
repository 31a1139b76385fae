//! Servers that sentinels watch.

use std::time::Duration;

use keylapse::testing::SentinelGroup;
use keylapse::{Client, ErrorKind, Schedule, Servers};

use crate::load::{Load, Outcome};
use crate::reach::{as_app, assert_nothing_refused, sentinel_group};

/// Timers for eight seconds, two of them before the fault.
async fn during(fault: impl AsyncFnOnce(&SentinelGroup, &mut Load)) -> Outcome {
    crate::support::show_log();
    let group = sentinel_group().await;
    let mut load = Load::at(&group.url(), 2, 2000, Duration::from_millis(4)).await;
    load.until_handled(400).await;
    fault(&group, &mut load).await;
    let outcome = load.end().await;
    outcome.assert_none_early();
    assert_nothing_refused(&group.servers()).await;
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_master_costs_no_timer() {
    during(async |group, _| group.master().await.unwrap().kill()).await;
}

/// The connections to the old one stay open for eleven seconds, and it answers PING: they are left at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_is_followed_at_once() {
    let outcome = during(async |group, load| {
        // Sentinels promote a replica first, and tell of it then; a program on a busy machine hears it late.
        let followed = async {
            group.failover().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        load.while_replaced(followed).await;
    })
    .await;
    assert!(outcome.late[outcome.late.len() - 1] < 10_000, "the last was {:?} ms late", outcome.late.last());
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_master_that_is_stopped_replaced_and_continued_costs_no_timer() {
    during(async |group, _| {
        let master = group.master().await.unwrap();
        master.stop().unwrap();
        group.wait_for_master_other_than(&master).await.unwrap();
        master.go_on().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_sentinel_may_be_down_and_all_may_be_started_again_one_by_one() {
    let outcome = during(async |group, _| {
        for sentinel in group.sentinels() {
            sentinel.kill();
            let url = as_app(&group.url());
            Schedule::connect(&url).await.expect("two others answer");
            sentinel.restart().await.unwrap();
        }
    })
    .await;
    assert_eq!((outcome.doubled, outcome.unreplicated), (0, 0));
}

/// Each mistake has a message of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_url_says_wrongly_is_named() {
    let group = sentinel_group().await;
    let connect =
        async |client: keylapse::Result<Client>| Schedule::connect(client.unwrap()).await.unwrap_err();
    let sentinels = || group.sentinels().iter().map(|node| format!("127.0.0.1:{}", node.port()));
    let unknown = connect(Servers::sentinel(sentinels(), "theirmaster").try_into()).await;
    assert!(unknown.to_string().contains("no sentinel knows a primary called theirmaster"), "{unknown}");
    let server = group.master().await.unwrap();
    let no_sentinel = Servers::sentinel([format!("127.0.0.1:{}", server.port())], group.name());
    let no_sentinel = connect(no_sentinel.try_into()).await;
    assert!(no_sentinel.to_string().contains("is no sentinel"), "{no_sentinel}");
    assert_eq!(no_sentinel.kind(), ErrorKind::Unsupported);
    let no_cluster = connect(Servers::cluster([format!("127.0.0.1:{}", server.port())]).try_into()).await;
    assert!(no_cluster.to_string().contains("is no part of a cluster"), "{no_cluster}");
    let of_a_sentinel = connect(Servers::cluster(sentinels()).try_into()).await;
    assert!(of_a_sentinel.to_string().contains("redis+sentinel://"), "{of_a_sentinel}");
}
