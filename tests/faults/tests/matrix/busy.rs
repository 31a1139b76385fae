//! C3: servers that sleep for longer than a lease, and servers that are busy with a script nobody can kill.

use std::time::Duration;

use keylapse_faults::fault::ServerFault;
use keylapse_support::{Server, eventually};
use redis::Value;

use crate::play::{play, server_faults};
use crate::scene::{PATIENCE, arm_all, counting, listener, server_and_schedule};

/// Writes, so that it cannot be killed, and then takes so many milliseconds.
const UNKILLABLE: &str = "redis.call('SET', 'theirs', '1')
    local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
    local begun = now()
    while now() - begun < tonumber(ARGV[1]) do end";

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_server_that_sleeps_for_longer_than_a_lease_loses_nothing() {
    play("C3 3 sleeps of 1.5 s", server_faults([ServerFault::Sleep(1500); 3])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_server_that_is_frozen_or_busy_for_longer_than_a_lease_loses_nothing() {
    let faults = [ServerFault::Freeze(1500), ServerFault::Busy(1500), ServerFault::Freeze(1500)];
    play("C3 frozen, busy, frozen for 1.5 s", server_faults(faults)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_script_that_cannot_be_killed_is_waited_for_and_nobody_tries() {
    const TIMERS: u32 = 50;
    let (server, schedule) = server_and_schedule().await;
    server.cmd(&["CONFIG", "SET", "busy-reply-threshold", "50"]).await;
    let (topic, tally, running) = counting(listener(&server), Duration::from_secs(1)).await;
    arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(500 + u64::from(n) * 10)).await;
    let mut theirs = server.conn().await;
    let looping = tokio::spawn(async move {
        redis::cmd("EVAL").arg(UNKILLABLE).arg(0).arg(2000).query_async::<Value>(&mut theirs).await
    });
    eventually(PATIENCE, "the listener to be told BUSY", async || running.stats().claim_errors > 0).await;
    looping.await.expect("a task").expect("it ends by itself");
    running.done(&tally, TIMERS as usize).await;
    assert!(!has_run(&server, "script|kill").await, "somebody tried to kill a script of somebody else");
    println!("C3: a script of 2 s, late p50, max {:?}", tally.lateness());
}

async fn has_run(server: &Server, command: &str) -> bool {
    let stats: String = redis::from_redis_value(server.cmd(&["INFO", "commandstats"]).await).expect("stats");
    assert!(stats.contains("cmdstat_config|set:"), "statistics have a line for each command: {stats}");
    stats.contains(&format!("cmdstat_{command}:"))
}
