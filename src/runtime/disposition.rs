//! What the end of an attempt leads to: pure decisions.

use std::time::Duration;

use bytes::Bytes;

use crate::id::ArmingId;
use crate::outcome::{Failure, Outcome, Then};
use crate::time::{MAX_DELAY, ms_ceil, system_time};
use crate::topic::TopicConfig;
use crate::wire::{DeadReason, End, FailedAttempt, History};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned(Outcome),
    Failed {
        kind: &'static str,
        then: Then,
        error: String,
    },
    Undecodable(String),
    /// The key was written back for this attempt, and its writer has taken it.
    Superseded,
}

/// What was known before it ended.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub(crate) attempt: u32,
    pub(crate) snoozes: u16,
    pub(crate) history: Bytes,
    pub(crate) first_deadline: u64,
    /// When it ended, in ms by the server's clock.
    pub(crate) ended: u64,
}

/// What Redis is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Gone, the ordinary way.
    Ack,
    /// Any other end.
    End(End),
}

impl Ended {
    pub(crate) fn failed(kind: &'static str, error: String) -> Self {
        Self::Failed { kind, then: Then::ByPolicy, error }
    }

    /// Applies the topic's policy.
    pub(crate) fn decide(self, config: &TopicConfig, before: &Before) -> Disposition {
        let age = Duration::from_millis(before.ended.saturating_sub(before.first_deadline));
        let too_old = age > config.max_age;
        match self {
            Self::Returned(Outcome::Done | Outcome::Drop) | Self::Superseded => Disposition::Ack,
            Self::Returned(Outcome::Again(delay)) => {
                Disposition::End(End::Again { delay: bounded(delay), arming: ArmingId::random() })
            }
            Self::Returned(Outcome::Snooze(_)) if before.snoozes >= config.max_snoozes => {
                before.dead(DeadReason::Snoozed)
            }
            Self::Returned(Outcome::Snooze(_)) if too_old => before.dead(DeadReason::TooOld),
            Self::Returned(Outcome::Snooze(delay)) => before.snooze(delay),
            Self::Undecodable(error) => before.with("undecodable", error).dead(DeadReason::Undecodable),
            Self::Failed { kind, then, error } => {
                let after = before.with(kind, error);
                match then {
                    Then::Dead => after.dead(DeadReason::Permanent),
                    _ if before.attempt >= config.attempts() => after.dead(DeadReason::Exhausted),
                    _ if too_old => after.dead(DeadReason::TooOld),
                    Then::After(delay) => after.retry(delay),
                    Then::ByPolicy => after.retry(config.backoff.delay(before.attempt)),
                }
            }
        }
    }
}

impl From<Result<Outcome, Failure>> for Ended {
    fn from(result: Result<Outcome, Failure>) -> Self {
        match result {
            Ok(outcome) => Self::Returned(outcome),
            Err(Failure { then, error }) => Self::Failed { kind: "error", then, error },
        }
    }
}

impl Before {
    /// With one more failed attempt in its history.
    fn with(&self, kind: &str, error: String) -> Self {
        let mut history = History::decode(&self.history);
        history.push(FailedAttempt {
            attempt: self.attempt,
            at: system_time(self.ended),
            kind: kind.to_owned(),
            error,
        });
        Self { history: history.encode(), ..self.clone() }
    }

    fn dead(&self, reason: DeadReason) -> Disposition {
        Disposition::End(End::Dead { reason, history: self.history.clone() })
    }

    fn retry(&self, delay: Duration) -> Disposition {
        let attempt = self.attempt.saturating_add(1);
        let history = self.history.clone();
        Disposition::End(End::Retry { delay: bounded(delay), attempt, snoozes: self.snoozes, history })
    }

    fn snooze(&self, delay: Duration) -> Disposition {
        let snoozes = self.snoozes.saturating_add(1);
        let history = self.history.clone();
        Disposition::End(End::Snooze { delay: bounded(delay), attempt: self.attempt, snoozes, history })
    }
}

fn bounded(delay: Duration) -> u64 {
    ms_ceil(delay.min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Backoff;
    use crate::topic::Topic;

    fn config() -> TopicConfig {
        let topic = Topic::<u32>::new("a:{id}").unwrap();
        topic.retry(Backoff::table([Duration::from_secs(15)])).max_snoozes(1).config
    }

    fn before(attempt: u32) -> Before {
        Before { attempt, snoozes: 0, history: Bytes::new(), first_deadline: 1000, ended: 2000 }
    }

    #[allow(clippy::needless_pass_by_value)] // reads better at the call
    fn reason(decision: Disposition) -> Option<DeadReason> {
        match decision {
            Disposition::End(End::Dead { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    fn error(then: Then) -> Ended {
        Ended::Failed { kind: "error", then, error: "no".into() }
    }

    #[test]
    fn failures_are_retried_by_policy_until_they_are_exhausted() {
        let Disposition::End(End::Retry { delay, attempt, history, .. }) =
            error(Then::ByPolicy).decide(&config(), &before(1))
        else {
            panic!("not retried")
        };
        assert_eq!((delay, attempt), (15_000, 2));
        assert_eq!(History::decode(&history).0[0].error, "no");
        assert_eq!(reason(error(Then::ByPolicy).decide(&config(), &before(2))), Some(DeadReason::Exhausted));
    }

    #[test]
    fn a_delay_of_the_handler_does_not_outlive_the_policy() {
        let after = || error(Then::After(Duration::from_millis(3)));
        assert!(matches!(
            after().decide(&config(), &before(1)),
            Disposition::End(End::Retry { delay: 3, .. })
        ));
        assert_eq!(reason(after().decide(&config(), &before(2))), Some(DeadReason::Exhausted));
    }

    #[test]
    fn permanent_failures_and_strange_payloads_die_at_once() {
        assert_eq!(reason(error(Then::Dead).decide(&config(), &before(1))), Some(DeadReason::Permanent));
        let strange = Ended::Undecodable("?".into());
        assert_eq!(reason(strange.decide(&config(), &before(1))), Some(DeadReason::Undecodable));
    }

    #[test]
    fn too_old_and_too_often_snoozed_timers_die() {
        let old = Before { ended: 1000 + 31 * 86_400_000, ..before(1) };
        assert_eq!(reason(error(Then::ByPolicy).decide(&config(), &old)), Some(DeadReason::TooOld));
        let snooze = || Ended::Returned(Outcome::Snooze(Duration::ZERO));
        assert_eq!(reason(snooze().decide(&config(), &old)), Some(DeadReason::TooOld));
        let often = Before { snoozes: 1, ..before(1) };
        assert_eq!(reason(snooze().decide(&config(), &often)), Some(DeadReason::Snoozed));
        assert!(matches!(
            snooze().decide(&config(), &before(1)),
            Disposition::End(End::Snooze { snoozes: 1, attempt: 1, .. })
        ));
    }

    #[test]
    fn a_timer_of_exactly_the_greatest_age_is_not_too_old() {
        let config = config();
        let greatest = 1000 + ms_ceil(config.max_age);
        let ended = |ended| error(Then::ByPolicy).decide(&config, &Before { ended, ..before(1) });
        assert!(matches!(ended(greatest), Disposition::End(End::Retry { .. })));
        assert_eq!(reason(ended(greatest + 1)), Some(DeadReason::TooOld));
    }

    #[test]
    fn a_snooze_uses_up_no_attempt_and_keeps_what_was_before() {
        let failed = before(1).with("error", "no".into());
        let snooze = Ended::Returned(Outcome::Snooze(Duration::from_secs(7)));
        let Disposition::End(End::Snooze { delay, attempt, snoozes, history }) =
            snooze.decide(&config(), &failed)
        else {
            panic!("not snoozed")
        };
        assert_eq!((delay, attempt, snoozes), (7000, 1, 1));
        assert_eq!(History::decode(&history).0.len(), 1);
    }

    #[test]
    fn a_letter_tells_of_the_last_failure_too() {
        let failed = before(1).with("error", "first".into());
        let Disposition::End(End::Dead { history, .. }) = error(Then::Dead).decide(&config(), &failed) else {
            panic!("not buried")
        };
        let errors: Vec<_> = History::decode(&history).0.into_iter().map(|failed| failed.error).collect();
        assert_eq!(errors, ["first", "no"]);
    }

    #[test]
    fn endless_delays_are_capped() {
        let again = Ended::Returned(Outcome::Again(Duration::MAX));
        let Disposition::End(End::Again { delay, .. }) = again.decide(&config(), &before(1)) else {
            panic!()
        };
        assert_eq!(delay, ms_ceil(MAX_DELAY));
    }
}
