//! What a handler receives, and what made the listener look so that it was found.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::escape::Escaped;
use crate::id::{ArmingId, Token};
use crate::lease::{LeaseState, Told};
use crate::pattern::Captures;
use crate::time::system_time;
use crate::trace::Traceparent;
use crate::wire::FailedAttempt;

tokio::task_local! {
    /// The arming whose attempt this task runs: what it arms for its own key dies with it, should it never end.
    pub(crate) static RUNNING: ArmingId;
}

/// One occurrence of a timer coming due.
pub struct Lapse<T> {
    pub(crate) about: Arc<About>,
    pub(crate) payload: T,
}

/// Everything about a lapse but its payload.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) key: Bytes,
    pub(crate) captures: Option<Captures>,
    pub(crate) arming: ArmingId,
    /// Of the claim, which may be of many timers.
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

impl About {
    /// What names this run of the handler, and no other.
    pub(crate) fn attempt_id(&self) -> String {
        format!("{}-{}", self.arming, self.token)
    }
}

impl<T> Lapse<T> {
    /// What was armed with the timer.
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// What was armed with the timer, taken out.
    pub fn into_payload(self) -> T {
        self.payload
    }

    /// The key that has lapsed.
    pub fn key(&self) -> &[u8] {
        &self.about.key
    }

    /// What the pattern captured under this name, if it is UTF-8.
    pub fn capture(&self, name: &str) -> Option<&str> {
        self.about.captures.as_ref()?.get_str(name)
    }

    /// Everything that the pattern captured, as bytes; `None` for a key that
    /// was armed under another pattern of the same topic.
    pub fn captures(&self) -> Option<&Captures> {
        self.about.captures.as_ref()
    }

    /// Which attempt this is, from 1. After a lost lease it is the same again.
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// Whether a failure of this attempt ends in the dead letters.
    pub fn is_last_attempt(&self) -> bool {
        self.about.attempt >= self.about.max_attempts
    }

    /// The id of what has come due, to be passed on as an idempotency key: that of
    /// its [arming](Self::arming), in sixteen hexadecimal digits. It is the same for all
    /// attempts: retries, those after a crash, and those of a dead letter that is
    /// [replayed](crate::Schedule::replay). So a receiver that did its work and answered
    /// too late, or not well, does not do it twice. Another arm of the key has
    /// another, as have [`Outcome::Again`](crate::Outcome::Again), a
    /// [`replay_as_new`](crate::Schedule::replay_as_new), and each expiry of an attached key.
    pub fn id(&self) -> String {
        self.about.arming.to_string()
    }

    /// The id of this very run, which no other has, not even the same
    /// [`attempt`](Self::attempt) after a lost lease: [`id`](Self::id), a hyphen, and the token
    /// of the claim. It is for logs and traces, and no idempotency key.
    pub fn attempt_id(&self) -> String {
        self.about.attempt_id()
    }

    /// The arming that this lapse belongs to: [`id`](Self::id) as a value.
    pub fn arming(&self) -> ArmingId {
        self.about.arming
    }

    /// The deadline of this attempt, by the server's clock, to the millisecond.
    pub fn deadline(&self) -> SystemTime {
        system_time(self.about.deadline)
    }

    /// How long after its deadline the attempt was started: at least this, by
    /// the server's clock. It is never negative.
    pub fn lateness(&self) -> Duration {
        self.about.lateness
    }

    /// What made the listener look.
    pub fn source(&self) -> LapseSource {
        self.about.source
    }

    /// Whether this attempt was begun before, by a listener that lost its lease.
    pub fn is_redelivered(&self) -> bool {
        self.about.redelivered
    }

    /// The failed attempts before this one, at most ten, oldest first.
    pub fn history(&self) -> &[FailedAttempt] {
        &self.about.history
    }

    /// Where the trace of whoever armed it stands, as a W3C `traceparent`, if that came with the arm: see
    /// [`Schedule::trace`](crate::Schedule::trace).
    pub fn traceparent(&self) -> Option<String> {
        self.about.trace.map(|trace| trace.to_string())
    }

    /// Whether the timer is still ours: `false` once its lease was lost or it was cancelled, once it may be
    /// lost, and when what [`run_until`](crate::Listener::run_until) has returned is dropped. What the handler
    /// returns then counts for nothing.
    ///
    /// No two attempts of one arming ever run while both see `true`: a lease is trusted for nine tenths of its
    /// length, from when the request was sent that last extended it, by a clock that goes on while the machine
    /// is suspended (where the system has one). The server's clock is the exception: if it is set forward, it ends
    /// leases early.
    pub fn has_lease(&self) -> bool {
        self.about.lease.is_ours()
    }

    /// Returns once the timer is no longer ours. The handler has about a second
    /// from then on before it is dropped.
    pub async fn lease_lost(&self) {
        self.about.lease.until_told(Told::Lost).await;
    }
}

impl<T> fmt::Debug for Lapse<T> {
    /// Without the payload, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lapse")
            .field("key", &format_args!("{}", Escaped(&self.about.key)))
            .field("attempt", &self.about.attempt)
            .field("source", &self.about.source)
            .finish_non_exhaustive()
    }
}

/// What made the listener look, so that this lapse was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LapseSource {
    /// The listener knew the deadline and woke up for it.
    Timer,
    /// An expired key was announced.
    Notification,
    /// A sweep of the index.
    Sweep,
}

impl LapseSource {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Notification => "notification",
            Self::Sweep => "sweep",
        }
    }
}
