//! What is kept of one partition, under the names of docs/wire.md.

use std::collections::HashMap;

use bytes::Bytes;

use crate::wire::memory::index::{Index, Score};
use crate::id::{SlotId, Token};
use crate::wire;
use crate::wire::types::Heads;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) due: Index,
    pub(super) solo: Index,
    pub(super) rec: HashMap<Bytes, Bytes>,
    pub(super) run: HashMap<Bytes, Bytes>,
    pub(super) next: HashMap<Bytes, Bytes>,
    pub(super) tomb: Index,
    pub(super) dead: Index,
    pub(super) grave: HashMap<Bytes, Bytes>,
    pub(super) slots: HashMap<SlotId, LastClaim>,
    /// The slot of the last claim that took something.
    pub(super) by: Option<SlotId>,
    pub(super) paused: Option<String>,
    /// How many dead letters had to make room so far.
    pub(super) trimmed: u64,
    pub(super) sequence: Sequence,
}

/// What a slot's slot says.
#[derive(Debug)]
pub(super) struct LastClaim {
    pub(super) token: Token,
    pub(super) at: u64,
    pub(super) keys: Vec<Bytes>,
}

/// Counts the new timers of each millisecond, so that they keep their order.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    ms: u64,
    next: u64,
}

impl Sequence {
    /// The number of one more timer that is armed in the millisecond `now`.
    pub(super) fn take(&mut self, now: u64) -> u64 {
        if self.ms != now {
            *self = Self { ms: now, next: 0 };
        }
        self.next += 1;
        self.next - 1
    }
}

impl Ledger {
    pub(super) fn heads(&self) -> Heads {
        Heads { due: self.due.head().map(Score::ms), solo: self.solo.head().map(Score::ms) }
    }

    pub(super) fn index(&self, which: store::Index) -> &Index {
        match which {
            store::Index::Due => &self.due,
            store::Index::Solo => &self.solo,
        }
    }

    pub(super) fn index_mut(&mut self, which: store::Index) -> &mut Index {
        match which {
            store::Index::Due => &mut self.due,
            store::Index::Solo => &mut self.solo,
        }
    }

    pub(super) fn is_indexed(&self, key: &[u8]) -> bool {
        self.due.contains(key) || self.solo.contains(key)
    }

    /// Takes a key out of both indexes.
    pub(super) fn unindex(&mut self, key: &[u8]) {
        self.due.remove(key);
        self.solo.remove(key);
    }
}
