//! Ends of attempts: what each leads to, which are pure decisions; and on their way to Redis, gathered into batches.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::error::Error;
use crate::id::ArmingId;
use crate::lock::{lock, wait_until};
use crate::outcome::{Failure, Outcome, RetryDecision};
use crate::panics::catch_panic;
use crate::runtime::leases::Lease;
use crate::time::{MAX_DELAY, ms_ceil, system_time, unix_ms};
use crate::topic::TopicConfig;
use crate::wire::{AttemptEnd, DeadReason, Ending, FailedAttempt, History, MAX_BATCH, Record, State};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum AttemptResult {
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

impl AttemptResult {
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
            Self::Failed(
                kind,
                Failure { then: then @ (RetryDecision::ByPolicy | RetryDecision::NoSooner(_)), error },
            ) if attempt < config.attempts() => {
                let waits = |kind, delay: Duration, error| {
                    let delay = delay.max(then.least());
                    Self::Failed(kind, Failure { then: RetryDecision::After(delay), error })
                };
                match catch_panic(|| config.backoff.delay(attempt)) {
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
    pub(crate) fn decide(
        self,
        config: &TopicConfig,
        record: &Record,
        state: &State,
        at: u64,
    ) -> Option<AttemptEnd> {
        let too_old = Duration::from_millis(at.saturating_sub(record.deadline)) > config.max_age;
        let State { attempt, snoozes, history, .. } = state.clone();
        let dead = |reason, history| AttemptEnd::Dead { reason, history };
        Some(match self {
            Self::Returned(Outcome::Done | Outcome::Drop) | Self::Superseded => return None,
            Self::Stopped => AttemptEnd::Release,
            Self::Returned(Outcome::Again(delay)) => {
                AttemptEnd::Again { delay: bounded(delay), arming: ArmingId::random() }
            }
            Self::Returned(Outcome::Snooze(_))
                if snoozes >= config.max_snoozes && config.max_snoozes < u16::MAX =>
            {
                dead(DeadReason::Snoozed, history)
            }
            Self::Returned(Outcome::Snooze(_)) if too_old => dead(DeadReason::TooOld, history),
            Self::Returned(Outcome::Snooze(delay)) => AttemptEnd::Snooze {
                delay: bounded(delay),
                attempt,
                snoozes: snoozes.saturating_add(1),
                history,
            },
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
                AttemptEnd::Retry { delay: bounded(delay), attempt, snoozes, history }
            }
            Self::Failed(kind, Failure { then, error }) => {
                let history = with_failure(state, kind, error, at);
                let delay = match then {
                    RetryDecision::Dead => return Some(dead(DeadReason::Permanent, history)),
                    _ if attempt >= config.attempts() => return Some(dead(DeadReason::Exhausted, history)),
                    _ if too_old => return Some(dead(DeadReason::TooOld, history)),
                    RetryDecision::After(delay) => delay,
                    RetryDecision::ByPolicy | RetryDecision::NoSooner(_) => {
                        config.backoff.delay(attempt).max(then.least())
                    }
                };
                AttemptEnd::Retry {
                    delay: bounded(delay),
                    attempt: attempt.saturating_add(1),
                    snoozes,
                    history,
                }
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

/// How long the first end waits for company. At a high rate batches fill
/// faster; at a low one nobody waits for an ack but Redis.
pub(super) const LINGER: Duration = Duration::from_millis(20);
/// This many do not wait any longer.
const SETTLE_WITHOUT_LINGER: usize = 64;
/// Beyond this many unsettled ends, nothing more is claimed.
const MAX_UNSETTLED: usize = 4 * MAX_BATCH;

/// One end of an attempt. It owns the lease until it is settled, or given up.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) lease: Lease,
    /// None: gone, the ordinary way.
    pub(crate) end: Option<AttemptEnd>,
    /// The value of an attached key that is to be written back for its retry.
    pub(crate) restore: Option<Bytes>,
}

/// The ends of one partition.
#[derive(Debug)]
pub(crate) struct SettlementQueue {
    /// How long the first end waits for company.
    linger: Duration,
    state: Mutex<UnsettledEnds>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct UnsettledEnds {
    waiting: Vec<Settlement>,
    /// How many are on their way.
    sent: usize,
}

impl SettlementQueue {
    pub(crate) fn new(linger: Duration) -> Self {
        Self { linger, state: Mutex::default(), filled: Notify::new(), drained: Notify::new() }
    }

    pub(crate) fn put(&self, settlement: Settlement) {
        let mut state = lock(&self.state);
        // In one step: whoever sees that all attempts have ended must find here what is left to settle.
        settlement.lease.end();
        state.waiting.push(settlement);
        let count = state.waiting.len();
        drop(state);
        if count == 1 || count == SETTLE_WITHOUT_LINGER {
            self.filled.notify_one();
        }
    }

    /// The next batch, once there is something.
    pub(crate) async fn next_batch(&self) -> Vec<Settlement> {
        while lock(&self.state).waiting.is_empty() {
            self.filled.notified().await;
        }
        if self.linger.is_zero() {
            return self.take();
        }
        let company = async {
            while lock(&self.state).waiting.len() < SETTLE_WITHOUT_LINGER {
                self.filled.notified().await;
            }
        };
        let _ = tokio::time::timeout(self.linger, company).await;
        self.take()
    }

    fn take(&self) -> Vec<Settlement> {
        let mut state = lock(&self.state);
        let batch: Vec<_> = std::mem::take(&mut state.waiting);
        state.sent += batch.len();
        batch
    }

    /// So many of those on their way were settled or given up.
    pub(crate) fn settled(&self, count: usize) {
        lock(&self.state).sent -= count;
        self.drained.notify_waiters();
    }

    /// Returns once there is room for more ends.
    pub(crate) async fn room(&self) {
        self.fewer_than(MAX_UNSETTLED).await;
    }

    /// Returns once everything is settled.
    pub(crate) async fn empty(&self) {
        self.fewer_than(1).await;
    }

    async fn fewer_than(&self, count: usize) {
        wait_until(&self.state, &self.drained, |state| state.waiting.len() + state.sent < count).await;
    }
}

#[cfg(test)]
mod tests;
