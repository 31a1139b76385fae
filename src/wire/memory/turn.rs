//! One call on one partition: what prelude.lua prepares for the scripts.

use bytes::Bytes;

use crate::wire::memory::index::Score;
use crate::wire::memory::ledger::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::types::{Held, Index};
use crate::wire::QUARANTINE_AT;
use crate::time::{MAX_DEADLINE_MS, ServerTime, WireWhen};

/// The calls themselves are methods of this, each in a file of its own that is
/// named after its script.
pub(super) struct Turn<'a> {
    pub(super) book: &'a mut Ledger,
    /// The clock is read once.
    pub(super) stamp: ServerTime,
    /// The head of `due` that listeners know of; none wakes them regardless.
    pub(super) head: Option<Score>,
    soonest: Option<Score>,
    pub(super) fences: Vec<Held>,
}

/// What a call has to tell those who listen to its partition.
#[derive(Debug)]
pub(super) enum Signal {
    Wake(u64),
    Fence(Held),
}

impl<'a> Turn<'a> {
    pub(super) fn new(book: &'a mut Ledger, stamp: ServerTime) -> Self {
        let head = book.due.head();
        Self { book, stamp, head, soonest: None, fences: Vec::new() }
    }

    /// The millisecond that has begun.
    pub(super) fn now(&self) -> u64 {
        self.stamp.ms()
    }

    /// The deadline that `when` means, never a fraction of a millisecond early.
    pub(super) fn deadline(&self, when: WireWhen) -> Result<u64> {
        let ceil = self.stamp.ms_ceil();
        let deadline = match when {
            WireWhen::In(ms) => ceil.saturating_add(ms),
            WireWhen::At(ms) => ms.max(ceil),
        };
        if deadline >= MAX_DEADLINE_MS {
            return Err(Error::new(ErrorKind::Invalid, "a deadline lies beyond 2^43 ms"));
        }
        Ok(deadline)
    }

    /// The deadline after a delay that the library has bounded.
    pub(super) fn after(&self, delay: u64) -> u64 {
        self.stamp.ms_ceil().saturating_add(delay)
    }

    /// Puts a key into the index where it waits, by its lost leases.
    pub(super) fn wait(&mut self, key: &Bytes, score: Score, lost: u8) {
        self.book.index_mut(waits_in(lost)).set(key, score);
        self.sooner(score);
    }

    /// Notes an earliest new score, to be told about.
    pub(super) fn sooner(&mut self, score: Score) {
        self.soonest = Some(self.soonest.map_or(score, |soonest| soonest.min(score)));
    }

    /// Ends the call.
    pub(super) fn signals(self) -> Vec<Signal> {
        let lowered = self.soonest.filter(|soonest| self.head.is_none_or(|head| *soonest < head));
        let wake = lowered.map(|score| Signal::Wake(score.ms()));
        self.fences.into_iter().map(Signal::Fence).chain(wake).collect()
    }
}

/// Where timers with this many lost leases are kept.
pub(super) fn waits_in(lost: u8) -> Index {
    if lost >= QUARANTINE_AT { Index::Solo } else { Index::Due }
}
