//! The ledger of all runs.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::time::Instant;

use crate::pulse::Pulse;
use crate::run::{End, Run};
use keylapse::Lapse;
use keylapse_connection::lock::lock;

/// All runs of a bed, in the order in which they began. Clones share it. It keeps
/// them all: a test is expected to end.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    began: Instant,
    book: Arc<Mutex<Book>>,
    pulse: Arc<Pulse>,
}

#[derive(Debug, Default)]
struct Book {
    /// Shared with readers, so that what they do meanwhile cannot wait for them.
    runs: Arc<Vec<Run>>,
    /// The first panic that the test was not told of.
    panicked: Option<Run>,
}

/// One run, to be ended.
#[derive(Debug)]
pub(super) struct Entry {
    ledger: Ledger,
    place: usize,
}

impl Ledger {
    pub(super) fn new(pulse: Arc<Pulse>) -> Self {
        Self { began: Instant::now(), book: Arc::default(), pulse }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// A run begins.
    pub(super) fn begin(&self, topic: &str, lapse: &Lapse<()>) -> Entry {
        let mut book = lock(&self.book);
        Arc::make_mut(&mut book.runs).push(Run {
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
        self.pulse.beat();
        Entry { ledger: self.clone(), place }
    }

    /// All runs so far.
    pub(super) fn runs(&self) -> Arc<Vec<Run>> {
        lock(&self.book).runs.clone()
    }

    /// Whether there was a panic that nobody has taken.
    pub(super) fn has_panic(&self) -> bool {
        lock(&self.book).panicked.is_some()
    }

    pub(super) fn take_panic(&self) -> Option<Run> {
        lock(&self.book).panicked.take()
    }
}

impl Entry {
    /// The run has ended. Only the first end counts.
    pub(super) fn end(&self, end: End) {
        let mut book = lock(&self.ledger.book);
        let run = &mut Arc::make_mut(&mut book.runs)[self.place];
        if run.end.is_some() {
            return;
        }
        (run.ended, run.end) = (Some(self.ledger.began.elapsed()), Some(end));
        if matches!(run.end, Some(End::Panicked(_))) {
            let run = run.clone();
            book.panicked.get_or_insert(run);
        }
        drop(book);
        self.ledger.pulse.beat();
    }
}
