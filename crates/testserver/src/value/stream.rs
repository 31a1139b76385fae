//! Streams, as far as programs that write them need: entries are added and counted.

use std::collections::VecDeque;

/// An entry's id: milliseconds, and a number within them.
pub(crate) type Id = (u64, u64);

/// The ids of a stream's entries; what they hold is not kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    ids: VecDeque<Id>,
    last: Id,
}

impl Stream {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn last(&self) -> Id {
        self.last
    }

    /// The next id at this time: ids grow, even where clocks do not.
    pub(crate) fn next_id(&self, now_ms: u64) -> Id {
        if now_ms > self.last.0 { (now_ms, 0) } else { (self.last.0, self.last.1 + 1) }
    }

    /// Whether the id is above all others; then the entry is added.
    pub(crate) fn add(&mut self, id: Id) -> bool {
        if id <= self.last {
            return false;
        }
        self.last = id;
        self.ids.push_back(id);
        true
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> {
        self.ids.iter().copied()
    }

    pub(crate) fn trim(&mut self, most: usize) {
        self.ids.drain(..self.ids.len().saturating_sub(most));
    }
}
