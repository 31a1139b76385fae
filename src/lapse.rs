//! What a handler receives.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::SetOnce;

use crate::escape::Escaped;
use crate::id::ArmingId;
use crate::pattern::Captures;
use crate::time::system_time;
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
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) deadline: u64,
    pub(crate) lateness: Duration,
    pub(crate) source: LapseSource,
    pub(crate) redelivered: bool,
    pub(crate) history: Vec<FailedAttempt>,
    /// Set when the lease is lost.
    pub(crate) lost: Arc<SetOnce<()>>,
}

impl About {
    /// The idempotency key of the attempt.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", self.arming, self.attempt)
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

    /// A stable id of this attempt, to be passed on as an idempotency key:
    /// arming id and attempt number. It is the same when the attempt runs again
    /// because a lease was lost, another at a retry, and contains nothing but
    /// `[0-9a-f-]`. A receiver for whom retries of one arming are the same thing,
    /// too, goes by [`arming`](Lapse::arming).
    pub fn id(&self) -> String {
        self.about.id()
    }

    /// The arming that this lapse belongs to.
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

    /// Whether the timer is still ours: `false` once its lease was lost, it was
    /// cancelled, or the listener is stopped. What the handler returns then
    /// counts for nothing.
    pub fn has_lease(&self) -> bool {
        !self.about.lost.initialized()
    }

    /// Returns once the timer is no longer ours. The handler has about a second
    /// from then on before it is dropped.
    pub async fn lease_lost(&self) {
        self.about.lost.wait().await;
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
