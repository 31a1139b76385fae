//! The ledger of all runs.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::activity::ActivitySignal;
use keylapse::handler::LapseSource;
use keylapse::{Lapse, Outcome};
use keylapse_connection::escape::Escaped;
use keylapse_connection::lock::lock;

/// All runs of a bed, in the order in which they began. Clones share it. It keeps
/// them all: a test is expected to end.
#[derive(Clone, Debug)]
pub(super) struct RunLog {
    began: Instant,
    book: Arc<Mutex<RunLogState>>,
    pulse: Arc<ActivitySignal>,
}

#[derive(Debug, Default)]
struct RunLogState {
    /// Shared with readers, so that what they do meanwhile cannot wait for them.
    runs: Arc<Vec<HandlerRun>>,
    /// The first panic that the test was not told of.
    panicked: Option<HandlerRun>,
}

/// One run, to be ended.
#[derive(Debug)]
pub(super) struct OpenRun {
    ledger: RunLog,
    place: usize,
}

impl RunLog {
    pub(super) fn new(pulse: Arc<ActivitySignal>) -> Self {
        Self { began: Instant::now(), book: Arc::default(), pulse }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// A run begins.
    pub(super) fn begin(&self, topic: &str, lapse: &Lapse<()>) -> OpenRun {
        let mut book = lock(&self.book);
        Arc::make_mut(&mut book.runs).push(HandlerRun {
            topic: topic.to_owned(),
            key: Bytes::copy_from_slice(lapse.key()),
            id: lapse.id(),
            attempt_id: lapse.attempt_id(),
            attempt: lapse.attempt(),
            source: lapse.source(),
            lateness: lapse.lateness(),
            redelivered: lapse.is_redelivered(),
            began: self.began.elapsed(),
            ended: None,
            end: None,
        });
        let place = book.runs.len() - 1;
        drop(book);
        self.pulse.record_activity();
        OpenRun { ledger: self.clone(), place }
    }

    /// All runs so far.
    pub(super) fn runs(&self) -> Arc<Vec<HandlerRun>> {
        lock(&self.book).runs.clone()
    }

    /// Whether there was a panic that nobody has taken.
    pub(super) fn has_panic(&self) -> bool {
        lock(&self.book).panicked.is_some()
    }

    pub(super) fn take_panic(&self) -> Option<HandlerRun> {
        lock(&self.book).panicked.take()
    }
}

impl OpenRun {
    /// The run has ended. Only the first end counts.
    pub(super) fn end(&self, end: RunEnd) {
        let mut book = lock(&self.ledger.book);
        let run = &mut Arc::make_mut(&mut book.runs)[self.place];
        if run.end.is_some() {
            return;
        }
        (run.ended, run.end) = (Some(self.ledger.began.elapsed()), Some(end));
        if matches!(run.end, Some(RunEnd::Panicked(_))) {
            let run = run.clone();
            book.panicked.get_or_insert(run);
        }
        drop(book);
        self.ledger.pulse.record_activity();
    }
}

/// One run of a handler: an attempt, as the [`TestBed`](super::TestBed) saw it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerRun {
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
    pub end: Option<RunEnd>,
}

/// How a [`Run`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
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

impl HandlerRun {
    /// Whether it ended with [`Outcome::Done`].
    pub fn is_done(&self) -> bool {
        self.end == Some(RunEnd::Returned(Outcome::Done))
    }

    /// Whether it failed, by an error or a panic.
    pub fn is_failed(&self) -> bool {
        matches!(self.end, Some(RunEnd::Failed(_) | RunEnd::Panicked(_)))
    }
}

impl fmt::Debug for HandlerRun {
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
