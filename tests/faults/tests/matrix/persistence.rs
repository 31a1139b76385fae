//! C1, C2: servers that are killed, with all that they can be told to keep on disk, and timers that come due
//! while they are away.
//!
//! SIGKILL takes the process, not the kernel: what was given to `write` stays. A power cut takes more where
//! not every write is synced.

use std::time::{Duration, Instant};

use keylapse::Schedule;
use keylapse_faults::fault::{Plan, ServerFault};
use keylapse_faults::run::durable_server;
use keylapse_support::{Builder, Fsync, Server};

use crate::play::{play, server_faults};
use crate::scene::{arm_all, counting, listener, timers_left};

const LEASE: Duration = Duration::from_secs(5);
/// Armed before the snapshot, where there is one, and after it.
const TIMERS: [u32; 2] = [300, 200];
const ALL: u32 = TIMERS[0] + TIMERS[1];

#[tokio::test(flavor = "multi_thread")]
async fn c1_an_append_only_file_synced_always_loses_nothing() {
    play("C1 always, 6 kills", Plan::killed_servers(1, 6, 100..900)).await;
    assert_eq!(lost_with("C1 always", durable_server(), false).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_an_append_only_file_synced_each_second_loses_what_was_not_written() {
    let lost = lost_with("C1 everysec", Server::builder().aof(Fsync::EverySecond), false).await;
    assert!(lost <= ALL, "measured, not promised");
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_snapshot_loses_what_came_after_it() {
    assert_eq!(lost_with("C1 snapshot", Server::builder().config("save", "3600 1"), true).await, TIMERS[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_nothing_on_disk_loses_everything() {
    assert_eq!(lost_with("C1 nothing", Server::builder(), false).await, ALL);
}

/// How many of the acknowledged timers are gone after SIGKILL. Those that are not run once, and new ones do.
async fn lost_with(row: &str, server: Builder, snapshot: bool) -> u32 {
    let mut server = server.start().await;
    let schedule = Schedule::connect(&server.app_url()).await.expect("a schedule");
    let (topic, tally, running) = counting(listener(&server), LEASE).await;
    let delay = |n| Duration::from_millis(4000 + u64::from(n % 100));
    arm_all(&schedule, &topic, 0..TIMERS[0], delay).await;
    if snapshot {
        server.cmd(&["SAVE"]).await;
    }
    arm_all(&schedule, &topic, TIMERS[0]..ALL, delay).await;
    assert!(tally.runs().is_empty(), "none was due before the kill");
    server.kill().await;
    server.restart().await;
    let left = u32::try_from(timers_left(&server).await).expect("as many as were armed, at most");
    arm_all(&schedule, &topic, ALL..ALL + 1, |_| Duration::from_secs(5)).await;
    running.done(&tally, left as usize + 1).await;
    println!("{row}: {} of {ALL} acknowledged timers lost by SIGKILL", ALL - left);
    ALL - left
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_timers_that_come_due_while_the_server_is_down_run_when_it_is_back() {
    const TIMERS: u32 = 100;
    let mut server = durable_server().start().await;
    let schedule = Schedule::connect(&server.app_url()).await.expect("a schedule");
    let (topic, tally, running) = counting(listener(&server), LEASE).await;
    arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(1000 + u64::from(n) * 10)).await;
    server.kill().await;
    assert!(tally.runs().is_empty(), "none was due before the kill");
    tokio::time::sleep(Duration::from_secs(2)).await; // the outage: all deadlines pass
    server.restart().await;
    let back = Instant::now();
    tally.until(TIMERS as usize).await;
    println!("C2: {TIMERS} timers came due in an outage; all had run {:?} after it", back.elapsed());
    running.done(&tally, TIMERS as usize).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_c2_restarts_in_order_lose_nothing() {
    play("C1 3 restarts in order", server_faults([ServerFault::Restart; 3])).await;
}
