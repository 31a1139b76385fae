//! Streams without contents: entries can be added and counted.

use std::collections::VecDeque;

/// The ID of an entry: a time in ms, and a number within the millisecond.
pub(crate) type Id = (u64, u64);

/// The IDs of a stream's entries. Their fields are not stored.
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

    /// Returns the next ID at this time. IDs increase, even if the clock does not.
    pub(crate) fn next_id(&self, now_ms: u64) -> Id {
        if now_ms > self.last.0 { (now_ms, 0) } else { (self.last.0, self.last.1 + 1) }
    }

    /// Adds an entry. Returns false, and adds nothing, unless its ID is higher than all others.
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
