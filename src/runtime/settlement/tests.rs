use std::sync::{Arc, Barrier};

use bytes::Bytes;
use proptest::prelude::{any, proptest};
use tokio::time::Instant;

use super::*;
use crate::boottime::now;
use crate::id::Token;
use crate::lease::Phase;
use crate::runtime::leases::Leases;
use crate::topic::Topic;
use crate::wire::LeaseRef;

fn config() -> TopicConfig {
    let topic = Topic::<u32>::new("a:{id}").unwrap();
    topic.retry(Backoff::table([Duration::from_secs(15)])).max_snoozes(1).config
}

fn before(attempt: u32) -> State {
    State::waiting(attempt)
}

/// Returns the state of a timer with one failed attempt.
fn failed(error: &str) -> State {
    State { history: with_failure(&before(1), Ending::Error, error.to_owned(), 2000), ..before(1) }
}

/// Decides what follows for a timer that was due at second 1 and whose attempt ended at second 2.
fn decide(ended: AttemptResult, state: &State) -> Option<AttemptEnd> {
    decide_at(2000, ended, state)
}

fn decide_at(at: u64, ended: AttemptResult, state: &State) -> Option<AttemptEnd> {
    let record = Record { arming: ArmingId::random(), deadline: 1000, payload: Bytes::new() };
    ended.decide(&config(), &record, state, at)
}

#[allow(clippy::needless_pass_by_value)] // reads better at the call
fn reason(end: Option<AttemptEnd>) -> Option<DeadReason> {
    match end {
        Some(AttemptEnd::Dead { reason, .. }) => Some(reason),
        _ => None,
    }
}

fn undecodable() -> AttemptResult {
    let error = Error::new(crate::error::ErrorKind::Payload, "?");
    AttemptResult::Undecodable(Undecodable { error, panic: None })
}

fn error(then: RetryDecision) -> AttemptResult {
    AttemptResult::Failed(Ending::Error, Failure { then, error: "no".into() })
}

#[test]
fn failures_are_retried_by_policy_until_they_are_exhausted() {
    let Some(AttemptEnd::Retry { delay, attempt, history, .. }) =
        decide(error(RetryDecision::ByPolicy), &before(1))
    else {
        panic!("not retried")
    };
    assert_eq!((delay, attempt), (15_000, 2));
    assert_eq!(History::decode(&history).0[0].error, "no");
    assert_eq!(reason(decide(error(RetryDecision::ByPolicy), &before(2))), Some(DeadReason::Exhausted));
}

#[test]
fn a_policy_that_panics_fails_the_attempt() {
    let topic =
        Topic::<u32>::new("a:{id}").unwrap().retry(Backoff::custom(|_| panic!("no idea"))).max_attempts(2);
    let with_delay = |ended: AttemptResult, attempt| ended.with_backoff_delay(&topic.config, attempt);
    let AttemptResult::Failed(Ending::Panic, Failure { then: RetryDecision::After(delay), error: text }) =
        with_delay(error(RetryDecision::ByPolicy), 1)
    else {
        panic!("not a failure that is retried")
    };
    assert_eq!(text, "no; and the retry policy panicked: no idea");
    assert!(delay <= Duration::from_secs(1), "{delay:?}");
    let unasked =
        [error(RetryDecision::Dead), error(RetryDecision::After(Duration::ZERO)), AttemptResult::Stopped];
    unasked.into_iter().for_each(|ended| drop(with_delay(ended, 1)));
    assert!(
        matches!(with_delay(error(RetryDecision::ByPolicy), 2), AttemptResult::Failed(Ending::Error, _)),
        "no attempt follows the last one"
    );
}

#[test]
fn a_delay_of_the_handler_does_not_outlive_the_policy() {
    let after = || error(RetryDecision::After(Duration::from_millis(3)));
    assert!(matches!(decide(after(), &before(1)), Some(AttemptEnd::Retry { delay: 3, .. })));
    assert_eq!(reason(decide(after(), &before(2))), Some(DeadReason::Exhausted));
}

#[test]
fn the_longer_of_backoff_and_requested_delay_applies() {
    for (least, delay) in [(0, 15), (14, 15), (16, 16), (7 * 86_400, 7 * 86_400)] {
        let asked = || error(RetryDecision::NoSooner(Duration::from_secs(least)));
        for ended in [asked(), asked().with_backoff_delay(&config(), 1)] {
            let Some(AttemptEnd::Retry { delay: waits, .. }) = decide(ended, &before(1)) else {
                panic!("{least}")
            };
            assert_eq!(waits, delay * 1000, "{least}");
        }
        assert_eq!(reason(decide(asked(), &before(2))), Some(DeadReason::Exhausted));
    }
}

#[test]
fn permanent_failures_die_at_once() {
    assert_eq!(reason(decide(error(RetryDecision::Dead), &before(1))), Some(DeadReason::Permanent));
}

#[test]
fn an_undecodable_payload_waits_longer_each_time_for_an_hour_and_uses_up_no_attempt() {
    let (mut state, mut now, mut pauses) = (failed("no"), 2000, Vec::new());
    let last = loop {
        match decide_at(now, undecodable(), &state) {
            Some(AttemptEnd::Retry { delay, attempt: 1, snoozes: 0, history }) => {
                pauses.push(delay);
                now += delay;
                state.history = history;
            }
            other => break other,
        }
    };
    assert_eq!(
        (pauses[..6].to_vec(), pauses.iter().max()),
        (vec![1000, 1000, 2000, 4000, 8000, 16_000], Some(&300_000))
    );
    assert_eq!((now, pauses.len()), (2000 + 3_600_000, 21));
    let Some(AttemptEnd::Dead { reason: DeadReason::Undecodable, history }) = last else {
        panic!("{last:?}")
    };
    let kinds: Vec<_> = History::decode(&history).0.into_iter().map(|failed| failed.kind).collect();
    assert_eq!(kinds, ["error", "undecodable"], "one entry, from the first attempt");
}

#[test]
fn an_undecodable_payload_without_retention_dies_immediately() {
    let config = Topic::<u32>::new("a:{id}").unwrap().undecodable_retention(Duration::ZERO).config;
    let record = Record { arming: ArmingId::random(), deadline: 1000, payload: Bytes::new() };
    let end = undecodable().decide(&config, &record, &before(1), 2000);
    assert_eq!(reason(end), Some(DeadReason::Undecodable));
}

#[test]
fn too_old_and_too_often_snoozed_timers_die() {
    let old = |ended| reason(decide_at(1000 + 31 * 86_400_000, ended, &before(1)));
    assert_eq!(old(error(RetryDecision::ByPolicy)), Some(DeadReason::TooOld));
    let snooze = || AttemptResult::Returned(Outcome::Snooze(Duration::ZERO));
    assert_eq!(old(snooze()), Some(DeadReason::TooOld));
    let often = State { snoozes: 1, ..before(1) };
    assert_eq!(reason(decide(snooze(), &often)), Some(DeadReason::Snoozed));
    assert!(matches!(decide(snooze(), &before(1)), Some(AttemptEnd::Snooze { snoozes: 1, attempt: 1, .. })));
}

#[test]
fn with_the_greatest_number_of_snoozes_only_the_age_ends_what_snoozes() {
    let config = Topic::<u32>::new("a:{id}").unwrap().max_snoozes(u16::MAX).config;
    let record = Record { arming: ArmingId::random(), deadline: 1000, payload: Bytes::new() };
    let often = State { snoozes: u16::MAX, ..before(1) };
    let snooze =
        |at| AttemptResult::Returned(Outcome::Snooze(Duration::ZERO)).decide(&config, &record, &often, at);
    assert!(matches!(snooze(2000), Some(AttemptEnd::Snooze { snoozes: u16::MAX, .. })));
    assert_eq!(reason(snooze(1000 + 31 * 86_400_000)), Some(DeadReason::TooOld));
    // The limit was lowered since.
    let fewer = AttemptResult::Returned(Outcome::Snooze(Duration::ZERO)).decide(
        &self::config(),
        &record,
        &often,
        2000,
    );
    assert_eq!(reason(fewer), Some(DeadReason::Snoozed));
}

#[test]
fn a_timer_of_exactly_the_greatest_age_is_not_too_old() {
    let greatest = 1000 + ms_ceil(config().max_age);
    let ended = |at| decide_at(at, error(RetryDecision::ByPolicy), &before(1));
    assert!(matches!(ended(greatest), Some(AttemptEnd::Retry { .. })));
    assert_eq!(reason(ended(greatest + 1)), Some(DeadReason::TooOld));
}

#[test]
fn a_snooze_uses_up_no_attempt_and_keeps_what_was_before() {
    let snooze = AttemptResult::Returned(Outcome::Snooze(Duration::from_secs(7)));
    let Some(AttemptEnd::Snooze { delay, attempt, snoozes, history }) = decide(snooze, &failed("no")) else {
        panic!("not snoozed")
    };
    assert_eq!((delay, attempt, snoozes), (7000, 1, 1));
    assert_eq!(History::decode(&history).0.len(), 1);
}

#[test]
fn a_dead_letter_includes_the_last_failure() {
    let Some(AttemptEnd::Dead { history, .. }) = decide(error(RetryDecision::Dead), &failed("first")) else {
        panic!("not buried")
    };
    let errors: Vec<_> = History::decode(&history).0.into_iter().map(|failed| failed.error).collect();
    assert_eq!(errors, ["first", "no"]);
}

#[test]
fn endless_delays_are_capped() {
    let again = AttemptResult::Returned(Outcome::Again(Duration::MAX));
    let Some(AttemptEnd::Again { delay, .. }) = decide(again, &before(1)) else { panic!() };
    assert_eq!(delay, ms_ceil(MAX_DELAY));
}

fn ended(number: usize) -> Settlement {
    let held = LeaseRef { key: Bytes::from(number.to_string()), token: Token([1; 8]) };
    let leases = Arc::new(Leases::new(Duration::from_secs(1), Duration::from_secs(1)));
    Settlement { lease: leases.add([held], now()).remove(0), end: None, restore: None }
}

fn put(outbox: &SettlementQueue, numbers: std::ops::Range<usize>) {
    numbers.for_each(|number| outbox.push(ended(number)));
}

/// Returns how long the next batch took to arrive, and its size.
async fn batch(outbox: &SettlementQueue) -> (Duration, usize) {
    let asked = Instant::now();
    let batch = outbox.next_batch().await;
    (asked.elapsed(), batch.len())
}

#[tokio::test(start_paused = true)]
async fn one_end_lingers_and_a_full_batch_does_not() {
    let outbox = SettlementQueue::new(LINGER);
    for (count, waits) in [
        (1, LINGER),
        (SETTLE_WITHOUT_LINGER - 1, LINGER),
        (SETTLE_WITHOUT_LINGER, Duration::ZERO),
        (200, Duration::ZERO),
    ] {
        put(&outbox, 0..count);
        assert_eq!(batch(&outbox).await, (waits, count));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_settler_wakes_for_the_first_end_and_for_a_full_batch() {
    let outbox = SettlementQueue::new(LINGER);
    let later = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        put(&outbox, 0..1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        put(&outbox, 1..SETTLE_WITHOUT_LINGER);
    };
    let batch = tokio::join!(batch(&outbox), later).0;
    assert_eq!(batch, (Duration::from_millis(101), SETTLE_WITHOUT_LINGER));
}

#[tokio::test(start_paused = true)]
async fn only_the_first_end_and_a_full_batch_wake_the_settler() {
    let outbox = SettlementQueue::new(LINGER);
    let mut woken = Vec::new();
    for number in 0..SETTLE_WITHOUT_LINGER + 10 {
        put(&outbox, number..number + 1);
        if tokio::time::timeout(Duration::ZERO, outbox.filled.notified()).await.is_ok() {
            woken.push(number + 1);
        }
    }
    assert_eq!(woken, [1, SETTLE_WITHOUT_LINGER]);
}

#[tokio::test(start_paused = true)]
async fn without_linger_one_end_is_a_batch() {
    let outbox = SettlementQueue::new(Duration::ZERO);
    put(&outbox, 0..1);
    assert_eq!(batch(&outbox).await, (Duration::ZERO, 1));
}

#[test]
fn the_end_of_an_ended_attempt_is_in_the_queue() {
    let outbox = SettlementQueue::new(Duration::ZERO);
    for number in 0..1000 {
        let (start, ended) = (Barrier::new(2), ended(number));
        let lease = ended.lease.state.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                outbox.push(ended);
            });
            start.wait();
            while lease.phase() != Phase::Ended {}
            assert_eq!(outbox.take_batch().len(), 1, "in round {number}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn ends_count_until_they_are_settled_and_too_many_leave_no_room() {
    let outbox = SettlementQueue::new(Duration::ZERO);
    let soon = Duration::from_millis(1);
    let has_room = async || tokio::time::timeout(soon, outbox.wait_for_room()).await.is_ok();
    let is_empty = async || tokio::time::timeout(soon, outbox.wait_until_empty()).await.is_ok();
    assert!(has_room().await && is_empty().await);
    put(&outbox, 0..MAX_UNSETTLED / 2);
    let sent = outbox.next_batch().await;
    assert_eq!(sent.len(), MAX_UNSETTLED / 2);
    put(&outbox, MAX_UNSETTLED / 2..MAX_UNSETTLED - 1);
    assert!(has_room().await && !is_empty().await);
    put(&outbox, MAX_UNSETTLED - 1..MAX_UNSETTLED);
    assert!(!has_room().await, "4,000 ends are sent or queued");
    outbox.note_settled(1);
    assert!(has_room().await && !is_empty().await);
    outbox.note_settled(sent.len() - 1);
    let rest = outbox.next_batch().await;
    let settle = async { outbox.note_settled(rest.len()) };
    assert!(tokio::join!(is_empty(), settle).0);
    assert_eq!(MAX_UNSETTLED, 4000);
}

proptest! {
    /// For any result, settings and record.
    #[test]
    fn no_end_leads_beyond_the_limits(
        (delay, max_age) in any::<(Duration, Duration)>(),
        (deadline, at) in any::<(u64, u64)>(),
        (attempt, snoozes) in any::<(u32, u16)>(),
        (max_attempts, max_snoozes) in any::<(Option<u32>, u16)>(),
        history in any::<Vec<u8>>(),
    ) {
        let topic = Topic::<u64>::new("a:{id}").unwrap().max_age(max_age).max_snoozes(max_snoozes);
        let config = max_attempts.map_or(topic.clone(), |most| topic.max_attempts(most)).config;
        let record = Record { arming: ArmingId::random(), deadline, payload: Bytes::new() };
        let state = State { attempt, snoozes, history: history.into(), ..before(1) };
        let thens = [RetryDecision::ByPolicy, RetryDecision::NoSooner(delay), RetryDecision::After(delay), RetryDecision::Dead];
        let failed = |then| AttemptResult::Failed(Ending::Error, Failure { then, error: "é".repeat(600) });
        let outcomes = [Outcome::Done, Outcome::Drop, Outcome::Again(delay), Outcome::Snooze(delay)];
        for ended in outcomes.map(AttemptResult::Returned).into_iter().chain(thens.map(failed)) {
            match ended.decide(&config, &record, &state, at) {
                None | Some(AttemptEnd::Dead { .. }) => {}
                Some(AttemptEnd::Again { delay, .. }) => assert!(delay <= ms_ceil(MAX_DELAY)),
                Some(AttemptEnd::Retry { delay, attempt: next, snoozes: kept, history }) => {
                    assert!(delay <= ms_ceil(MAX_DELAY) && next <= config.attempts());
                    assert_eq!((next, kept), (attempt + 1, snoozes));
                    assert!(!history.is_empty());
                }
                Some(AttemptEnd::Snooze { delay, attempt: kept, snoozes: next, .. }) => {
                    assert!(delay <= ms_ceil(MAX_DELAY) && next <= config.max_snoozes);
                    assert_eq!((kept, next), (attempt, snoozes.saturating_add(1)));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
