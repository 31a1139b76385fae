//! The argument of a handler.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::escape::Escaped;
use crate::id::{ArmingId, Token};
use crate::lease::{LeaseNotice, LeaseState};
use crate::pattern::Captures;
use crate::time::system_time;
use crate::trace::Traceparent;
use crate::wire::FailedAttempt;

tokio::task_local! {
    /// The arming whose attempt runs in this task. A timer that the handler arms for its own key refers to it. If the
    /// attempt brings down its listener for the last time, the new timer becomes a dead letter too.
    pub(crate) static CURRENT_ARMING: ArmingId;
}

/// One occurrence of a due timer: the argument of a handler.
///
/// ```
/// use keylapse::{Done, Lapse};
///
/// # async fn pay_out(_: &str, _: u64, _: &str) -> std::io::Result<()> { Ok(()) }
/// async fn refund(lapse: Lapse<u64>) -> std::io::Result<Done> {
///     let order = lapse.capture("id").unwrap_or_default();
///     println!("refunding order {order}, attempt {}, {:?} late", lapse.attempt(), lapse.lateness());
///     let idempotency_key = lapse.id(); // all attempts share it
///     pay_out(order, *lapse.payload(), &idempotency_key).await?;
///     Ok(Done)
/// }
/// ```
pub struct Lapse<T> {
    pub(crate) about: Arc<LapseMetadata>,
    pub(crate) payload: T,
}

/// The parts of a lapse without its payload.
#[derive(Debug)]
pub(crate) struct LapseMetadata {
    pub(crate) key: Bytes,
    pub(crate) captures: Option<Captures>,
    pub(crate) arming: ArmingId,
    /// The token of the claim. Timers that were claimed together share it.
    pub(crate) token: Token,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) deadline: u64,
    pub(crate) lateness: Duration,
    pub(crate) source: LapseSource,
    pub(crate) redelivered: bool,
    pub(crate) history: Vec<FailedAttempt>,
    pub(crate) trace: Option<Traceparent>,
    pub(crate) lease: Arc<LeaseState>,
}

impl LapseMetadata {
    /// Returns the ID of this run of the handler.
    pub(crate) fn attempt_id(&self) -> String {
        format!("{}-{}", self.arming, self.token)
    }
}

impl<T> Lapse<T> {
    /// Returns the payload that was armed with the timer.
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Returns the payload and drops the rest of the lapse.
    pub fn into_payload(self) -> T {
        self.payload
    }

    /// Returns the key of the timer.
    pub fn key(&self) -> &[u8] {
        &self.about.key
    }

    /// Returns the part of the key that the pattern captured under this name, or `None` if it is not UTF-8.
    pub fn capture(&self, name: &str) -> Option<&str> {
        self.about.captures.as_ref()?.get_str(name)
    }

    /// Returns all captures of the pattern as bytes, or `None` if the key was armed under another pattern of the
    /// topic.
    pub fn captures(&self) -> Option<&Captures> {
        self.about.captures.as_ref()
    }

    /// Returns the number of this attempt, counted from 1. An attempt that runs again after a lost lease keeps its
    /// number.
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// Returns whether a failure of this attempt makes the timer a dead letter.
    pub fn is_last_attempt(&self) -> bool {
        self.about.attempt >= self.about.max_attempts
    }

    /// Returns the ID of the timer's [arming](Self::arming) in 16 hexadecimal digits. Pass it to other services as an
    /// idempotency key.
    ///
    /// All attempts of an arming share the ID: retries, attempts after a crash, and those of a dead letter that is
    /// [replayed](crate::Schedule::replay). A receiver that has done its work but answered too late can recognize the
    /// repetition.
    ///
    /// A new arming has a new ID: another arm of the key, [`Outcome::Again`](crate::Outcome::Again),
    /// [`replay_as_new`](crate::Schedule::replay_as_new), and each expiry of an attached key.
    pub fn id(&self) -> String {
        self.about.arming.to_string()
    }

    /// Returns the ID of this run: [`id`](Self::id), a hyphen, and the token of the claim. No other run has this ID,
    /// not even the same [`attempt`](Self::attempt) after a lost lease. Use it in logs and traces, not as an
    /// idempotency key.
    pub fn attempt_id(&self) -> String {
        self.about.attempt_id()
    }

    /// Returns the arming of this lapse, which is [`id`](Self::id) as a value.
    pub fn arming(&self) -> ArmingId {
        self.about.arming
    }

    /// Returns the deadline of this attempt, by the server's clock, to the millisecond.
    pub fn deadline(&self) -> SystemTime {
        system_time(self.about.deadline)
    }

    /// Returns how long after its deadline the attempt started, by the server's clock. It is a lower bound and never
    /// negative.
    pub fn lateness(&self) -> Duration {
        self.about.lateness
    }

    /// Returns how the listener found the timer.
    pub fn source(&self) -> LapseSource {
        self.about.source
    }

    /// Returns whether this attempt started before, in a listener that lost its lease.
    pub fn is_redelivered(&self) -> bool {
        self.about.redelivered
    }

    /// Returns the failed attempts before this one, at most ten, oldest first.
    pub fn history(&self) -> &[FailedAttempt] {
        &self.about.history
    }

    /// Returns the trace context of the program that armed the timer, as a W3C `traceparent`. It is `None` if the arm
    /// had none; see [`Schedule::trace`](crate::Schedule::trace).
    pub fn traceparent(&self) -> Option<String> {
        self.about.trace.map(|trace| trace.to_string())
    }

    /// Returns whether this attempt still holds the timer's lease. If not, the handler's result is discarded.
    ///
    /// It is `false` after the lease was lost, after the timer was cancelled, and after the future of
    /// [`run_until`](crate::Listener::run_until) was dropped.
    ///
    /// Two attempts of one arming never run while both return `true`. A lease is trusted for nine tenths of its
    /// duration, counted from when the last claim or renewal was sent. The clock for this continues while the machine
    /// is suspended, if the system has such a clock. If the server's clock is set forward, leases end early
    /// and two attempts may overlap.
    pub fn has_lease(&self) -> bool {
        self.about.lease.is_ours()
    }

    /// Waits until this attempt has lost the timer's lease. The handler is dropped about one second later.
    pub async fn lease_lost(&self) {
        self.about.lease.wait_for_notice(LeaseNotice::Lost).await;
    }
}

impl<T> fmt::Debug for Lapse<T> {
    /// Omits the payload, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lapse")
            .field("key", &format_args!("{}", Escaped(&self.about.key)))
            .field("attempt", &self.about.attempt)
            .field("source", &self.about.source)
            .finish_non_exhaustive()
    }
}

/// How a listener found a due timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LapseSource {
    /// The listener had the deadline and woke up for it.
    Timer,
    /// Redis announced that a key expired.
    Notification,
    /// A sweep read the index.
    Sweep,
}

impl LapseSource {
    /// Returns the word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Notification => "notification",
            Self::Sweep => "sweep",
        }
    }
}
