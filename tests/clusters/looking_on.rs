//! Somebody looks on at several servers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use keylapse::console::{Console, Missed, Tail, TailWhat, Tailed};
use keylapse::testing::Cluster;
use keylapse::{Client, Schedule, Topic};
use keylapse_support::eventually;

use crate::reach::{self, as_app};
use crate::support::PATIENCE;

const HOUR: Duration = Duration::from_secs(3600);

fn topic() -> Topic<u32> {
    Topic::new("app:watched:{id}").unwrap().partitions(6)
}

/// Arms and cancels so many timers.
async fn withdraw(schedule: &Schedule, ids: std::ops::Range<u32>) {
    for id in ids {
        let _ = schedule.arm(&topic(), [&*id.to_string()], HOUR, &0).await.unwrap();
        let _ = schedule.cancel(&topic(), [&*id.to_string()]).await.unwrap();
    }
}

async fn next(tail: &mut Tail) -> Tailed {
    tokio::time::timeout(PATIENCE, tail.next()).await.expect("something is told").expect("the tail goes on")
}

/// So many cancelled keys, with nothing missed.
async fn cancelled(tail: &mut Tail, count: usize) -> BTreeSet<(u32, Bytes)> {
    let mut keys = BTreeSet::new();
    while keys.len() < count {
        match next(tail).await {
            Tailed::Event(event) if event.what == TailWhat::Cancelled => {
                keys.insert((event.partition, event.key))
            }
            other => panic!("{other:?}"),
        };
    }
    keys
}

async fn console_and_schedule(cluster: &Cluster) -> (Console, Schedule) {
    let client = Client::new(&as_app(&cluster.url())).unwrap().patience(PATIENCE);
    (Console::connect(client.clone()).await.unwrap(), Schedule::connect(client).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_partitions_are_heard_and_those_that_move_are_heard_again() {
    let cluster = reach::cluster().await;
    let (console, schedule) = console_and_schedule(&cluster).await;
    withdraw(&schedule, 0..1).await;
    let mut tail = console.tail(&["app.watched"]).await.unwrap();
    withdraw(&schedule, 0..60).await;
    let heard = cancelled(&mut tail, 60).await;
    assert_eq!(heard.iter().map(|(partition, _)| *partition).collect::<BTreeSet<_>>().len(), 6);

    let slot = cluster.slot_of("keylapse:{app.watched/0}:due").await.unwrap();
    let owner = cluster.owner_of_slot(slot).await.unwrap();
    let other = cluster.primaries().await.unwrap().into_iter().find(|node| *node != owner).unwrap();
    cluster.move_slot(slot, &other).await.unwrap();
    assert_eq!(next(&mut tail).await, Tailed::Missed(Missed::Disconnected));
    eventually(PATIENCE, "the partition that has moved is heard", async || {
        withdraw(&schedule, 0..12).await;
        let mut first = false;
        while let Ok(Some(told)) = tokio::time::timeout(Duration::from_millis(100), tail.next()).await {
            first |= matches!(told, Tailed::Event(event) if event.partition == 0);
        }
        first
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_all_partitions_is_read_in_one_order() {
    let cluster = reach::cluster().await;
    let (console, schedule) = console_and_schedule(&cluster).await;
    let kept = topic().journal(1000, HOUR);
    for id in 0..60_u32 {
        let _ = schedule.arm(&kept, [&*id.to_string()], HOUR, &0).await.unwrap();
        let _ = schedule.cancel(&kept, [&*id.to_string()]).await.unwrap();
    }
    let (mut all, mut behind) = (Vec::new(), None);
    loop {
        let page = console.topic("app.watched").await.unwrap().journal(behind.as_ref(), 7).await.unwrap();
        all.extend(page.entries);
        behind = page.next;
        if behind.is_none() {
            break;
        }
    }
    assert_eq!(all.iter().map(|entry| &entry.key).collect::<BTreeSet<_>>().len(), 60);
    assert!(all.len() == 60 && all.is_sorted_by(|one, next| one.ended_ms >= next.ended_ms));
}
