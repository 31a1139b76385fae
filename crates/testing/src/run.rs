//! What is known of one run of a handler.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use keylapse::Outcome;
use keylapse::handler::LapseSource;
use keylapse_connection::escape::Escaped;

/// One run of a handler: an attempt, as the [`TestBed`](super::TestBed) saw it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The name of the topic.
    pub topic: String,
    /// The key that lapsed.
    pub key: Bytes,
    /// The idempotency key: [`Lapse::id`](keylapse::Lapse::id).
    pub id: String,
    /// What names this run alone: [`Lapse::attempt_id`](keylapse::Lapse::attempt_id).
    pub attempt_id: String,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// What made the listener look.
    pub source: LapseSource,
    /// How long after its deadline it began.
    pub lateness: Duration,
    /// Whether it was begun before, by a listener that lost its lease.
    pub redelivered: bool,
    /// When it began: this long after the bed was made.
    pub began: Duration,
    /// When it ended, if it has.
    pub ended: Option<Duration>,
    /// How it ended; none while it runs.
    pub end: Option<End>,
}

/// How a [`Run`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The handler returned this.
    Returned(Outcome),
    /// The handler failed, with this error. What followed is the topic's policy.
    Failed(String),
    /// The handler panicked with this message, and that counts as a failure.
    Panicked(String),
    /// It was stopped: its [`timeout`](keylapse::Topic::timeout) was over, or the timer
    /// was not its own any more.
    Stopped,
    /// Its listener [crashed](super::Listening::crash).
    Crashed,
}

impl Run {
    /// Whether it ended with [`Outcome::Done`].
    pub fn is_done(&self) -> bool {
        self.end == Some(End::Returned(Outcome::Done))
    }

    /// Whether it failed, by an error or a panic.
    pub fn is_failed(&self) -> bool {
        matches!(self.end, Some(End::Failed(_) | End::Panicked(_)))
    }
}

impl fmt::Debug for Run {
    /// In one line, as a failed assertion prints many of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempt, lateness, began, .. } = self;
        let (key, source) = (Escaped(&self.key), self.source.as_str());
        write!(f, "{key} attempt {attempt} at {began:?} by {source}, {lateness:?} late: ")?;
        match &self.end {
            Some(end) => write!(f, "{end:?}"),
            None => f.write_str("running"),
        }
    }
}
