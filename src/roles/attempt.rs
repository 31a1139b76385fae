//! Runs one attempt: the handler, within its timeout and its lease, and its log lines.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

use crate::error::{Error, ErrorKind};
use crate::escape::{Escaped, of_error};
use crate::handler::AttemptFuture;
use crate::lapse::{CURRENT_ARMING, LapseMetadata, LapseSource};
use crate::lease::{HANDLER_STOP_GRACE, LeaseNotice, Phase};
use crate::log::{PanicSafeSpan, debug, error, info, warn};
use crate::outcome::Failure;
use crate::panics::{CatchPanic, catch_panic, message};
use crate::roles::write_back;
use crate::runtime::{
    AttemptResult, Lease, Partition, QuarantineGroups, QuarantineMember, RunningTopic, Settlement,
    Undecodable, undecodable_since,
};
use crate::time::ClockReading;
use crate::trace::{Extract, Traceparent};
use crate::wire::{AttemptEnd, DeadReason, Ending, History, LeaseRef, Record, State};

/// The maximum time for which a timer in quarantine keeps its slot after its attempt, until its end is settled.
const QUARANTINE_SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// An attempt that starts this long after the lookahead of its claim first confirms its lease.
const DOUBTFUL_AFTER: Duration = Duration::from_millis(100);

/// A claimed timer, ready to run.
pub(crate) struct Job {
    pub(crate) partition: Arc<Partition>,
    pub(crate) lease: Lease,
    pub(crate) record: Record,
    pub(crate) trace: Option<Traceparent>,
    pub(crate) state: State,
    /// The server's time at the claim.
    pub(crate) reading: ClockReading,
    pub(crate) source: LapseSource,
    /// True once the server has confirmed the lease of a late attempt.
    pub(crate) is_confirmed: bool,
    /// Held until the attempt has ended.
    pub(crate) slots: AttemptSlots,
}

/// Concurrency slots of attempts, which are released when this is dropped.
pub(crate) struct AttemptSlots {
    partition: Arc<Partition>,
    /// The number of ordinary slots.
    ordinary: usize,
    /// The spare slot of the quarantine.
    spare: Option<OwnedSemaphorePermit>,
    /// Set for a claim from the quarantine, until its slots are split.
    groups: Option<Arc<QuarantineGroups>>,
    /// The membership of one timer in quarantine, after the split.
    member: Option<QuarantineMember>,
}

impl AttemptSlots {
    /// Takes up to `most` slots for a claim. For a claim from the quarantine (with `groups`), takes as many as its group
    /// has room for, with the spare slot first.
    pub(crate) fn take(
        partition: &Arc<Partition>,
        most: usize,
        groups: Option<&Arc<QuarantineGroups>>,
    ) -> Self {
        let most = groups.map_or(most, |groups| groups.room());
        let spare = groups.filter(|_| most > 0).and_then(|groups| groups.take_spare_slot());
        let ordinary =
            partition.limiter.take_slots(partition.topic.index, most - usize::from(spare.is_some()));
        Self { partition: partition.clone(), ordinary, spare, groups: groups.cloned(), member: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.ordinary + usize::from(self.spare.is_some())
    }

    /// Releases the slots that a claim did not need.
    pub(crate) fn release_unused(mut self) {
        let unused = std::mem::take(&mut self.ordinary);
        self.partition.limiter.release_unused_slots(self.partition.topic.index, unused);
    }

    /// Splits off one slot, for the attempt of a timer that has lost `lost` leases. A timer in quarantine joins the group.
    pub(crate) fn split_off_one(&mut self, lost: u8) -> Self {
        debug_assert!(self.count() > 0, "a claim never takes more timers than it has slots");
        let spare = self.spare.take();
        let ordinary = usize::from(spare.is_none()).min(self.ordinary);
        self.ordinary -= ordinary;
        let member = self.groups.as_ref().map(|groups| groups.join(lost));
        Self { partition: self.partition.clone(), ordinary, spare, groups: None, member }
    }
}

impl Drop for AttemptSlots {
    fn drop(&mut self) {
        self.partition.limiter.release_slots(self.partition.topic.index, self.ordinary);
    }
}

impl Job {
    /// Returns the deadline of this attempt, in ms.
    pub(crate) fn deadline(&self) -> u64 {
        self.state.deadline_after(&self.record)
    }

    /// Returns the job, unless its key was written back and its writer has created it again. Then settles the job as
    /// superseded.
    pub(crate) async fn unless_superseded(self) -> Option<Self> {
        if !write_back::is_superseded(&self.partition, &self.lease.held.key, self.deadline()).await {
            return Some(self);
        }
        self.partition.topic.stats.started(self.source, self.state.lost > 0);
        self.settle(AttemptResult::Superseded, &PanicSafeSpan::none());
        None
    }

    /// Runs the attempt and queues its end for settlement. The lease ends with the job, even after a panic.
    pub(crate) async fn run(self) {
        let (partition, key) = (self.partition.clone(), self.lease.held.key.clone());
        if let Err(panic) = AssertUnwindSafe(self.run_to_end()).catch_unwind().await {
            // Other code of the program has panicked, such as its metrics recorder.
            let (topic, key, panic) = (&partition.topic, Escaped(&key), message(panic));
            topic.stats.panics.add(1);
            error!(?topic, %key, panic, "a panic outside of the handler: the timer runs again when its lease ends");
        }
    }

    async fn run_to_end(self) {
        if self.lease.state.has_notice(LeaseNotice::Stop) {
            return self.release_unrun();
        }
        let (partition, lease) = (self.partition.clone(), self.lease.state.clone());
        lease.enter(Phase::Running, Some(partition.topic.config.timeout));
        partition.topic.stats.started(self.source, self.state.lost > 0);
        let about = self.metadata();
        partition.topic.meter.started(self.source, about.lateness);
        let span = self.span(&about);
        let ended = self.run_handler(Arc::new(about), &span).await;
        let slots = match ended {
            Some(ended) if self.lease.is_held() => self.settle(ended, &span),
            _ => {
                partition.topic.count_end(self.source, Ending::Lost);
                self.slots
            }
        };
        if slots.member.is_some() {
            // Keeps the slot until the end is settled, which sends this notice. Otherwise, the next timer in quarantine
            // could crash the listener before that, and cost this timer a lease. The wait is bounded, as a parked
            // partition must not block the quarantine of the others.
            let _ = tokio::time::timeout(QUARANTINE_SETTLE_TIMEOUT, lease.wait_for_notice(LeaseNotice::Lost))
                .await;
        }
    }

    /// Returns true if the attempt starts so late that its timer may have been taken or cancelled without notice. The
    /// process may have been suspended, or other handlers may have blocked its threads.
    pub(crate) fn is_doubtful(&self) -> bool {
        let reach = self.partition.topic.config.lookahead + DOUBTFUL_AFTER;
        !self.is_confirmed && (self.reading.arrived.elapsed() > reach || !self.lease.state.is_trusted())
    }

    /// Asks the server whether this listener still holds the lease, and returns the job if so.
    pub(crate) async fn confirm_lease(self) -> Option<Self> {
        // One confirmation is enough. If the attempt is late again, another one would put it off without end.
        self.lease.confirm().await.then_some(Self { is_confirmed: true, ..self })
    }

    /// Queues the release of the timer, whose attempt has not started.
    pub(crate) fn release_unrun(self) {
        if self.lease.is_held() {
            self.partition.settle_unrun(self.lease, AttemptEnd::Release);
        }
    }

    /// Counts how the attempt ended, decides what follows, and queues that for the settler. Returns the job's slots.
    fn settle(self, ended: AttemptResult, span: &PanicSafeSpan) -> AttemptSlots {
        let topic = &self.partition.topic;
        let ended = ended.with_backoff_delay(&topic.config, self.state.attempt);
        topic.count_end(self.source, ended.ending());
        let undecodable = match &ended {
            AttemptResult::Undecodable(undecodable) => Some(undecodable.error.to_string()),
            _ => None,
        };
        let failed = FailureReport::of(&ended, self.state.attempt, topic.config.attempts());
        let now = self.reading.at(Instant::now()).ms();
        let end = ended.decide(&topic.config, &self.record, &self.state, now);
        let failed = failed.map(|failed| failed.followed_by(end.as_ref()));
        if let Some(error) = undecodable {
            log_undecodable_payload(topic, &self.lease.held, &self.state, &error, end.as_ref());
        }
        let restore = write_back::value_to_write_back(topic, &self.record.payload, &self.state, end.as_ref());
        self.partition.outbox.push(Settlement { lease: self.lease, end, restore });
        // Logged last, so that nothing depends on the log's subscriber.
        if let Some(failed) = failed {
            failed.log(&self.partition.topic, span);
        }
        self.slots
    }

    /// Opens the tracing span of the attempt.
    fn span(&self, about: &LapseMetadata) -> PanicSafeSpan {
        let span = PanicSafeSpan::open(|| {
            info_span!(
                "lapse",
                topic = %self.partition.topic.config.name,
                key = %Escaped(&self.lease.held.key),
                attempt = about.attempt,
                source = about.source.as_str(),
                lateness_us = u64::try_from(about.lateness.as_micros()).unwrap_or(u64::MAX),
                traceparent = Empty,
            )
        });
        if let Some(trace) = self.trace {
            continue_trace(&self.partition.topic, &span, trace);
        }
        span
    }

    /// Decodes the payload, and runs the handler. Returns how the attempt ended, or `None` if its lease was lost.
    async fn run_handler(&self, about: Arc<LapseMetadata>, span: &PanicSafeSpan) -> Option<AttemptResult> {
        let handler = &self.partition.topic.handler;
        let start = || handler(about, self.record.payload.clone());
        let attempt = match catch_panic(start) {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(error)) => return Some(AttemptResult::Undecodable(Undecodable { error, panic: None })),
            Err(panic) => {
                let error = Error::new(ErrorKind::Payload, "the decoder of the payload panicked");
                return Some(AttemptResult::Undecodable(Undecodable { error, panic: Some(panic) }));
            }
        };
        let began = Instant::now();
        let ended = self.wait_for_handler(attempt.instrument(span.span())).await;
        self.partition.topic.meter.took(began.elapsed());
        ended
    }

    /// Awaits the handler until it ends, its timeout has passed, or a notice stops it. Returns how the attempt ended, or
    /// `None` if its lease was lost.
    async fn wait_for_handler(
        &self,
        attempt: tracing::instrument::Instrumented<AttemptFuture>,
    ) -> Option<AttemptResult> {
        let timeout = self.partition.topic.config.timeout;
        // Timers that the handler arms refer to this arming.
        let attempt = CURRENT_ARMING.scope(self.record.arming, CatchPanic::new(attempt));
        let attempt = tokio::time::timeout(timeout, attempt);
        let lease = &self.lease.state;
        let stopped = async {
            lease.wait_for_notice(LeaseNotice::Stop).await;
            if lease.has_notice(LeaseNotice::Lost) {
                let _ =
                    tokio::time::timeout(HANDLER_STOP_GRACE, lease.wait_for_notice(LeaseNotice::Gone)).await;
            }
        };
        let ended = tokio::select! {
            biased;
            ended = attempt => ended,
            () = stopped => {
                debug!("the handler was stopped: its lease was lost, or the listener stops");
                return self.lease.is_held().then_some(AttemptResult::Stopped);
            }
        };
        Some(match ended {
            Ok(Ok(Ok(outcome))) => AttemptResult::Returned(outcome),
            Ok(Ok(Err(failure))) => AttemptResult::Failed(Ending::Error, failure),
            Ok(Err(panic)) => AttemptResult::Failed(Ending::Panic, Failure::retry(panic)),
            Err(_) => {
                AttemptResult::Failed(Ending::Timeout, Failure::retry(format!("no end within {timeout:?}")))
            }
        })
    }

    /// Returns the metadata for the handler. The lateness counts until now.
    fn metadata(&self) -> LapseMetadata {
        let topic = &self.partition.topic;
        let now = self.reading.at(Instant::now());
        let late = now.0.saturating_sub(self.deadline().saturating_mul(1000));
        LapseMetadata {
            key: self.lease.held.key.clone(),
            captures: topic.config.pattern.matches(&self.lease.held.key),
            arming: self.record.arming,
            token: self.lease.held.token,
            attempt: self.state.attempt,
            max_attempts: topic.config.attempts(),
            deadline: self.deadline(),
            lateness: Duration::from_micros(late),
            source: self.source,
            redelivered: self.state.lost > 0,
            history: History::decode(&self.state.history).0,
            trace: self.trace,
            lease: self.lease.state.clone(),
        }
    }
}

/// Records the trace context of a lapse's producer in the span, and lets the program continue the trace.
fn continue_trace(topic: &RunningTopic, span: &PanicSafeSpan, trace: Traceparent) {
    let trace = trace.to_string();
    span.with(|span| {
        span.record("traceparent", &*trace);
        if let Some(Extract(extract)) = &topic.extract {
            extract(span, &trace);
        }
    });
}

/// The fields of the log line of a failed attempt.
struct FailureReport {
    kind: Ending,
    error: String,
    retry_in: Option<Duration>,
    attempts_left: u32,
}

impl FailureReport {
    /// Returns `None` unless the attempt has failed. `attempts` is the topic's limit.
    fn of(ended: &AttemptResult, attempt: u32, attempts: u32) -> Option<Self> {
        let AttemptResult::Failed(kind, failure) = ended else { return None };
        let (error, attempts_left) = (of_error(&failure.error), attempts.saturating_sub(attempt));
        Some(Self { kind: *kind, error, retry_in: None, attempts_left })
    }

    /// Adds what follows the attempt: a retry and its delay, or no further attempt.
    fn followed_by(self, end: Option<&AttemptEnd>) -> Self {
        match end {
            Some(AttemptEnd::Retry { delay, .. }) => {
                Self { retry_in: Some(Duration::from_millis(*delay)), ..self }
            }
            _ => Self { attempts_left: 0, ..self },
        }
    }

    /// Logs the failure within the span of the lapse, which names the key.
    fn log(self, topic: &RunningTopic, span: &PanicSafeSpan) {
        let Self { kind, error, retry_in, attempts_left } = self;
        let (kind, retry_in) = (kind.as_str(), retry_in.map(tracing::field::debug));
        span.within(|| info!(kind, error, retry_in, attempts_left, "attempt failed"));
        topic.last_failure.note_text(error);
    }
}

/// Logs an undecodable payload. Only the first and the last attempt are warnings, as many payloads may be retried often.
fn log_undecodable_payload(
    topic: &RunningTopic,
    held: &LeaseRef,
    state: &State,
    error: &str,
    end: Option<&AttemptEnd>,
) {
    let key = Escaped(&held.key);
    match end {
        Some(AttemptEnd::Retry { delay, .. }) if undecodable_since(state).is_none() => {
            let (retry_in, gives_up) = (Duration::from_millis(*delay), topic.config.undecodable_for);
            warn!(?topic, %key, error, ?retry_in, ?gives_up, "undecodable payload, put off: is it for another version of the program?");
        }
        Some(AttemptEnd::Retry { .. }) => debug!(?topic, %key, error, "undecodable payload, put off again"),
        _ => warn!(?topic, %key, error, "undecodable payload: dead letter"),
    }
}

/// Counts and logs a new dead letter.
pub(super) fn record_dead_letter(topic: &RunningTopic, held: &LeaseRef, reason: DeadReason, history: &[u8]) {
    let (key, last) = (Escaped(&held.key), History::decode(history).0.pop());
    let attempts = last.as_ref().map(|last| last.attempt);
    // The error of an undecodable payload may quote the payload. Another line logs the reason without the quote.
    let error = last.filter(|_| reason != DeadReason::Undecodable).map(|last| of_error(&last.error));
    topic.meter.dead(reason, 1);
    warn!(?topic, %key, reason = reason.as_str(), attempts, error, "dead letter");
}

#[cfg(test)]
mod tests {
    use super::Job;

    /// Each attempt is moved into its task. At 4 kB, the moves cost a twelfth of the throughput.
    #[test]
    fn what_an_attempt_rarely_does_takes_no_room_in_each() {
        fn size<F>(_: impl Fn(Job) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(Job::run) < 2048, "{} bytes", size(Job::run));
    }
}
