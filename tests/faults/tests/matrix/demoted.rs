//! C8: a primary that becomes the replica of nobody, and answers MASTERDOWN even to who only reads.

use std::time::Duration;

use keylapse::{Client, ErrorKind, Schedule};
use keylapse_support::eventually;

use crate::scene::{PATIENCE, arm_all, counting, listener, server_and_schedule};

const TIMERS: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn c8_a_server_that_is_cut_off_from_its_primary_is_waited_for() {
    let (server, schedule) = server_and_schedule().await;
    let (topic, tally, running) = counting(listener(&server), Duration::from_secs(5)).await;
    arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(1000 + u64::from(n))).await;
    server.cmd(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await; // nothing listens there
    eventually(PATIENCE, "claims to be refused", async || running.stats().claim_errors > 0).await;
    let hasty = Schedule::new(Client::new(&server.app_url()).expect("a client").retry_for(Duration::ZERO));
    let refused =
        hasty.arm(&topic, ["new"], Duration::ZERO, &0).await.expect_err("a replica takes no writes");
    assert!(refused.kind() == ErrorKind::ReadOnly && refused.is_transient(), "{refused}");
    server.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    running.done(&tally, TIMERS as usize).await;
}
