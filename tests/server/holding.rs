//! P4, P6, P7 and P9 in one process: who holds a timer, and who may end it.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use keylapse::stats::Stats;
use keylapse::timers::TimerPhase;
use keylapse::{ArmResult, Backoff, Cancelled, Done, Failure, Lapse, Listener, Outcome, Rescheduled, Topic};
use keylapse_support::{Direction, Proxy, eventually};

use crate::server::support::{
    PATIENCE, Running, gated, listener, reporting, reports, server_and_schedule, until_dead, until_lost,
};

/// Every command on the server until `last` is among them.
async fn commands(monitor: redis::aio::Monitor, last: &str) -> Vec<String> {
    let mut lines = monitor.into_on_message::<String>();
    let mut all = Vec::new();
    while let Some(line) = lines.next().await {
        if line.contains(last) {
            return all;
        }
        all.push(line);
    }
    panic!("the server is gone: {all:?}")
}

/// A bound on bytes is one on what is read, from the first record on.
#[tokio::test(flavor = "multi_thread")]
async fn p11_a_claim_reads_no_more_records_than_its_bytes_allow() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<Bytes>::raw("app:large:{id}").unwrap().payload_limit(1 << 20);
    let payload = Bytes::from(vec![b'x'; 500_000]);
    for id in 0..20 {
        let _ = schedule.arm(&topic, [id.to_string()], Duration::ZERO, &payload).await.unwrap();
    }
    let client = redis::Client::open(server.plain_url()).unwrap();
    let seen = tokio::spawn(commands(client.get_async_monitor().await.unwrap(), "that is all"));
    let handler = |_: Lapse<Bytes>| std::future::ready(Ok::<_, Failure>(Done));
    let running = Running::start(listener(&server).on(topic, handler));
    running.until("all to be handled", |stats| stats.total().handled == 20).await;
    running.stop().await.unwrap();
    server.cmd(&["ECHO", "that is all"]).await;
    let mut seen = seen.await.unwrap();
    seen.retain(|line| line.contains("lua") && line.contains("\"HMGET\"") && line.contains(":timers\""));
    let widths: Vec<_> = seen.iter().map(|line| line.matches("app:large:").count()).collect();
    // A claim takes a mebibyte of records: the one with which it is reached is the last.
    assert!(!widths.is_empty() && widths.iter().all(|width| *width <= 3), "{widths:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_cancel_fences_a_running_attempt_and_tells_it() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:fence:{id}").unwrap();
    let (handler, mut reported) = until_lost(|| Err(Failure::retry("counts for nothing any more")));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!(reported.next().await, "started");
    assert_eq!(schedule.cancel(&topic, ["1"]).await.unwrap(), Cancelled::InFlight);
    assert_eq!(reported.next().await, "told to stop");
    assert_eq!(schedule.cancel(&topic, ["1"]).await.unwrap(), Cancelled::NotArmed);
    let stats = running.stats.clone();
    running.stop().await.unwrap();
    assert!(schedule.look_up(&topic, ["1"]).await.unwrap().is_none(), "not retried");
    assert_eq!((stats.total().retried, stats.total().fenced), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_an_arming_over_a_running_attempt_follows_it() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:next:{id}").unwrap();
    let (handler, mut reported, gate) = gated(|lapse: &Lapse<u32>| *lapse.payload());
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!(reported.next().await, 1);
    let over = schedule.arm(&topic, ["1"], Duration::ZERO, &2).await.unwrap();
    assert!(matches!(over, ArmResult::AfterRunning(_)), "{over:?}");
    let absent = schedule.arm(&topic, ["1"], Duration::ZERO, &3).only_if_absent().await.unwrap();
    assert!(matches!(absent, ArmResult::Exists), "{absent:?}");
    assert_eq!(schedule.reschedule(&topic, ["1"], Duration::ZERO).await.unwrap(), Rescheduled::InFlight);
    let timer = schedule.look_up(&topic, ["1"]).await.unwrap().unwrap();
    assert!(matches!(timer.phase, TimerPhase::Running(_)) && timer.next.is_some(), "{timer:?}");
    gate.notify_one();
    assert_eq!(reported.next().await, 2);
    gate.notify_one();
    running.stop().await.unwrap();
}

/// One listener holds its place; nothing of what another does may count.
#[tokio::test(flavor = "multi_thread")]
async fn p4_of_eight_listeners_one_runs_each_timer() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:many:{id}").unwrap().partitions(2);
    let (report, mut reported) = reports();
    let listeners: Vec<_> = (0..8)
        .map(|_| {
            let report = report.clone();
            Running::start(listener(&server).on(topic.clone(), move |lapse: Lapse<u32>| {
                report.send(*lapse.payload()).ok();
                std::future::ready(Ok::<_, Failure>(Done))
            }))
        })
        .collect();
    let arms = (0..2000_u32)
        .map(|n| keylapse::NewArm::new([n.to_string()], Duration::from_millis(200 + u64::from(n) / 2), n));
    schedule.arm_many(&topic, arms).await.unwrap();
    let mut seen = std::collections::HashSet::new();
    while seen.len() < 2000 {
        let n = reported.next().await;
        assert!(seen.insert(n), "timer {n} ran twice");
    }
    for running in listeners {
        running.stop().await.unwrap();
    }
    assert!(reported.try_next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_shut_down_waits_for_what_runs_within_the_grace_time() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:grace:{id}").unwrap();
    let (report, mut reported) = reports();
    let running = Running::start(listener(&server).on(topic.clone(), move |_| {
        let report = report.clone();
        async move {
            report.send("started").ok();
            tokio::time::sleep(Duration::from_millis(300)).await;
            report.send("ended").ok();
            Ok::<_, Failure>(Done)
        }
    }));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!(reported.next().await, "started");
    running.stop().await.unwrap();
    assert_eq!(reported.try_next(), Some("ended"));
    assert!(schedule.look_up(&topic, ["1"]).await.unwrap().is_none(), "acked before the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_unfinished_work_is_handed_back_at_once_without_using_up_an_attempt() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:back:{id}").unwrap().max_attempts(1);
    let (report, mut reported) = reports();
    let builder = listener(&server).grace(Duration::from_millis(50));
    let stuck = Running::start(builder.on(topic.clone(), move |_| {
        let report = report.clone();
        async move {
            report.send("started").ok();
            std::future::pending::<Result<Done, Failure>>().await
        }
    }));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!(reported.next().await, "started");
    stuck.stop().await.unwrap();
    let timer = schedule.look_up(&topic, ["1"]).await.unwrap().unwrap();
    assert!(
        matches!(timer.phase, TimerPhase::Waiting(at) if at <= std::time::SystemTime::now()),
        "{timer:?}"
    );
    assert_eq!(timer.attempt, 1);
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| (lapse.attempt(), Ok(Done)));
    let next = Running::start(listener(&server).on(topic, handler));
    assert_eq!(reported.next().await, 1);
    next.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_what_a_claim_brings_that_is_answered_after_the_grace_time_is_handed_back() {
    let (server, schedule) = server_and_schedule().await;
    let proxy = Proxy::before(&server).await;
    let topic = Topic::<u32>::new("app:late:{id}").unwrap().max_attempts(1);
    let builder = Listener::builder(proxy.app_url()).grace(Duration::ZERO);
    let slow = Running::start(
        builder.on(topic.clone(), |_: Lapse<u32>| std::future::pending::<Result<Done, Failure>>()),
    );
    slow.until("its first claim", |stats| stats.total().claims > 0).await;
    proxy.delay(Direction::Replies, Duration::from_millis(500));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    eventually(PATIENCE, "the timer is claimed", async || {
        let timer = schedule.look_up(&topic, ["1"]).await.unwrap().unwrap();
        matches!(timer.phase, TimerPhase::Running(_))
    })
    .await;
    slow.stop().await.unwrap();
    let timer = schedule.look_up(&topic, ["1"]).await.unwrap().unwrap();
    assert!(matches!(timer.phase, TimerPhase::Waiting(_)), "{timer:?}");
    assert_eq!(timer.attempt, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_and_timeouts_count_as_failures_and_are_labelled() {
    let (server, schedule) = server_and_schedule().await;
    // Longer than a busy machine takes to write down a panic's backtrace: what is not run by then loses its lease.
    let timeout = Duration::from_secs(3);
    let topic = Topic::<String>::new("app:bad:{id}").unwrap().max_attempts(1).timeout(timeout);
    let running = Running::start(listener(&server).on(topic.clone(), |lapse: Lapse<String>| async move {
        match lapse.payload().as_str() {
            "panic" => panic!("as asked"),
            "hang" => std::future::pending::<Result<Done, Failure>>().await,
            _ => Err(Failure::dead("never again")),
        }
    }));
    for what in ["panic", "hang", "dead"] {
        let _ = schedule.arm(&topic, [what], Duration::ZERO, &what.to_owned()).await.unwrap();
    }
    until_dead(&schedule, &topic, 3).await;
    let mut labels: Vec<_> = (schedule.dead_letters(&topic).page(10).await.unwrap().iter())
        .map(|letter| (letter.history[0].kind.clone(), letter.reason))
        .collect();
    labels.sort_by(|a, b| a.0.cmp(&b.0));
    use keylapse::dead_letters::DeadReason::{Exhausted, Permanent};
    let expected = [("error", Permanent), ("panic", Exhausted), ("timeout", Exhausted)];
    assert_eq!(labels, expected.map(|(kind, reason)| (kind.to_owned(), reason)));
    let stats = running.stats.total();
    assert_eq!((stats.panics, stats.timeouts, stats.failed), (1, 1, 3));
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn snoozes_use_no_attempt_and_are_limited() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:snooze:{id}").unwrap().max_attempts(1).max_snoozes(3);
    let snooze = Outcome::Snooze(Duration::from_millis(5));
    let (handler, mut reported) = reporting(move |lapse: Lapse<u32>| (lapse.attempt(), Ok(snooze)));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    for _ in 0..4 {
        assert_eq!(reported.next().await, 1);
    }
    until_dead(&schedule, &topic, 1).await;
    let letters = schedule.dead_letters(&topic).page(1).await.unwrap();
    assert_eq!(letters[0].reason, keylapse::dead_letters::DeadReason::Snoozed);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_topic_does_not_hold_up_another() {
    let (server, schedule) = server_and_schedule().await;
    let slow = Topic::<u32>::new("app:slow:{id}").unwrap();
    let quick = Topic::<u32>::new("app:quick:{id}").unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok(Done)));
    let builder = listener(&server).concurrency(4).grace(Duration::ZERO).on(quick.clone(), handler);
    let running =
        Running::start(builder.on(slow.clone(), |_| std::future::pending::<Result<Done, Failure>>()));
    let arms = (0..50).map(|n: u32| keylapse::NewArm::new([n.to_string()], Duration::ZERO, n));
    schedule.arm_many(&slow, arms).await.unwrap();
    let busy = |stats: &Stats| stats.topic("app.slow").is_some_and(|slow| slow.by_timer + slow.by_sweep >= 3);
    running.until("the slow topic to fill its places", busy).await;
    for n in 0..20 {
        let _ = schedule.arm(&quick, [n.to_string()], Duration::ZERO, &n).await.unwrap();
        assert_eq!(reported.next().await, n);
    }
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_replayed_and_dropped() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:replay:{id}").unwrap().retry(Backoff::table([]));
    let (handler, mut reported) =
        reporting(|lapse: Lapse<u32>| (lapse.attempt(), Err::<Done, _>(Failure::retry("no"))));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!(reported.next().await, 1);
    until_dead(&schedule, &topic, 1).await;
    let letter = schedule.dead_letters(&topic).page(1).await.unwrap().remove(0);
    assert_eq!(schedule.replay(&letter).await.unwrap(), keylapse::dead_letters::Replayed::Replayed);
    assert_eq!(reported.next().await, 1);
    until_dead(&schedule, &topic, 1).await;
    assert_eq!(schedule.replay(&letter).await.unwrap(), keylapse::dead_letters::Replayed::Gone);
    let letter = schedule.dead_letters(&topic).page(1).await.unwrap().remove(0);
    assert!(schedule.drop_dead_letter(&letter).await.unwrap());
    assert!(!schedule.drop_dead_letter(&letter).await.unwrap());
    running.stop().await.unwrap();
}
