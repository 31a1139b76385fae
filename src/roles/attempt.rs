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
    AttemptResult, Groups, Lease, Partition, QuarantineMember, RunningTopic, Settlement, Undecodable,
    first_undecodable,
};
use crate::time::ClockReading;
use crate::trace::{Extract, Traceparent};
use crate::wire::{AttemptEnd, DeadReason, Ending, History, LeaseRef, Record, State};

/// The maximum time for which a quarantined timer keeps its slot until its end is settled.
const QUARANTINE_SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// An attempt that starts this long after the lookahead of its claim first checks that its timer was not cancelled.
const LATE: Duration = Duration::from_millis(100);

/// A claimed timer, ready to run.
pub(crate) struct Job {
    pub(crate) partition: Arc<Partition>,
    pub(crate) lease: Lease,
    pub(crate) record: Record,
    pub(crate) trace: Option<Traceparent>,
    pub(crate) state: State,
    pub(crate) reading: ClockReading,
    pub(crate) source: LapseSource,
    /// Set once the server has confirmed the lease of a late attempt.
    pub(crate) confirmed: bool,
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
    /// The groups of the quarantine, for a claim from there.
    groups: Option<Arc<Groups>>,
    member: Option<QuarantineMember>,
}

impl AttemptSlots {
    /// Takes up to `most` slots for a claim. For a claim from the quarantine, the room of its group is the limit.
    pub(crate) fn take(partition: &Arc<Partition>, most: usize, groups: Option<&Arc<Groups>>) -> Self {
        let most = groups.map_or(most, |groups| groups.room());
        let spare = groups.filter(|_| most > 0).and_then(|groups| groups.spare());
        let ordinary = partition.limiter.take(partition.topic.index, most - usize::from(spare.is_some()));
        Self { partition: partition.clone(), ordinary, spare, groups: groups.cloned(), member: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.ordinary + usize::from(self.spare.is_some())
    }

    /// Releases the slots that a claim did not need.
    pub(crate) fn give_back_unused(mut self) {
        let unused = std::mem::take(&mut self.ordinary);
        self.partition.limiter.give_back_unused(self.partition.topic.index, unused);
    }

    /// Splits off one slot, for an attempt of a timer that has lost `lost` leases.
    pub(crate) fn split(&mut self, lost: u8) -> Self {
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
    /// Returns the current deadline, in ms.
    pub(crate) fn deadline(&self) -> u64 {
        self.state.deadline_after(&self.record)
    }

    /// Returns the job. If the writer of a key that was written back has created the key again, settles it as
    /// superseded.
    pub(crate) async fn settle_if_superseded(self) -> Option<Self> {
        if !write_back::writer_came_first(&self.partition, &self.lease.held.key, self.deadline()).await {
            return Some(self);
        }
        self.partition.topic.stats.started(self.source, self.state.lost > 0);
        self.settle(AttemptResult::Superseded, &PanicSafeSpan::none());
        None
    }

    /// Runs the attempt and queues its end for settlement. The lease ends with the job, even after a panic.
    pub(crate) async fn run(self) {
        let (partition, key) = (self.partition.clone(), self.lease.held.key.clone());
        if let Err(panic) = AssertUnwindSafe(self.run_to_its_end()).catch_unwind().await {
            // Other code of the program has panicked, such as its metrics recorder.
            let (topic, key, panic) = (&partition.topic, Escaped(&key), message(panic));
            topic.stats.panics.add(1);
            error!(?topic, %key, panic, "a panic outside of the handler: the timer runs again when its lease ends");
        }
    }

    async fn run_to_its_end(self) {
        if self.lease.state.has_notice(LeaseNotice::Stop) {
            return self.release_unrun();
        }
        let (partition, lease) = (self.partition.clone(), self.lease.state.clone());
        lease.enter(Phase::Running, Some(partition.topic.config.timeout));
        partition.topic.stats.started(self.source, self.state.lost > 0);
        let about = self.about();
        partition.topic.meter.started(self.source, about.lateness);
        let span = self.span(&about);
        let ended = self.attempt(Arc::new(about), &span).await;
        let permit = match ended {
            Some(ended) if self.lease.is_held() => self.settle(ended, &span),
            _ => {
                partition.topic.ended(self.source, Ending::Lost);
                self.slots
            }
        };
        if permit.member.is_some() {
            // Keeps the slot until the end is settled. Otherwise, the next quarantined timer could crash the listener
            // and cost this one a lease. The wait is bounded, as a parked partition must not block the quarantine of
            // the others.
            let _ = tokio::time::timeout(QUARANTINE_SETTLE_TIMEOUT, lease.wait_for_notice(LeaseNotice::Lost))
                .await;
        }
    }

    /// Returns whether the timer may have been taken or cancelled since its claim without notice. The process was
    /// suspended, or other handlers blocked its threads.
    pub(crate) fn is_doubtful(&self) -> bool {
        let reach = self.partition.topic.config.lookahead + LATE;
        !self.confirmed && (self.reading.arrived.elapsed() > reach || !self.lease.state.is_trusted())
    }

    /// Waits until the server has confirmed the lease. Returns the job if it has.
    pub(crate) async fn confirmed(self) -> Option<Self> {
        // One confirmation is enough. If each turn came late, the attempt would never start.
        self.lease.confirmed().await.then_some(Self { confirmed: true, ..self })
    }

    /// Releases the timer without an attempt.
    pub(crate) fn release_unrun(self) {
        if self.lease.is_held() {
            self.partition.end(self.lease, AttemptEnd::Release);
        }
    }

    /// Counts how the attempt ended, decides what follows, and queues that for the settler.
    fn settle(self, ended: AttemptResult, span: &PanicSafeSpan) -> AttemptSlots {
        let topic = &self.partition.topic;
        let ended = ended.by_policy(&topic.config, self.state.attempt);
        topic.ended(self.source, ended.ending());
        let undecodable = match &ended {
            AttemptResult::Undecodable(undecodable) => Some(undecodable.error.to_string()),
            _ => None,
        };
        let failed = FailureReport::of(&ended, self.state.attempt, topic.config.attempts());
        let now = self.reading.at(Instant::now()).ms();
        let end = ended.decide(&topic.config, &self.record, &self.state, now);
        let failed = failed.map(|failed| failed.followed_by(end.as_ref()));
        if let Some(error) = undecodable {
            undecodable_payload(topic, &self.lease.held, &self.state, &error, end.as_ref());
        }
        let restore = write_back::value(topic, &self.record.payload, &self.state, end.as_ref());
        self.partition.outbox.put(Settlement { lease: self.lease, end, restore });
        // Logged last, so that nothing depends on the log's subscriber.
        if let Some(failed) = failed {
            failed.log(&self.partition.topic, span);
        }
        self.slots
    }

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

    /// Runs the handler. Returns how the attempt ended, or `None` if its lease was lost.
    async fn attempt(&self, about: Arc<LapseMetadata>, span: &PanicSafeSpan) -> Option<AttemptResult> {
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
        let ended = self.supervise(attempt.instrument(span.span())).await;
        self.partition.topic.meter.took(began.elapsed());
        ended
    }

    async fn supervise(
        &self,
        attempt: tracing::instrument::Instrumented<AttemptFuture>,
    ) -> Option<AttemptResult> {
        let timeout = self.partition.topic.config.timeout;
        // A timer that the handler arms for its own key refers to this arming.
        let attempt = CURRENT_ARMING.scope(self.record.arming, CatchPanic::new(attempt));
        let attempt = tokio::time::timeout(timeout, attempt);
        let lease = &self.lease.state;
        let parting = async {
            lease.wait_for_notice(LeaseNotice::Stop).await;
            if lease.has_notice(LeaseNotice::Lost) {
                let _ =
                    tokio::time::timeout(HANDLER_STOP_GRACE, lease.wait_for_notice(LeaseNotice::Gone)).await;
            }
        };
        let ended = tokio::select! {
            biased;
            ended = attempt => ended,
            () = parting => {
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

    fn about(&self) -> LapseMetadata {
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

/// The log line of a failed attempt.
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

    /// Adds what follows the attempt.
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

/// Logs an undecodable payload. Only the first and the last try are warnings, as many payloads may be retried often.
fn undecodable_payload(
    topic: &RunningTopic,
    held: &LeaseRef,
    state: &State,
    error: &str,
    end: Option<&AttemptEnd>,
) {
    let key = Escaped(&held.key);
    match end {
        Some(AttemptEnd::Retry { delay, .. }) if first_undecodable(state).is_none() => {
            let (retry_in, gives_up) = (Duration::from_millis(*delay), topic.config.undecodable_for);
            warn!(?topic, %key, error, ?retry_in, ?gives_up, "undecodable payload, put off: is it for another version of the program?");
        }
        Some(AttemptEnd::Retry { .. }) => debug!(?topic, %key, error, "undecodable payload, put off again"),
        _ => warn!(?topic, %key, error, "undecodable payload: dead letter"),
    }
}

/// Counts and logs a new dead letter.
pub(super) fn dead_letter(topic: &RunningTopic, held: &LeaseRef, reason: DeadReason, history: &[u8]) {
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
