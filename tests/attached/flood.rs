//! More keys expire at once than the queues had room for when they were counted: none is lost, none fires twice.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Attached, Done, Expired, Expiry, Failure, Lapse};
use keylapse_support::{Server, eventually};
use tokio::sync::mpsc;

use crate::scene::{Running, now, orders, until_time};

const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(90);

/// Writes so many keys that expire then.
async fn write(server: &Server, keys: std::ops::Range<usize>, deadline: u64) {
    let mut line = server.conn().await;
    for keys in keys.collect::<Vec<_>>().chunks(5000) {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.cmd("SET").arg(format!("app:order:{key}")).arg("x").arg("PXAT").arg(deadline).ignore();
        }
        pipe.exec_async(&mut line).await.unwrap();
    }
}

/// So many keys expire in one moment, of which a quarter was written too late to be enrolled.
async fn flood(keys: usize, ahead: u64) {
    let server = Server::builder().config("notify-keyspace-events", "Ex").start().await;
    let deadline = now() + ahead;
    let enrolled = keys / 4 * 3;
    write(&server, 0..enrolled, deadline).await;
    let (sender, mut runs) = mpsc::unbounded_channel();
    let handler = move |lapse: Lapse<Expired<Bytes>>| {
        let _ = sender.send((Bytes::copy_from_slice(lapse.key()), lapse.payload().expiry(), now()));
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let topic = Attached::new(orders().concurrency(1000)).scan_every(HOUR);
    let listener = Running::start(&server, |builder| builder.concurrency(1001).attach(topic, handler));
    eventually(LONG, "all to be enrolled", async || listener.attached().tracked >= enrolled as u64).await;
    println!("{enrolled} enrolled {} ms before", deadline.saturating_sub(now()));
    write(&server, enrolled..keys, deadline).await;
    println!("{keys} keys are there {} ms before they expire", deadline.saturating_sub(now()));
    assert!(now() < deadline, "too late for the test to mean anything");
    until_time(deadline).await;
    let began = std::time::Instant::now();
    let (mut handled, mut last) = (HashMap::<Bytes, Vec<Expiry>>::new(), 0);
    while handled.len() < keys {
        let run = tokio::time::timeout(Duration::from_secs(30), runs.recv()).await;
        let Ok(Some((key, expiry, at))) = run else {
            panic!("{} of {keys}: {:?}", handled.len(), listener.attached())
        };
        assert!(at >= deadline, "early");
        handled.entry(key).or_default().push(expiry);
        if handled.len() / 10_000 > last {
            last = handled.len() / 10_000;
            println!("{} after {:?}: {:?}", handled.len(), began.elapsed(), listener.attached().recorded);
        }
    }
    println!("{keys} in {:?}", began.elapsed());
    eventually(LONG, "nothing to wait any more", async || {
        let waits = listener.stats.health().attached_backlog();
        (waits.reads, waits.writes) == (0, 0)
    })
    .await;
    let counted = listener.attached();
    let lost = (counted.lost_untracked, counted.ambiguous, counted.recovered, counted.stale);
    assert_eq!(lost, (0, 0, 0, 0), "{counted:?}");
    let twice = handled.values().filter(|runs| runs.len() > 1).count();
    assert_eq!(twice, 0, "{counted:?}");
    listener.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute of a whole machine; by hand"]
async fn a_flood_of_keys_that_nobody_has_enrolled_is_held_and_handled_once() {
    flood(90_000, 15_000).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes in a debug build; by hand"]
async fn a_million_keys_in_one_moment_are_held_and_handled_once() {
    flood(1_000_000, 60_000).await;
}
