//! B1, B2: replies that are torn at every byte, or arrive byte by byte, and lines that fail in any way.

use std::num::NonZeroUsize;
use std::time::Duration;

use keylapse::{Client, Listener, Schedule};
use keylapse_faults::fault::Plan;
use keylapse_support::{Direction, Proxy, Then};
use keylapse_wire::scripts;
use redis::Value;

use crate::play::{LEASE, play};
use crate::scene::{Running, Tally, arm, arm_all, counting, names, runs_of, server_and_schedule, topic};

/// The longer of the two replies has fewer bytes than this; one that is torn after more than it has, is torn
/// before its last.
const BYTES: usize = 160;
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn b1_the_reply_to_a_claim_torn_at_each_byte_loses_and_doubles_nothing() {
    let (server, schedule) = server_and_schedule().await;
    let line = Proxy::before(&server).await;
    let (topic, tally, running) = counting(Listener::builder(line.app_url()), LONG).await;
    for after in 0..BYTES {
        line.lose_reply(runs_of(&scripts::CLAIM, topic.name()), Then::Tear(after));
        arm(&schedule, &topic, &after.to_string(), Duration::ZERO).await;
        line.until_lost(after + 1).await;
        tally.until(after + 1).await;
    }
    let stats = running.done(&tally, BYTES).await;
    assert_eq!((stats.handled, stats.redelivered, stats.lost_leases), (BYTES as u64, 0, 0));
    println!("B1: a claim's reply torn at {BYTES} places, late p50, max {:?}", tally.lateness());
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_the_reply_to_an_arm_torn_at_each_byte_arms_once() {
    let (server, _) = server_and_schedule().await;
    let (line, topic) = (Proxy::before(&server).await, topic(LONG).marker_keys(false));
    let schedule = Schedule::new(Client::new(&line.app_url()).expect("a client").retry_for(LONG));
    for after in 0..BYTES {
        line.lose_reply(runs_of(&scripts::ARM, topic.name()), Then::Tear(after));
        arm(&schedule, &topic, &after.to_string(), HOUR).await;
        line.until_lost(after + 1).await;
    }
    for name in [("HLEN", names().key("timers")), ("ZCARD", names().key("due"))] {
        let left = server.cmd(&[name.0, name.1]).await;
        assert_eq!(left, Value::Int(i64::try_from(BYTES).expect("a number")), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_everything_byte_by_byte_runs_everything_once() {
    const TIMERS: u32 = 200;
    let (server, _) = server_and_schedule().await;
    let (line, topic, tally) = (Proxy::before(&server).await, topic(LONG), Tally::default());
    line.split(Direction::Both, NonZeroUsize::new(1));
    let running = Running::start(Listener::builder(line.app_url()).on(topic.clone(), tally.handler()));
    let schedule = Schedule::connect(&line.app_url()).await.expect("a schedule");
    arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(u64::from(n) * 10)).await;
    assert_eq!(running.done(&tally, TIMERS as usize).await.redelivered, 0);
    println!("B1: byte by byte, {TIMERS} timers, late p50, max {:?}", tally.lateness());
}

/// Cut, reset, torn, stalled, delayed, split and refused lines, and replies that are lost.
#[tokio::test(flavor = "multi_thread")]
async fn b1_b2_lines_that_fail_in_any_way_lose_nothing() {
    play("B1, B2 25 bad lines", Plan::bad_lines(1, LEASE, 25)).await;
}
