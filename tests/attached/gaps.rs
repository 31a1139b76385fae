//! What cannot be heard is found by the scan that follows each gap; no other comes to help.

use std::time::Duration;

use keylapse::Expiry;
use keylapse_support::{Server, eventually};

use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, Running, enrolled, now, order, orders_with_values, server,
    until_later_key, until_time,
};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: u64 = 60_000;

async fn hearing() -> Harness {
    Harness::with(ALL_FLAGS, orders_with_values().scan_every(HOUR), Notes::handler).await
}

impl Harness {
    async fn flags(&self, flags: &str) {
        self.cmd(&["CONFIG", "SET", "notify-keyspace-events", flags]).await;
    }
}

#[tokio::test]
async fn a_key_that_is_written_while_nothing_is_announced_is_found_by_a_scan() {
    let harness = hearing().await;
    let gaps = harness.listener.stats.listener().gaps;
    harness.flags("").await;
    let deadline = harness.write("1", "a sofa", MINUTE).await;
    let noticed = async || harness.listener.stats.listener().gaps > gaps;
    eventually(PATIENCE, "the silence to be noticed", noticed).await;
    harness.flags(ALL_FLAGS).await;
    harness.until_watched("1", deadline).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_that_is_written_while_nobody_listens_is_found_by_a_scan() {
    let harness = hearing().await;
    let deadline = now() + MINUTE;
    let mut line = harness.server.conn().await;
    // In one step: nobody can have subscribed again before the key is written.
    let mut steps = redis::pipe();
    steps.atomic().cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub");
    steps.cmd("SET").arg(order("1")).arg("a sofa").arg("PXAT").arg(deadline);
    let (killed, ()): (u64, ()) = steps.query_async(&mut line).await.unwrap();
    assert!(killed > 0);
    harness.until_watched("1", deadline).await;
    harness.listener.stop().await;
}

/// Whoever is told that it was too late for a note has missed more than that.
#[tokio::test]
async fn an_expiry_that_is_noted_too_late_opens_a_gap() {
    let harness = hearing().await;
    let scans = harness.listener.attached().scans;
    // As others leave the memory when they are minutes ahead: until there is a canary behind that.
    let mut ids = 0..;
    eventually(PATIENCE, "a note to be refused", async || {
        let floor = now().to_string();
        harness.cmd(&["HSET", "keylapse:{orders/0}:meta", "turned", &floor, "floor", &floor]).await;
        harness.write(&ids.next().unwrap().to_string(), "a sofa", 50).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        harness.listener.attached().stale > 0
    })
    .await;
    eventually(PATIENCE, "another scan", async || harness.listener.attached().scans > scans).await;
    harness.listener.stop().await;
}

const LISTENERS: usize = 8;
const CUTS: usize = 5;
/// Keys around a cut, one every two ms.
const KEYS: u64 = 400;

fn name(cut: usize, number: u64) -> String {
    order(&format!("{cut}-{number}"))
}

/// Writes keys that expire one after the other from then on, and waits until all are enrolled.
async fn write_around(server: &Server, cut: usize) -> u64 {
    let from = now() + 2000;
    let mut pipeline = redis::pipe();
    for number in 0..KEYS {
        pipeline.cmd("SET").arg(name(cut, number)).arg("a sofa").arg("PXAT").arg(from + 2 * number).ignore();
    }
    pipeline.exec_async(&mut server.conn().await).await.unwrap();
    let all = i64::try_from(KEYS).unwrap();
    eventually(PATIENCE, "all to be enrolled", async || enrolled(server).await == all).await;
    assert!(now() < from, "enrolled too late for the test to mean anything");
    from
}

/// Reads each key when it is due, so that the server announces it then; and cuts all listeners off meanwhile.
async fn cut_among(server: &Server, cut: usize, from: u64) {
    let mut line = server.conn().await;
    for number in 0..KEYS {
        until_time(from + 2 * number + 1).await;
        if number == KEYS / 4 {
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec_async(&mut line).await.unwrap();
        }
        redis::cmd("EXISTS").arg(name(cut, number)).exec_async(&mut line).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_eight_listeners_hear_in_a_gap_runs_once_more_at_most() {
    let server = server(ALL_FLAGS).await;
    let notes = Notes::default();
    let attach = |_| Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    let listeners: Vec<_> = (0..LISTENERS).map(attach).collect();
    for cut in 0..CUTS {
        let all_hear = async || listeners.iter().all(|one| one.stats.listener().anchored > cut as u64);
        eventually(PATIENCE, "all to hear", all_hear).await;
        let from = write_around(&server, cut).await;
        cut_among(&server, cut, from).await;
        let handled =
            async || notes.count() as u64 >= (cut as u64 + 1) * KEYS && enrolled(&server).await == 0;
        eventually(PATIENCE, "all to run", handled).await;
    }
    until_later_key(&server, &notes).await;
    let sums: Vec<_> = listeners.iter().map(Running::attached).collect();
    let (mut twice, mut in_gaps) = (0, 0);
    for (cut, number) in (0..CUTS).flat_map(|cut| (0..KEYS).map(move |number| (cut, number))) {
        let runs = notes.of(&name(cut, number));
        let ambiguous = runs.iter().filter(|run| run.expiry == Expiry::Ambiguous).count();
        assert!((1..=2).contains(&runs.len()) && ambiguous <= 1, "{runs:?}\n{sums:?}");
        (twice, in_gaps) = (twice + runs.len() - 1, in_gaps + ambiguous);
    }
    let heard: u64 = sums.iter().map(|sum| sum.ambiguous).sum();
    println!("{heard} times an expiry was heard in a gap: {in_gaps} ran as that, {twice} keys ran twice");
    assert!(heard > in_gaps as u64 && in_gaps > 0, "nobody had to agree: {sums:?}");
    for listener in listeners {
        listener.stop().await;
    }
}
