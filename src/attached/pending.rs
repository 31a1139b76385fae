//! Expiries of one server that are not recorded yet: they have no identity, or their server may have been replaced.
//!
//! An expiry that was received in a gap is identified by the first heartbeat after it, and by its rank among the key's
//! expiries before that heartbeat, counted back. If more events are lost before a heartbeat, the expiry gets no identity.
//!
//! One of several servers may have been replaced in a gap. It then announces expiries that its successor has announced,
//! too. Therefore its expiries wait until another server names it a primary, even those with a position.
//!
//! This module is pure: it uses no clock and no server. docs/internals/attach-protocol.md has the rules.

use std::collections::HashMap;
use std::mem;

use bytes::Bytes;

use crate::backlog::ByteBounded;
use crate::wire::{NodeId, Position};

/// Maximum bytes of the pending keys of one server: 400,000 keys of 20 bytes take 46 MB. Together with the queue of the
/// reader and the keys that are being read, a listener needs less than 100 MB for them.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// Estimated bytes that a pending key takes in addition to its name.
const PENDING_KEY_OVERHEAD: usize = 96;
/// Estimated bytes that a key of a replaced server takes in addition to its name.
const LISTED_KEY_OVERHEAD: usize = 32;

/// The expiries that were received in one gap.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GapBatch {
    /// How often each key expired.
    pub(super) keys: HashMap<Bytes, u32>,
    /// The number of the first heartbeat after the gap, which identifies the expiries. None before it.
    pub(super) canary: Option<u64>,
}

/// An expiry with a position. It waits until its server's role is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PositionedExpiry {
    pub(super) partition: usize,
    pub(super) key: Bytes,
    pub(super) at: Position,
    /// The number of the heartbeat since which all events were received.
    pub(super) since: u64,
}

/// The pending expiries of one server.
#[derive(Debug)]
pub(super) struct PendingExpiries {
    /// True if no other server can have replaced this one. It is the only server, or another has named it a primary
    /// since the last gap began.
    confirmed: bool,
    /// True for the only server.
    alone: bool,
    buffers: ByteBounded<ExpiryBuffers>,
}

#[derive(Debug, Default)]
struct ExpiryBuffers {
    /// Expiries of the last gap, except those in `reading`.
    last: GapBatch,
    /// Expiries of the last gap whose keys are being read.
    reading: HashMap<Bytes, u32>,
    /// Expiries of earlier gaps, with or without an identity. No heartbeat changes them.
    closed_gaps: Vec<GapBatch>,
    /// Expiries with a position, in order.
    positioned: Vec<PositionedExpiry>,
}

impl ExpiryBuffers {
    fn is_last_empty(&self) -> bool {
        self.last.keys.is_empty() && self.reading.is_empty()
    }

    /// Takes all expiries of the last gap, including those whose keys are being read.
    fn take_last(&mut self) -> GapBatch {
        let mut last = mem::take(&mut self.last);
        last.keys.extend(mem::take(&mut self.reading));
        last
    }
}

impl PendingExpiries {
    pub(super) fn new(alone: bool) -> Self {
        Self { confirmed: alone, alone, buffers: ByteBounded::new(MAX_PENDING_BYTES, PENDING_KEY_OVERHEAD) }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_last_empty()
            && self.buffers.closed_gaps.is_empty()
            && self.buffers.positioned.is_empty()
    }

    /// Adds an expiry that was received in a gap. Returns false if there is no space for it.
    pub(super) fn add_in_gap(&mut self, key: Bytes) -> bool {
        if let Some(times) = self.buffers.last.keys.get_mut(&key) {
            *times += 1;
            return true;
        }
        self.buffers.take_room(&key) && self.buffers.last.keys.insert(key, 1).is_none()
    }

    /// Adds an expiry with a position. Returns false if there is no space for it.
    pub(super) fn add_positioned(&mut self, expiry: PositionedExpiry) -> bool {
        let fits = self.buffers.take_room(&expiry.key);
        if fits {
            self.buffers.positioned.push(expiry);
        }
        fits
    }

    /// Identifies the expiries of the last gap by this heartbeat, unless an earlier one has identified them. Returns
    /// the number of keys that it identified.
    pub(super) fn identify_last_gap(&mut self, canary: u64) -> usize {
        let last = &mut self.buffers.last;
        let unidentified = if last.canary.is_none() { last.keys.len() } else { 0 };
        if unidentified > 0 {
            last.canary = Some(canary);
        }
        unidentified
    }

    /// Closes the last gap if a heartbeat has identified its expiries, or if more events were `missed`. In the second
    /// case they may get no identity.
    pub(super) fn close_gap(&mut self, missed: bool) {
        if (missed || self.buffers.last.canary.is_some()) && !self.buffers.is_last_empty() {
            let last = self.buffers.take_last();
            self.buffers.closed_gaps.push(last);
        }
    }

    /// Requires a new confirmation of the server's role. The only server needs none.
    pub(super) fn mark_unconfirmed(&mut self) {
        self.confirmed = self.alone;
    }

    /// Confirms the server: another one has named it a primary.
    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Takes the keys of all expiries after the server was replaced. Its successor decides on them.
    pub(super) fn take_all_keys(&mut self) -> Vec<Bytes> {
        let mut buffers = self.buffers.take_all();
        let last = buffers.take_last();
        let batches = buffers.closed_gaps.into_iter().chain([last]);
        let positioned = buffers.positioned.into_iter().map(|expiry| expiry.key);
        let mut all: Vec<Bytes> =
            batches.flat_map(|batch| batch.keys.into_keys()).chain(positioned).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Takes the expiries with a position, in order.
    pub(super) fn take_positioned(&mut self) -> Vec<PositionedExpiry> {
        let positioned = mem::take(&mut self.buffers.positioned);
        positioned.iter().for_each(|expiry| self.buffers.give_room(&expiry.key));
        positioned
    }

    /// Takes the expiries of all gaps before the last one.
    pub(super) fn take_closed_gaps(&mut self) -> Vec<GapBatch> {
        let closed_gaps = mem::take(&mut self.buffers.closed_gaps);
        closed_gaps.iter().flat_map(|batch| batch.keys.keys()).for_each(|key| self.buffers.give_room(key));
        closed_gaps
    }

    /// Returns the heartbeat that identifies the expiries of the last gap.
    pub(super) fn last_gap_canary(&self) -> Option<u64> {
        self.buffers.last.canary
    }

    /// Returns up to `limit` keys of the last gap, and marks them as being read. Returns none before a heartbeat
    /// identifies the gap.
    pub(super) fn next_to_read(&mut self, limit: usize) -> Vec<Bytes> {
        let ExpiryBuffers { last, reading, .. } = &mut *self.buffers;
        if last.canary.is_none() {
            return Vec::new();
        }
        let keys: Vec<Bytes> = last.keys.keys().take(limit).cloned().collect();
        for key in &keys {
            reading.extend(last.keys.remove_entry(key));
        }
        keys
    }

    /// Returns whether an expiry of this key in the last gap is pending.
    pub(super) fn has_in_last_gap(&self, key: &Bytes) -> bool {
        self.buffers.last.keys.contains_key(key) || self.buffers.reading.contains_key(key)
    }

    /// Removes a key of the last gap, and returns how often it expired.
    pub(super) fn remove_key(&mut self, key: &Bytes) -> Option<u32> {
        let ExpiryBuffers { last, reading, .. } = &mut *self.buffers;
        let times = reading.remove(key).or_else(|| last.keys.remove(key))?;
        self.buffers.give_room(key);
        if self.buffers.is_last_empty() {
            self.buffers.last = GapBatch::default(); // frees the memory of its table, too
        }
        Some(times)
    }

    /// Removes one expiry of a key of the last gap. Returns false if there is none.
    pub(super) fn remove_one_expiry(&mut self, key: &Bytes) -> bool {
        let ExpiryBuffers { last, reading, .. } = &mut *self.buffers;
        let times = reading.get_mut(key).or_else(|| last.keys.get_mut(key));
        let Some(times) = times else { return false };
        *times -= 1;
        if *times == 0 {
            self.remove_key(key);
        }
        true
    }
}

/// Keys whose expiries replaced servers announced, by server. A reader keeps them until they are checked.
#[derive(Debug)]
pub(super) struct ReplacedServerKeys(ByteBounded<Vec<(NodeId, Vec<Bytes>)>>);

impl Default for ReplacedServerKeys {
    fn default() -> Self {
        Self(ByteBounded::new(MAX_PENDING_BYTES, LISTED_KEY_OVERHEAD))
    }
}

impl ReplacedServerKeys {
    /// Adds keys that the replaced server `by` announced. Returns the number of keys for which there was no space.
    pub(super) fn add(&mut self, by: NodeId, mut keys: Vec<Bytes>) -> usize {
        let before = keys.len();
        keys.retain(|key| self.0.take_room(key));
        let lost = before - keys.len();
        if !keys.is_empty() {
            self.0.push((by, keys));
        }
        lost
    }

    pub(super) fn take_all(&mut self) -> Vec<(NodeId, Vec<Bytes>)> {
        self.0.take_all()
    }

    /// Takes up to `limit` keys that one server announced.
    pub(super) fn take_up_to(&mut self, limit: usize) -> Option<(NodeId, Vec<Bytes>)> {
        let (by, keys) = self.0.last_mut()?;
        let (by, some) = (*by, keys.split_off(keys.len().saturating_sub(limit)));
        if keys.is_empty() {
            self.0.pop();
        }
        some.iter().for_each(|key| self.0.give_room(key));
        Some((by, some))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, keys)| keys.len()).sum()
    }
}

#[cfg(test)]
mod tests;
