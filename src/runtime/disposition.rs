//! What the end of an attempt leads to: pure decisions.

use std::time::Duration;

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::error::Error;
use crate::id::ArmingId;
use crate::outcome::{Failure, Outcome, Then};
use crate::panics::contained;
use crate::time::{MAX_DELAY, ms_ceil, system_time, unix_ms};
use crate::topic::TopicConfig;
use crate::wire::{DeadReason, End, Ending, FailedAttempt, History, Record, State};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Returned(Outcome),
    /// By an error, a panic or its timeout.
    Failed(Ending, Failure),
    Undecodable(Undecodable),
    /// The key was written back for this attempt, and its writer has taken it.
    Superseded,
    /// The handler was stopped, as the listener is.
    Stopped,
}

/// Why a payload cannot be decoded.
#[derive(Debug)]
pub(crate) struct Undecodable {
    /// For the log, too: it never quotes the payload.
    pub(crate) error: Error,
    /// The text of the decoder's panic. It may quote the payload, so it stays with it, in the history.
    pub(crate) panic: Option<String>,
}

impl Ended {
    /// What it is called.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::Returned(Outcome::Done) => Ending::Done,
            Self::Returned(Outcome::Again(_)) => Ending::Again,
            Self::Returned(Outcome::Snooze(_)) => Ending::Snoozed,
            Self::Returned(Outcome::Drop) => Ending::Dropped,
            Self::Failed(ending, _) => *ending,
            Self::Undecodable(_) => Ending::Undecodable,
            Self::Superseded => Ending::Superseded,
            Self::Stopped => Ending::Stopped,
        }
    }

    /// The same with the wait that the topic's policy says. The policy is the application's: should it
    /// panic, that is the attempt's failure, and the default policy says how long to wait.
    pub(crate) fn by_policy(self, config: &TopicConfig, attempt: u32) -> Self {
        match self {
            Self::Failed(kind, Failure { then: then @ (Then::ByPolicy | Then::NoSooner(_)), error })
                if attempt < config.attempts() =>
            {
                let waits = |kind, delay: Duration, error| {
                    let delay = delay.max(then.least());
                    Self::Failed(kind, Failure { then: Then::After(delay), error })
                };
                match contained(|| config.backoff.delay(attempt)) {
                    Ok(delay) => waits(kind, delay, error),
                    Err(panic) => {
                        let error = format!("{error}; and the retry policy panicked: {panic}");
                        waits(Ending::Panic, Backoff::default().delay(attempt), error)
                    }
                }
            }
            other => other,
        }
    }

    /// Applies the topic's policy to a timer whose attempt has ended at this ms of the server's clock: what
    /// Redis is to be told; none: that it is done.
    pub(crate) fn decide(self, config: &TopicConfig, record: &Record, state: &State, at: u64) -> Option<End> {
        let too_old = Duration::from_millis(at.saturating_sub(record.deadline)) > config.max_age;
        let State { attempt, snoozes, history, .. } = state.clone();
        let dead = |reason, history| End::Dead { reason, history };
        Some(match self {
            Self::Returned(Outcome::Done | Outcome::Drop) | Self::Superseded => return None,
            Self::Stopped => End::Release,
            Self::Returned(Outcome::Again(delay)) => {
                End::Again { delay: bounded(delay), arming: ArmingId::random() }
            }
            Self::Returned(Outcome::Snooze(_))
                if snoozes >= config.max_snoozes && config.max_snoozes < u16::MAX =>
            {
                dead(DeadReason::Snoozed, history)
            }
            Self::Returned(Outcome::Snooze(_)) if too_old => dead(DeadReason::TooOld, history),
            Self::Returned(Outcome::Snooze(delay)) => {
                End::Snooze { delay: bounded(delay), attempt, snoozes: snoozes.saturating_add(1), history }
            }
            Self::Undecodable(Undecodable { error, panic }) => {
                let error = panic.map_or_else(|| error.to_string(), |panic| format!("{error}: {panic}"));
                let known = first_undecodable(state);
                let history = if known.is_some() {
                    history
                } else {
                    with_failure(state, Ending::Undecodable, error, at)
                };
                let waited = Duration::from_millis(at.saturating_sub(known.unwrap_or(at)));
                let left = config.undecodable_for.saturating_sub(waited);
                if left.is_zero() {
                    return Some(dead(DeadReason::Undecodable, history));
                }
                // Each time as long again as it has waited so far.
                let delay = waited.clamp(SHORTEST_PAUSE, LONGEST_PAUSE).min(left);
                End::Retry { delay: bounded(delay), attempt, snoozes, history }
            }
            Self::Failed(kind, Failure { then, error }) => {
                let history = with_failure(state, kind, error, at);
                let delay = match then {
                    Then::Dead => return Some(dead(DeadReason::Permanent, history)),
                    _ if attempt >= config.attempts() => return Some(dead(DeadReason::Exhausted, history)),
                    _ if too_old => return Some(dead(DeadReason::TooOld, history)),
                    Then::After(delay) => delay,
                    Then::ByPolicy | Then::NoSooner(_) => config.backoff.delay(attempt).max(then.least()),
                };
                End::Retry { delay: bounded(delay), attempt: attempt.saturating_add(1), snoozes, history }
            }
        })
    }
}

/// How long a payload that cannot be decoded is put off, at first and at the most.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Since when, in ms, a timer is put off as its payload cannot be decoded: of its history that is one entry.
pub(crate) fn first_undecodable(state: &State) -> Option<u64> {
    let last = History::decode(&state.history).0.pop()?;
    (last.kind == Ending::Undecodable.as_str()).then(|| unix_ms(last.at))
}

/// The history with this attempt, which has failed.
fn with_failure(state: &State, kind: Ending, error: String, at: u64) -> Bytes {
    let mut history = History::decode(&state.history);
    history.push(FailedAttempt {
        attempt: state.attempt,
        at: system_time(at),
        kind: kind.as_str().to_owned(),
        error,
    });
    history.encode()
}

fn bounded(delay: Duration) -> u64 {
    ms_ceil(delay.min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::Topic;

    fn config() -> TopicConfig {
        let topic = Topic::<u32>::new("a:{id}").unwrap();
        topic.retry(Backoff::table([Duration::from_secs(15)])).max_snoozes(1).config
    }

    fn before(attempt: u32) -> State {
        State::waiting(attempt)
    }

    /// Once, with this error.
    fn failed(error: &str) -> State {
        State { history: with_failure(&before(1), Ending::Error, error.to_owned(), 2000), ..before(1) }
    }

    /// What follows for a timer that was due at second one, and whose attempt has ended at second two.
    fn decide(ended: Ended, state: &State) -> Option<End> {
        decide_at(2000, ended, state)
    }

    fn decide_at(at: u64, ended: Ended, state: &State) -> Option<End> {
        let record = Record { arming: ArmingId::random(), deadline: 1000, payload: Bytes::new() };
        ended.decide(&config(), &record, state, at)
    }

    #[allow(clippy::needless_pass_by_value)] // reads better at the call
    fn reason(end: Option<End>) -> Option<DeadReason> {
        match end {
            Some(End::Dead { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    fn undecodable() -> Ended {
        let error = Error::new(crate::error::ErrorKind::Payload, "?");
        Ended::Undecodable(Undecodable { error, panic: None })
    }

    fn error(then: Then) -> Ended {
        Ended::Failed(Ending::Error, Failure { then, error: "no".into() })
    }

    #[test]
    fn failures_are_retried_by_policy_until_they_are_exhausted() {
        let Some(End::Retry { delay, attempt, history, .. }) = decide(error(Then::ByPolicy), &before(1))
        else {
            panic!("not retried")
        };
        assert_eq!((delay, attempt), (15_000, 2));
        assert_eq!(History::decode(&history).0[0].error, "no");
        assert_eq!(reason(decide(error(Then::ByPolicy), &before(2))), Some(DeadReason::Exhausted));
    }

    #[test]
    fn a_policy_that_panics_is_what_the_attempt_has_failed_of() {
        let topic = Topic::<u32>::new("a:{id}")
            .unwrap()
            .retry(Backoff::custom(|_| panic!("no idea")))
            .max_attempts(2);
        let by_policy = |ended: Ended, attempt| ended.by_policy(&topic.config, attempt);
        let Ended::Failed(Ending::Panic, Failure { then: Then::After(delay), error: text }) =
            by_policy(error(Then::ByPolicy), 1)
        else {
            panic!("not a failure that is retried")
        };
        assert_eq!(text, "no; and the retry policy panicked: no idea");
        assert!(delay <= Duration::from_secs(1), "{delay:?}");
        let unasked = [error(Then::Dead), error(Then::After(Duration::ZERO)), Ended::Stopped];
        unasked.into_iter().for_each(|ended| drop(by_policy(ended, 1)));
        assert!(
            matches!(by_policy(error(Then::ByPolicy), 2), Ended::Failed(Ending::Error, _)),
            "none follows the last attempt"
        );
    }

    #[test]
    fn a_delay_of_the_handler_does_not_outlive_the_policy() {
        let after = || error(Then::After(Duration::from_millis(3)));
        assert!(matches!(decide(after(), &before(1)), Some(End::Retry { delay: 3, .. })));
        assert_eq!(reason(decide(after(), &before(2))), Some(DeadReason::Exhausted));
    }

    #[test]
    fn of_the_policy_and_the_least_delay_that_was_asked_for_the_later_counts() {
        for (least, delay) in [(0, 15), (14, 15), (16, 16), (7 * 86_400, 7 * 86_400)] {
            let asked = || error(Then::NoSooner(Duration::from_secs(least)));
            for ended in [asked(), asked().by_policy(&config(), 1)] {
                let Some(End::Retry { delay: waits, .. }) = decide(ended, &before(1)) else {
                    panic!("{least}")
                };
                assert_eq!(waits, delay * 1000, "{least}");
            }
            assert_eq!(reason(decide(asked(), &before(2))), Some(DeadReason::Exhausted));
        }
    }

    #[test]
    fn permanent_failures_die_at_once() {
        assert_eq!(reason(decide(error(Then::Dead), &before(1))), Some(DeadReason::Permanent));
    }

    #[test]
    fn a_strange_payload_is_put_off_ever_longer_for_an_hour_and_uses_up_no_attempt() {
        let (mut state, mut now, mut pauses) = (failed("no"), 2000, Vec::new());
        let last = loop {
            match decide_at(now, undecodable(), &state) {
                Some(End::Retry { delay, attempt: 1, snoozes: 0, history }) => {
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
        let Some(End::Dead { reason: DeadReason::Undecodable, history }) = last else { panic!("{last:?}") };
        let kinds: Vec<_> = History::decode(&history).0.into_iter().map(|failed| failed.kind).collect();
        assert_eq!(kinds, ["error", "undecodable"], "once, from when it began");
    }

    #[test]
    fn a_strange_payload_dies_at_once_where_it_is_to() {
        let config = Topic::<u32>::new("a:{id}").unwrap().undecodable_for(Duration::ZERO).config;
        let record = Record { arming: ArmingId::random(), deadline: 1000, payload: Bytes::new() };
        let end = undecodable().decide(&config, &record, &before(1), 2000);
        assert_eq!(reason(end), Some(DeadReason::Undecodable));
    }

    #[test]
    fn too_old_and_too_often_snoozed_timers_die() {
        let old = |ended| reason(decide_at(1000 + 31 * 86_400_000, ended, &before(1)));
        assert_eq!(old(error(Then::ByPolicy)), Some(DeadReason::TooOld));
        let snooze = || Ended::Returned(Outcome::Snooze(Duration::ZERO));
        assert_eq!(old(snooze()), Some(DeadReason::TooOld));
        let often = State { snoozes: 1, ..before(1) };
        assert_eq!(reason(decide(snooze(), &often)), Some(DeadReason::Snoozed));
        assert!(matches!(decide(snooze(), &before(1)), Some(End::Snooze { snoozes: 1, attempt: 1, .. })));
    }

    #[test]
    fn with_the_greatest_number_of_snoozes_only_the_age_ends_what_snoozes() {
        let config = Topic::<u32>::new("a:{id}").unwrap().max_snoozes(u16::MAX).config;
        let record = Record { arming: ArmingId::random(), deadline: 1000, payload: Bytes::new() };
        let often = State { snoozes: u16::MAX, ..before(1) };
        let snooze =
            |at| Ended::Returned(Outcome::Snooze(Duration::ZERO)).decide(&config, &record, &often, at);
        assert!(matches!(snooze(2000), Some(End::Snooze { snoozes: u16::MAX, .. })));
        assert_eq!(reason(snooze(1000 + 31 * 86_400_000)), Some(DeadReason::TooOld));
        // So many were allowed before, and fewer are now.
        let fewer =
            Ended::Returned(Outcome::Snooze(Duration::ZERO)).decide(&self::config(), &record, &often, 2000);
        assert_eq!(reason(fewer), Some(DeadReason::Snoozed));
    }

    #[test]
    fn a_timer_of_exactly_the_greatest_age_is_not_too_old() {
        let greatest = 1000 + ms_ceil(config().max_age);
        let ended = |at| decide_at(at, error(Then::ByPolicy), &before(1));
        assert!(matches!(ended(greatest), Some(End::Retry { .. })));
        assert_eq!(reason(ended(greatest + 1)), Some(DeadReason::TooOld));
    }

    #[test]
    fn a_snooze_uses_up_no_attempt_and_keeps_what_was_before() {
        let snooze = Ended::Returned(Outcome::Snooze(Duration::from_secs(7)));
        let Some(End::Snooze { delay, attempt, snoozes, history }) = decide(snooze, &failed("no")) else {
            panic!("not snoozed")
        };
        assert_eq!((delay, attempt, snoozes), (7000, 1, 1));
        assert_eq!(History::decode(&history).0.len(), 1);
    }

    #[test]
    fn a_letter_tells_of_the_last_failure_too() {
        let Some(End::Dead { history, .. }) = decide(error(Then::Dead), &failed("first")) else {
            panic!("not buried")
        };
        let errors: Vec<_> = History::decode(&history).0.into_iter().map(|failed| failed.error).collect();
        assert_eq!(errors, ["first", "no"]);
    }

    #[test]
    fn endless_delays_are_capped() {
        let again = Ended::Returned(Outcome::Again(Duration::MAX));
        let Some(End::Again { delay, .. }) = decide(again, &before(1)) else { panic!() };
        assert_eq!(delay, ms_ceil(MAX_DELAY));
    }
}
