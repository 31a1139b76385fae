//! B4: lines that are slow, and lines that stand still for a while. Nothing runs twice, leases are kept,
//! and waiting is no reason to ask more often.

use std::time::Duration;

use keylapse::{Done, Failure, Lapse, Listener};
use keylapse_support::{Direction, Proxy, eventually};

use crate::scene::{PATIENCE, Running, Tally, arm_all, server_and_schedule, topic};

const TIMERS: u32 = 50;
const LEASE: Duration = Duration::from_secs(3);

/// Timers over two seconds, the first of which takes longer than its lease, behind a line that `spoil` has
/// made bad; how late they were.
async fn run_behind(row: &str, lease: Duration, spoil: impl AsyncFnOnce(&Proxy)) -> [Duration; 2] {
    let (server, schedule) = server_and_schedule().await;
    let (line, topic, tally) = (Proxy::before(&server).await, topic(lease), Tally::default());
    let counting = tally.clone();
    let handler = move |lapse: Lapse<u32>| {
        counting.note(&lapse);
        async move {
            if *lapse.payload() == 0 {
                tokio::time::sleep(lease + lease / 2).await;
            }
            Ok::<_, Failure>(Done)
        }
    };
    let running = Running::start(Listener::builder(line.app_url()).on(topic.clone(), handler));
    running.anchored().await;
    arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(500 + u64::from(n) * 40)).await;
    spoil(&line).await;
    let all = async || running.stats().handled == u64::from(TIMERS);
    eventually(PATIENCE, "all to end, and the slow one", all).await;
    let stats = running.done(&tally, TIMERS as usize).await;
    assert_eq!((stats.redelivered, stats.lost_leases, stats.gone), (0, 0, 0), "{row}: no lease was lost");
    let late = tally.lateness();
    println!("{row}: late p50, max {late:?}; {} claims, {} of them empty", stats.claims, stats.empty_claims);
    // One claim for each timer and one that comes away empty, and a few for wake-ups.
    assert!(stats.claims <= u64::from(TIMERS) * 2 + 20, "{row}: {} claims", stats.claims);
    late
}

async fn with_latency(millis: u64) {
    let latency = Duration::from_millis(millis);
    let row = format!("B4: {millis} ms each way");
    let late = run_behind(&row, LEASE, async |line| line.delay(Direction::Both, latency)).await;
    assert!(late[0] < latency * 6 + Duration::from_secs(2), "{row}: {late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_latency_of_1_ms() {
    with_latency(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_latency_of_50_ms() {
    with_latency(50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_latency_of_500_ms() {
    with_latency(500).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_line_that_stands_still_for_5_s() {
    let stall = async |line: &Proxy| {
        line.stall(Direction::Both);
        tokio::time::sleep(Duration::from_secs(5)).await; // the fault
        line.resume();
    };
    run_behind("B4: a stall of 5 s", Duration::from_secs(9), stall).await;
}
