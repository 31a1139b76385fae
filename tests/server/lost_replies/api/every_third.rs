//! Every third reply to a script is lost, whosever it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylapse::{ArmResult, Cancelled, Done, Failure, Lapse, Topic};
use keylapse_support::{Then, command};

use super::{Line, stop, topic};
use crate::server::support::{Running, reporting};

const TIMERS: usize = 120;

/// An id and an attempt.
type Ran = (usize, u32);

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_still_runs_once() {
    let (line, topic) = (Line::start().await, topic());
    let scripts = lose_every_third(&line);
    arm_all_and_cancel_some(&line, &topic).await;
    let (handler, mut reported) = reporting(|lapse| failing_at_first(&lapse));
    let running = Running::start(line.listener().on(topic, handler));
    let (expected, mut ran) = (attempts(), BTreeMap::new());
    while ran.len() < expected.len() {
        *ran.entry(reported.next().await).or_insert(0) += 1;
    }
    let stats = stop(running).await;
    while let Some(more) = reported.try_next() {
        *ran.entry(more).or_insert(0) += 1;
    }
    assert_eq!(ran, expected.into_iter().map(|attempt| (attempt, 1)).collect());
    assert_eq!((stats.redelivered, stats.unsettled, stats.dead), (0, 0, 0));
    // How many scripts there are depends on how many timers share a call: the more, the busier the machine is.
    let (lost, scripts) = (line.proxy.lost(), scripts.load(Ordering::Relaxed));
    // And the longer a new connection takes, the more go together over it, of which the first is lost that is to be.
    assert!(lost > 3 && lost * 16 > scripts, "only {lost} replies to {scripts} scripts were lost");
}

/// How many scripts have been run.
fn lose_every_third(line: &Line) -> Arc<AtomicUsize> {
    let scripts = Arc::new(AtomicUsize::new(0));
    let scripts_run = scripts.clone();
    let is_script = command("EVALSHA");
    let is_third = move |words: &[bytes::Bytes]| {
        is_script(words) && scripts_run.fetch_add(1, Ordering::Relaxed) % 3 == 2
    };
    line.proxy.lose_replies(usize::MAX, is_third, Then::Close);
    scripts
}

async fn arm_all_and_cancel_some(line: &Line, topic: &Topic<u32>) {
    let schedule = line.schedule();
    let ids: Vec<_> = (0..TIMERS).map(|id| id.to_string()).collect();
    let arms = ids.iter().map(|id| schedule.arm(topic, [id], Duration::ZERO, &1).into_future());
    for armed in join_all(arms).await {
        assert!(armed.as_ref().is_ok_and(ArmResult::is_armed), "{armed:?}");
    }
    for cancelled in join_all(ids.iter().step_by(4).map(|id| schedule.cancel(topic, [id]))).await {
        assert!(matches!(cancelled, Ok(Cancelled::Cancelled)), "{cancelled:?}");
    }
}

/// Fails on the first attempt of every second timer.
fn failing_at_first(lapse: &Lapse<u32>) -> (Ran, Result<Done, Failure>) {
    let id: usize = lapse.capture("id").and_then(|id| id.parse().ok()).expect("a number");
    let fails = id.is_multiple_of(2) && lapse.attempt() == 1;
    ((id, lapse.attempt()), if fails { Err(Failure::retry("not yet")) } else { Ok(Done) })
}

fn attempts() -> Vec<Ran> {
    let not_cancelled = (0..TIMERS).filter(|id| id % 4 != 0);
    not_cancelled
        .flat_map(|id| (1..=if id % 2 == 0 { 2 } else { 1 }).map(move |attempt| (id, attempt)))
        .collect()
}
