//! The log of all handler runs.

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

/// All runs of a bed, in the order in which they started. Clones share the log. It keeps every run, because a test ends.
#[derive(Clone, Debug)]
pub(super) struct RunLog {
    began: Instant,
    state: Arc<Mutex<RunLogState>>,
    activity: Arc<ActivitySignal>,
}

#[derive(Debug, Default)]
struct RunLogState {
    /// Readers clone the `Arc`, so that they do not hold the lock while they read.
    runs: Arc<Vec<HandlerRun>>,
    /// The first panic that was not reported to the test.
    panicked: Option<HandlerRun>,
}

/// A run that may still be going on.
#[derive(Debug)]
pub(super) struct OpenRun {
    log: RunLog,
    index: usize,
}

impl RunLog {
    pub(super) fn new(activity: Arc<ActivitySignal>) -> Self {
        Self { began: Instant::now(), state: Arc::default(), activity }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Records the start of a run.
    pub(super) fn begin(&self, topic: &str, lapse: &Lapse<()>) -> OpenRun {
        let mut state = lock(&self.state);
        Arc::make_mut(&mut state.runs).push(HandlerRun {
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
        let index = state.runs.len() - 1;
        drop(state);
        self.activity.record_activity();
        OpenRun { log: self.clone(), index }
    }

    pub(super) fn runs(&self) -> Arc<Vec<HandlerRun>> {
        lock(&self.state).runs.clone()
    }

    /// Returns whether a panic was not reported yet.
    pub(super) fn has_panic(&self) -> bool {
        lock(&self.state).panicked.is_some()
    }

    pub(super) fn take_panic(&self) -> Option<HandlerRun> {
        lock(&self.state).panicked.take()
    }
}

impl OpenRun {
    /// Records the end of the run. Only the first end counts.
    pub(super) fn end(&self, end: RunEnd) {
        let mut state = lock(&self.log.state);
        let run = &mut Arc::make_mut(&mut state.runs)[self.index];
        if run.end.is_some() {
            return;
        }
        (run.ended, run.end) = (Some(self.log.began.elapsed()), Some(end));
        if matches!(run.end, Some(RunEnd::Panicked(_))) {
            let run = run.clone();
            state.panicked.get_or_insert(run);
        }
        drop(state);
        self.log.activity.record_activity();
    }
}

/// A run of a handler that a [`TestBed`](super::TestBed) has recorded: one attempt.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerRun {
    /// The name of the topic.
    pub topic: String,
    /// The key of the timer.
    pub key: Bytes,
    /// The ID of the arming, for use as an idempotency key: [`Lapse::id`](keylapse::Lapse::id).
    pub id: String,
    /// The ID of this run: [`Lapse::attempt_id`](keylapse::Lapse::attempt_id).
    pub attempt_id: String,
    /// The number of the attempt, counted from 1.
    pub attempt: u32,
    /// How the listener found the timer.
    pub source: LapseSource,
    /// How long after its deadline the attempt started.
    pub lateness: Duration,
    /// True if this attempt started before, in a listener that lost its lease.
    pub redelivered: bool,
    /// When the run started, since the bed was created.
    pub began: Duration,
    /// When the run ended, since the bed was created. `None` while it runs.
    pub ended: Option<Duration>,
    /// How the run ended. `None` while it runs.
    pub end: Option<RunEnd>,
}

/// How a [`HandlerRun`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// The handler returned this outcome.
    Returned(Outcome),
    /// The handler failed with this error. The topic's policy decides what follows.
    Failed(String),
    /// The handler panicked with this message. A panic counts as a failure.
    Panicked(String),
    /// The listener dropped the attempt before its end. Its [`timeout`](keylapse::Topic::timeout) or the
    /// [`grace`](keylapse::ListenerBuilder::grace) of a shutdown was over, or the listener no longer held the timer.
    Stopped,
    /// The listener [crashed](super::RunningListener::crash).
    Crashed,
}

impl HandlerRun {
    /// Returns whether the run ended with [`Outcome::Done`].
    pub fn is_done(&self) -> bool {
        self.end == Some(RunEnd::Returned(Outcome::Done))
    }

    /// Returns whether the run ended with an error or a panic.
    pub fn is_failed(&self) -> bool {
        matches!(self.end, Some(RunEnd::Failed(_) | RunEnd::Panicked(_)))
    }
}

impl fmt::Debug for HandlerRun {
    /// Writes one line, because a failed assertion prints many runs.
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
