//! How a listener is, for those who ask from outside.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use crate::error::Error;
use crate::escape::of_error;
use crate::lock::lock;
use crate::runtime::{EventMode, Partition, Runtime};
use crate::wire::Index;

/// Whether a listener is past its start and not stopping yet.
#[derive(Debug, Default)]
pub(crate) struct Listening(AtomicBool);

/// It is, until this is dropped, as it is when whoever runs the listener gives it up.
pub(crate) struct Ready<'a>(&'a Listening);

impl Listening {
    pub(crate) fn begin(&self) -> Ready<'_> {
        self.0.store(true, Ordering::Relaxed);
        Ready(self)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// What is known of one partition.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    /// Whether nothing can be claimed until a name of ours is repaired; by index.
    parked: [AtomicBool; 2],
    /// How many ms overdue the head was when a sweep last looked.
    overdue: AtomicU64,
}

impl Condition {
    pub(crate) fn park(&self, index: Index, parked: bool) {
        self.parked[index as usize].store(parked, Ordering::Relaxed);
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.parked.iter().any(|parked| parked.load(Ordering::Relaxed))
    }

    /// A sweep has seen this head at this time.
    pub(crate) fn note_head(&self, now: u64, head: Option<u64>) {
        self.overdue.store(head.map_or(0, |head| now.saturating_sub(head)), Ordering::Relaxed);
    }

    pub(crate) fn overdue_ms(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }
}

/// The last error of its kind, and when it was.
#[derive(Debug, Default)]
pub(crate) struct LastError(Mutex<Option<(SystemTime, String)>>);

impl LastError {
    pub(crate) fn note(&self, error: &Error) {
        self.note_text(of_error(&error.to_string()));
    }

    pub(crate) fn note_text(&self, error: String) {
        *lock(&self.0) = Some((SystemTime::now(), error));
    }

    pub(crate) fn get(&self) -> Option<(SystemTime, String)> {
        lock(&self.0).clone()
    }
}

impl Runtime {
    /// Returns what is heard of expired keys. The reader of attached ones knows more, a little later.
    pub(crate) fn mode(&self) -> EventMode {
        match self.attached_topics().next() {
            Some(_) => self.stream_state.known().mode,
            None => self.nodes.mode(),
        }
    }

    /// Whether a canary of each server was heard, and none was missed since.
    pub(crate) fn hears(&self) -> bool {
        self.nodes.mode() == EventMode::Expired
    }
}

/// The longest that any of them is overdue.
pub(crate) fn oldest_overdue_ms<'a>(
    partitions: impl IntoIterator<Item = &'a std::sync::Arc<Partition>>,
) -> u64 {
    partitions.into_iter().map(|partition| partition.condition.overdue_ms()).max().unwrap_or(0)
}
