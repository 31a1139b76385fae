//! What a handler can say at the end of an attempt.

mod failure_error;

pub use failure_error::FailureError;

use std::fmt;
use std::time::Duration;

use crate::escape::text_of;

/// The attempt went well.
///
/// What most handlers return: `Ok(Done)`. Others return an [`Outcome`], or `()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done;

/// How an attempt that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The timer is finished.
    Done,
    /// Finished, and to run again after this long, as a new arming whose
    /// attempts start over: a recurring timer.
    Again(Duration),
    /// Not now: the same attempt again after this long. Uses up no attempt, but
    /// a topic limits how often a timer can be snoozed.
    Snooze(Duration),
    /// Finished without having done anything; counted apart.
    Drop,
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Done> for Outcome {
    fn from(Done: Done) -> Self {
        Self::Done
    }
}

/// Why an attempt failed, and whether there is to be another.
///
/// Any error becomes a failure through `?` and is retried by the topic's
/// policy: what implements [`Error`](std::error::Error) (with `Send`, `Sync` and
/// `'static`), `anyhow`'s and boxed ones, a `String`, a `&str`. A handler may as
/// well return one of these itself. Its text is kept, with those of up to a hundred
/// causes, cut in the middle to 512 bytes, in the timer's history and its dead letter,
/// and logged, cut to 1 KiB: do not put secrets there.
///
/// `Failure` is no `Error` itself; [`into_error`](Self::into_error) makes it one
/// where a function returns other errors, and it is found again inside of them.
///
/// ```
/// use std::time::Duration;
/// use keylapse::{Done, Failure, Lapse};
///
/// async fn notify(lapse: Lapse<String>) -> Result<Done, Failure> {
///     let url = lapse.payload();
///     if !url.starts_with("https://") {
///         return Err(Failure::dead("not an https address")); // never again
///     }
///     let port: u16 = url.rsplit(':').next().unwrap_or("443").parse()?; // by policy
///     if port < 1024 {
///         return Err(Failure::retry_after(Duration::from_secs(5), "busy"));
///     }
///     Ok(Done)
/// }
/// ```
pub struct Failure {
    pub(crate) then: Then,
    pub(crate) error: String,
}

/// What is to follow a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    ByPolicy,
    /// By the policy, but not before this long.
    NoSooner(Duration),
    After(Duration),
    Dead,
}

impl Then {
    /// How long the next attempt has to wait, whatever the policy says.
    pub(crate) fn least(self) -> Duration {
        match self {
            Self::NoSooner(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}

impl Failure {
    /// Retried by the topic's policy.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self { then: Then::ByPolicy, error: text_of(error) }
    }

    /// Retried after this long, if the policy allows another attempt.
    pub fn retry_after(delay: Duration, error: impl fmt::Display) -> Self {
        Self { then: Then::After(delay), error: text_of(error) }
    }

    /// Retried by the topic's policy, but not before this long. It is for what a service asks for, as by `Retry-After`:
    /// that can put the next attempt off, and cannot bring it forward.
    pub fn retry_no_sooner(delay: Duration, error: impl fmt::Display) -> Self {
        Self { then: Then::NoSooner(delay), error: text_of(error) }
    }

    /// Permanent: the timer ends in the dead letters.
    pub fn dead(error: impl fmt::Display) -> Self {
        Self { then: Then::Dead, error: text_of(error) }
    }

    /// Whether there is to be no other attempt, whatever the policy says.
    pub fn is_permanent(&self) -> bool {
        self.then == Then::Dead
    }

    /// After how long the next attempt was asked for, by [`retry_after`](Self::retry_after);
    /// `None` leaves it to the policy, or there is to be none.
    pub fn delay(&self) -> Option<Duration> {
        match self.then {
            Then::After(delay) => Some(delay),
            Then::ByPolicy | Then::NoSooner(_) | Then::Dead => None,
        }
    }

    /// Returns what went wrong; a text of more than 8 KiB without its middle.
    pub fn message(&self) -> &str {
        &self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({:?}: {})", self.then, self.error)
    }
}
