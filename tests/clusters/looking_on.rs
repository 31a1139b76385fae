//! Somebody looks on at several servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Client, Schedule, Topic};
use keylapse_console::{Console, Ending, Missed, Tail, TailItem};
use keylapse_support::eventually;
use keylapse_testing::{LocalCluster, LocalNode};

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

async fn next(tail: &mut Tail) -> TailItem {
    tokio::time::timeout(PATIENCE, tail.next()).await.expect("something is told").expect("the tail goes on")
}

/// So many cancelled keys, with nothing missed.
async fn cancelled(tail: &mut Tail, count: usize) -> BTreeSet<(u32, Bytes)> {
    let mut keys = BTreeSet::new();
    while keys.len() < count {
        match next(tail).await {
            TailItem::Event(event) if event.event == Ending::Cancelled => {
                keys.insert((event.partition, event.key))
            }
            other => panic!("{other:?}"),
        };
    }
    keys
}

/// What was said of missing ones until so many partitions were heard again, whatever else was.
async fn heard_again(tail: &mut Tail, schedule: &Schedule, ids: &[u32], partitions: usize) -> usize {
    let (mut heard, mut missed) = (BTreeSet::new(), 0);
    eventually(PATIENCE, "the partitions are heard", async || {
        for id in ids {
            withdraw(schedule, *id..id + 1).await;
        }
        while let Ok(told) = tokio::time::timeout(Duration::from_millis(100), tail.next()).await {
            match told.expect("the tail goes on") {
                TailItem::Event(event) => _ = heard.insert(event.partition),
                TailItem::Missed(_) => {
                    missed += 1;
                    heard.clear();
                }
                _ => {}
            }
        }
        heard.len() == partitions
    })
    .await;
    missed
}

async fn owner_of(cluster: &LocalCluster, key: &str) -> LocalNode {
    cluster.owner_of_key(key).await.unwrap()
}

async fn console_and_schedule(url: &str) -> (Console, Schedule) {
    let client = Client::new(&as_app(url)).unwrap().retry_for(PATIENCE);
    (Console::connect(client.clone()).await.unwrap(), Schedule::connect(client).await.unwrap())
}

/// The topic is there, and somebody looks on.
async fn looked_on(url: &str) -> (Console, Schedule, Tail) {
    let (console, schedule) = console_and_schedule(url).await;
    withdraw(&schedule, 0..1).await;
    let tail = console.tail(&["app.watched"]).await.unwrap();
    (console, schedule, tail)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_partitions_are_heard_and_those_that_move_are_heard_again() {
    let cluster = reach::cluster().await;
    let (_console, schedule, mut tail) = looked_on(&cluster.url()).await;
    withdraw(&schedule, 0..60).await;
    let heard = cancelled(&mut tail, 60).await;
    assert_eq!(heard.iter().map(|(partition, _)| *partition).collect::<BTreeSet<_>>().len(), 6);

    let slot = cluster.slot_of("keylapse:{app.watched/0}:due").await.unwrap();
    let owner = cluster.owner_of_slot(slot).await.unwrap();
    let other = cluster.primaries().await.unwrap().into_iter().find(|node| *node != owner).unwrap();
    cluster.move_slot(slot, &other).await.unwrap();
    assert_eq!(next(&mut tail).await, TailItem::Missed(Missed::Disconnected));
    eventually(PATIENCE, "the partition that has moved is heard", async || {
        withdraw(&schedule, 0..12).await;
        let mut first = false;
        while let Ok(Some(told)) = tokio::time::timeout(Duration::from_millis(100), tail.next()).await {
            first |= matches!(told, TailItem::Event(event) if event.partition == 0);
        }
        first
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_gone_silences_its_own_partitions_and_its_replica_is_heard() {
    let cluster = reach::cluster().await;
    let (_console, schedule, mut tail) = looked_on(&cluster.url()).await;
    owner_of(&cluster, "keylapse:{app.watched/0}:due").await.kill();
    assert_eq!(next(&mut tail).await, TailItem::Missed(Missed::Disconnected));
    let ids: Vec<_> = (0..60).collect();
    // Whatever was done by the time that the replica is heard was not.
    assert!(heard_again(&mut tail, &schedule, &ids, 6).await > 0);
}

/// No replica takes its place, and nobody waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_there_is_heard_while_another_is_gone_and_that_one_once_it_is_back() {
    let config = ["appendonly yes", "appendfsync always", "cluster-require-full-coverage no"];
    let builder = config.iter().fold(reach::cluster_builder(), |builder, line| builder.config(line));
    let cluster = builder.replicas_per_primary(0).start().await.unwrap();
    let (console, schedule, mut tail) = looked_on(&cluster.url()).await;
    withdraw(&schedule, 0..60).await;
    // Not the one by whose list topics are found.
    let list = owner_of(&cluster, "keylapse:topics").await;
    let (mut gone, mut at_it, mut elsewhere) = (None, Vec::new(), BTreeMap::new());
    for (partition, key) in cancelled(&mut tail, 60).await {
        let id = std::str::from_utf8(&key).unwrap().rsplit(':').next().unwrap().parse::<u32>().unwrap();
        let owner = owner_of(&cluster, &format!("keylapse:{{app.watched/{partition}}}:due")).await;
        if owner != list && *gone.get_or_insert_with(|| owner.clone()) == owner {
            at_it.push(id);
        } else {
            elsewhere.insert(id, partition);
        }
    }
    let owner = gone.expect("a server that has a partition and not the list");
    let partitions = elsewhere.values().collect::<BTreeSet<_>>().len();
    let elsewhere: Vec<_> = elsewhere.into_keys().collect();
    owner.kill();
    assert_eq!(next(&mut tail).await, TailItem::Missed(Missed::Disconnected));
    heard_again(&mut tail, &schedule, &elsewhere, partitions).await;
    let mut late = console.tail(&["app.watched"]).await.expect("some can be heard");
    assert_eq!(next(&mut late).await, TailItem::Missed(Missed::Disconnected), "and that is said first");

    owner.restart().await.unwrap();
    for tail in [&mut tail, &mut late] {
        let all = [&at_it[..], &elsewhere].concat();
        assert!(heard_again(tail, &schedule, &all, 6).await > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_follows_the_sentinels_from_a_master_that_is_killed_and_from_one_that_hangs() {
    let group = reach::sentinel_group().await;
    let (_console, schedule, mut tail) = looked_on(&group.url()).await;
    let ids: Vec<_> = (0..60).collect();
    let first = group.master().await.unwrap();
    first.kill();
    let second = group.wait_for_master_other_than(&first).await.unwrap();
    assert!(heard_again(&mut tail, &schedule, &ids, 6).await > 0);
    first.restart().await.unwrap();
    group.wait_until_ok().await.unwrap();

    second.suspend().unwrap();
    group.wait_for_master_other_than(&second).await.unwrap();
    assert!(heard_again(&mut tail, &schedule, &ids, 6).await > 0);
    second.resume().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_all_partitions_is_read_in_one_order() {
    let cluster = reach::cluster().await;
    let (console, schedule) = console_and_schedule(&cluster.url()).await;
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
