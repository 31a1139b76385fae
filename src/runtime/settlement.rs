//! Ends of attempts: pure decisions about what follows, and the queue from which they are settled in batches.

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
    /// The attempt ended with an error, a panic or a timeout, which the ending names.
    Failed(Ending, Failure),
    Undecodable(Undecodable),
    /// The key was written back for this attempt, and its writer has created it again.
    Superseded,
    /// The handler was stopped because the listener stops.
    Stopped,
}

/// Why a payload cannot be decoded.
#[derive(Debug)]
pub(crate) struct Undecodable {
    /// The error for history and log, which never quotes the payload.
    pub(crate) error: Error,
    /// The text of the decoder's panic. It may quote the payload, so the history has it, but no log line.
    pub(crate) panic: Option<String>,
}

impl AttemptResult {
    /// Returns the ending for statistics and history.
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

    /// Replaces a retry by the topic's backoff schedule with a retry after the schedule's delay. The schedule may be code
    /// of the application: if it panics, the attempt counts as panicked, and the default schedule applies.
    pub(crate) fn with_backoff_delay(self, config: &TopicConfig, attempt: u32) -> Self {
        match self {
            Self::Failed(
                kind,
                Failure { then: then @ (RetryDecision::ByPolicy | RetryDecision::NoSooner(_)), error },
            ) if attempt < config.attempts() => {
                let retry_after = |kind, delay: Duration, error| {
                    let delay = delay.max(then.least());
                    Self::Failed(kind, Failure { then: RetryDecision::After(delay), error })
                };
                match catch_panic(|| config.backoff.delay(attempt)) {
                    Ok(delay) => retry_after(kind, delay, error),
                    Err(panic) => {
                        let error = format!("{error}; and the retry policy panicked: {panic}");
                        retry_after(Ending::Panic, Backoff::default().delay(attempt), error)
                    }
                }
            }
            other => other,
        }
    }

    /// Decides what follows the attempt, which ended at `at` ms by the server's clock. `None` means that the timer is
    /// done.
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
                AttemptEnd::Again { delay: delay_ms(delay), arming: ArmingId::random() }
            }
            Self::Returned(Outcome::Snooze(_))
                if snoozes >= config.max_snoozes && config.max_snoozes < u16::MAX =>
            {
                dead(DeadReason::Snoozed, history)
            }
            Self::Returned(Outcome::Snooze(_)) if too_old => dead(DeadReason::TooOld, history),
            Self::Returned(Outcome::Snooze(delay)) => AttemptEnd::Snooze {
                delay: delay_ms(delay),
                attempt,
                snoozes: snoozes.saturating_add(1),
                history,
            },
            Self::Undecodable(Undecodable { error, panic }) => {
                let error = panic.map_or_else(|| error.to_string(), |panic| format!("{error}: {panic}"));
                let since = undecodable_since(state);
                let history = if since.is_some() {
                    history
                } else {
                    with_failure(state, Ending::Undecodable, error, at)
                };
                let waited = Duration::from_millis(at.saturating_sub(since.unwrap_or(at)));
                let left = config.undecodable_for.saturating_sub(waited);
                if left.is_zero() {
                    return Some(dead(DeadReason::Undecodable, history));
                }
                // Each delay is as long as the wait so far, so the total doubles.
                let delay = waited.clamp(MIN_UNDECODABLE_DELAY, MAX_UNDECODABLE_DELAY).min(left);
                AttemptEnd::Retry { delay: delay_ms(delay), attempt, snoozes, history }
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
                    delay: delay_ms(delay),
                    attempt: attempt.saturating_add(1),
                    snoozes,
                    history,
                }
            }
        })
    }
}

/// The shortest and the longest delay before an undecodable payload is tried again.
const MIN_UNDECODABLE_DELAY: Duration = Duration::from_secs(1);
const MAX_UNDECODABLE_DELAY: Duration = Duration::from_secs(300);

/// Returns since when, in ms, a timer waits because its payload is undecodable. Only the first of these attempts is in
/// its history.
pub(crate) fn undecodable_since(state: &State) -> Option<u64> {
    let last = History::decode(&state.history).0.pop()?;
    (last.kind == Ending::Undecodable.as_str()).then(|| unix_ms(last.at))
}

/// Returns the history with this failed attempt.
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

/// Returns a delay in ms, at most the maximum delay of a timer.
fn delay_ms(delay: Duration) -> u64 {
    ms_ceil(delay.min(MAX_DELAY))
}

/// How long the first end in a batch waits for others. At a high rate, batches fill sooner. At a low rate the delay
/// is harmless, because only Redis waits for an ack.
pub(super) const LINGER: Duration = Duration::from_millis(20);
/// A batch of this size is settled without waiting.
const SETTLE_WITHOUT_LINGER: usize = 64;
/// With this many unsettled ends, no timer is claimed.
const MAX_UNSETTLED: usize = 4 * MAX_BATCH;

/// The end of an attempt, which is to be settled in Redis. It owns the lease until it is settled or given up.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) lease: Lease,
    /// The next state of the timer. `None` means that the timer is done.
    pub(crate) end: Option<AttemptEnd>,
    /// The value of an attached key to write back for its retry.
    pub(crate) restore: Option<Bytes>,
}

/// The unsettled ends of a partition.
#[derive(Debug)]
pub(crate) struct SettlementQueue {
    /// How long the first end in a batch waits for others.
    linger: Duration,
    state: Mutex<UnsettledEnds>,
    /// Notified of the first waiting end, and of a full batch.
    filled: Notify,
    /// Notified when ends were settled or given up.
    drained: Notify,
}

#[derive(Debug, Default)]
struct UnsettledEnds {
    waiting: Vec<Settlement>,
    /// How many ends were sent and not answered yet.
    sent: usize,
}

impl SettlementQueue {
    pub(crate) fn new(linger: Duration) -> Self {
        Self { linger, state: Mutex::default(), filled: Notify::new(), drained: Notify::new() }
    }

    pub(crate) fn push(&self, settlement: Settlement) {
        let mut state = lock(&self.state);
        // The lock is held: a task that finds all attempts ended must also find their ends in this queue.
        settlement.lease.mark_ended();
        state.waiting.push(settlement);
        let count = state.waiting.len();
        drop(state);
        if count == 1 || count == SETTLE_WITHOUT_LINGER {
            self.filled.notify_one();
        }
    }

    /// Waits for the next batch.
    pub(crate) async fn next_batch(&self) -> Vec<Settlement> {
        while lock(&self.state).waiting.is_empty() {
            self.filled.notified().await;
        }
        if self.linger.is_zero() {
            return self.take_batch();
        }
        let filled = async {
            while lock(&self.state).waiting.len() < SETTLE_WITHOUT_LINGER {
                self.filled.notified().await;
            }
        };
        let _ = tokio::time::timeout(self.linger, filled).await;
        self.take_batch()
    }

    /// Removes the waiting ends, and counts them as sent.
    fn take_batch(&self) -> Vec<Settlement> {
        let mut state = lock(&self.state);
        let batch: Vec<_> = std::mem::take(&mut state.waiting);
        state.sent += batch.len();
        batch
    }

    /// Records that sent ends were settled or given up.
    pub(crate) fn note_settled(&self, count: usize) {
        lock(&self.state).sent -= count;
        self.drained.notify_waiters();
    }

    /// Waits until fewer than `MAX_UNSETTLED` ends are unsettled.
    pub(crate) async fn wait_for_room(&self) {
        self.wait_until_fewer_than(MAX_UNSETTLED).await;
    }

    /// Waits until all ends are settled or given up.
    pub(crate) async fn wait_until_empty(&self) {
        self.wait_until_fewer_than(1).await;
    }

    async fn wait_until_fewer_than(&self, count: usize) {
        wait_until(&self.state, &self.drained, |state| state.waiting.len() + state.sent < count).await;
    }
}

#[cfg(test)]
mod tests;
