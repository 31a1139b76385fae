//! What cannot be heard is found by the scan that follows each gap; no other comes to help.

use std::time::Duration;

use keylapse::Expiry;
use keylapse_support::{Server, eventually};

use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, Running, enrolled, in_time, now, order, orders_with_values, server,
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
        harness
            .cmd(&["HSET", "keylapse:{orders/0}:meta", "history_rotated", &floor, "history_floor", &floor])
            .await;
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
    in_time(2500, 1000, async |from| {
        let mut pipeline = redis::pipe();
        for number in 0..KEYS {
            let deadline = from + 2 * number;
            pipeline.cmd("SET").arg(name(cut, number)).arg("a sofa").arg("PXAT").arg(deadline).ignore();
        }
        pipeline.exec_async(&mut server.conn().await).await.unwrap();
        let all = i64::try_from(KEYS).unwrap();
        eventually(PATIENCE, "all to be enrolled", async || enrolled(server).await == all).await;
    })
    .await
}

/// Reads each key when it is due, so that the server announces it then; and cuts all listeners off meanwhile.
async fn cut_among(server: &Server, cut: usize, from: u64) {
    let (mut line, mut knife) = (server.conn().await, server.conn().await);
    let cutting = async {
        until_time(from + KEYS / 2).await;
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec_async(&mut knife).await.unwrap();
    };
    let reading = async {
        let mut read = 0;
        while read < KEYS {
            until_time(from + 2 * read + 1).await;
            // All that are due by now: on a busy machine one after the other would be later than the server's own cycle.
            let due = (now().saturating_sub(from) / 2).clamp(read + 1, KEYS);
            let names: Vec<_> = (read..due).map(|number| name(cut, number)).collect();
            redis::cmd("EXISTS").arg(names).exec_async(&mut line).await.unwrap();
            read = due;
        }
    };
    tokio::join!(cutting, reading);
}

/// How often an expiry was heard in a gap, and how often one ran as that.
fn in_gaps(listeners: &[Running], notes: &Notes) -> (u64, u64) {
    let ran = notes.runs().iter().filter(|run| run.expiry == Expiry::Ambiguous).count();
    (listeners.iter().map(|one| one.attached().ambiguous).sum(), ran as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_eight_listeners_hear_in_a_gap_runs_once_more_at_most() {
    let server = server(ALL_FLAGS).await;
    let notes = Notes::default();
    let attach = |_| Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    let listeners: Vec<_> = (0..LISTENERS).map(attach).collect();
    // As often as it takes until several have heard the same: on a busy machine all may come back too late for it.
    let mut cuts = 0..4 * CUTS;
    for cut in cuts.by_ref() {
        let all_hear = async || listeners.iter().all(|one| one.stats.listener().anchored > cut as u64);
        eventually(PATIENCE, "all to hear", all_hear).await;
        let from = write_around(&server, cut).await;
        cut_among(&server, cut, from).await;
        let handled =
            async || notes.count() as u64 >= (cut as u64 + 1) * KEYS && enrolled(&server).await == 0;
        eventually(PATIENCE, "all to run", handled).await;
        let (heard, ran) = in_gaps(&listeners, &notes);
        if cut + 1 >= CUTS && heard > ran && ran > 0 {
            break;
        }
    }
    until_later_key(&server, &notes).await;
    let sums: Vec<_> = listeners.iter().map(Running::attached).collect();
    let mut twice = 0;
    for (cut, number) in (0..cuts.start).flat_map(|cut| (0..KEYS).map(move |number| (cut, number))) {
        let runs = notes.of(&name(cut, number));
        let ambiguous = runs.iter().filter(|run| run.expiry == Expiry::Ambiguous).count();
        assert!((1..=2).contains(&runs.len()) && ambiguous <= 1, "{runs:?}\n{sums:?}");
        twice += runs.len() - 1;
    }
    let (heard, ran) = in_gaps(&listeners, &notes);
    println!("{heard} times an expiry was heard in a gap: {ran} ran as that, {twice} keys ran twice");
    assert!(heard > ran && ran > 0, "nobody had to agree: {sums:?}");
    for listener in listeners {
        listener.stop().await;
    }
}
