//! A listener's position in the event stream of a server, and the evidence of the stream on a key.
//!
//! This module is pure: it uses no clock and no server. docs/internals/attach-protocol.md has the rules.

use std::collections::HashMap;

use bytes::Bytes;

use crate::attached::decision::StreamEvidence;
use crate::events::Canary;
use crate::time::ServerTime;
use crate::wire::{NodeId, Position, TrackedKey};

/// How long the events of a key are kept, in ms. The numbers of heartbeats serve as the clock.
const KEY_EVENTS_LIFETIME_MS: u64 = 60_000;
/// Maximum number of keys with events. If there are more at a heartbeat, all are removed.
const MAX_KEYS_WITH_EVENTS: usize = 500_000;

/// A position in the stream of one server: the number of the last heartbeat, and the number of the key's expiries since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct StreamOffset {
    canary: u64,
    count: u32,
}

impl StreamOffset {
    fn of(at: Position) -> Self {
        Self { canary: at.canary, count: at.count }
    }
}

/// The state of one server's event stream: its position, and the last events of each key.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    node: NodeId,
    anchor: Option<Anchor>,
    /// The number of the last heartbeat. 0 before the first.
    pub(super) last_canary: u64,
    /// The number of key events that were received with a position. It identifies a moment in the stream.
    pub(super) event_count: u64,
    keys: HashMap<Bytes, KeyEvents>,
}

/// The heartbeat since which all events were received.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// Its number.
    number: u64,
    /// The server's time, read after the heartbeat arrived. None until that read is answered.
    time: Option<ServerTime>,
}

/// The events of one key.
#[derive(Clone, Copy, Debug, Default)]
struct KeyEvents {
    /// The position of the last expiry.
    expired: StreamOffset,
    /// The position of the last deletion, if no expiry came after it.
    deleted: Option<StreamOffset>,
    /// The value of `Stream::event_count` at the last event.
    last_event: u64,
    /// The number of the last heartbeat before that event.
    since: u64,
}

impl Stream {
    /// Creates the stream of a server, without an anchor.
    pub(crate) fn of(node: NodeId) -> Self {
        Self { node, ..Self::default() }
    }

    /// Processes a heartbeat. Returns whether no event was missed since the last one. Otherwise this heartbeat becomes the
    /// anchor.
    pub(crate) fn apply_canary(&mut self, canary: Canary) -> bool {
        let unbroken = self.anchor.is_some() && canary.before == self.last_canary;
        if !unbroken {
            self.remove_anchor();
            // The server's clock or its data were set back, so earlier events may have higher numbers than later ones.
            if canary.number <= self.last_canary {
                self.keys.clear();
            }
            self.anchor = Some(Anchor { number: canary.number, time: None });
        }
        self.last_canary = canary.number;
        self.keys.retain(|_, events| events.since.saturating_add(KEY_EVENTS_LIFETIME_MS) > canary.number);
        if self.keys.len() > MAX_KEYS_WITH_EVENTS {
            self.keys.clear();
        }
        unbroken
    }

    /// Sets the server's time, which was read after the anchor arrived. Later calls change nothing.
    pub(crate) fn set_anchor_time(&mut self, time: ServerTime) {
        if let Some(anchor) = &mut self.anchor {
            anchor.time.get_or_insert(time);
        }
    }

    /// Returns whether the stream is anchored, but the time of its anchor is unknown.
    pub(crate) fn lacks_anchor_time(&self) -> bool {
        self.anchor.is_some_and(|anchor| anchor.time.is_none())
    }

    /// Removes the anchor, as events may have been missed.
    pub(crate) fn remove_anchor(&mut self) {
        self.anchor = None;
        // A deletion counts as the last event of a key only while no later event can have been missed.
        self.keys.values_mut().for_each(|events| events.deleted = None);
    }

    /// Processes an expiry. Returns its position, which identifies it. Returns None in a gap.
    pub(crate) fn apply_expiry(&mut self, key: &Bytes) -> Option<Position> {
        self.anchor?;
        let number = self.last_canary;
        let events = self.record_event(key);
        let count = if events.expired.canary == number { events.expired.count + 1 } else { 1 };
        events.expired = StreamOffset { canary: number, count };
        events.deleted = None;
        Some(Position { node: self.node, canary: number, count })
    }

    /// Processes the deletion or renaming of a key. Ignores it in a gap.
    pub(crate) fn apply_deletion(&mut self, key: &Bytes) {
        if self.anchor.is_some() {
            let place = StreamOffset::of(self.position_of(key));
            self.record_event(key).deleted = Some(place);
        }
    }

    fn record_event(&mut self, key: &Bytes) -> &mut KeyEvents {
        self.event_count += 1;
        let (last_event, since) = (self.event_count, self.last_canary);
        let events = self.keys.entry(key.clone()).or_default();
        (events.last_event, events.since) = (last_event, since);
        events
    }

    /// Returns the name of the server.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the number of the anchor. 0 without one.
    pub(crate) fn anchor_number(&self) -> u64 {
        self.anchor.map_or(0, |anchor| anchor.number)
    }

    pub(crate) fn is_anchored(&self) -> bool {
        self.anchor.is_some()
    }

    /// Returns the present position, with the expiries of this key counted. Returns (0, 0) without an anchor.
    pub(crate) fn position_of(&self, key: &Bytes) -> Position {
        if self.anchor.is_none() {
            return Position { node: self.node, ..Position::default() };
        }
        let count = self.keys.get(key).filter(|events| events.expired.canary == self.last_canary);
        let count = count.map_or(0, |events| events.expired.count);
        Position { node: self.node, canary: self.last_canary, count }
    }

    /// Returns the position of the key's last deletion, if it has not expired since.
    pub(crate) fn deleted_at(&self, key: &Bytes) -> Option<Position> {
        let StreamOffset { canary, count } = self.keys.get(key)?.deleted?;
        Some(Position { node: self.node, canary, count })
    }

    /// Returns whether an event of the key arrived after `Stream::event_count` had this value.
    pub(crate) fn has_event_since(&self, key: &Bytes, event_count: u64) -> bool {
        self.keys.get(key).is_some_and(|events| events.last_event > event_count)
    }

    /// Returns whether the key expired after its deadline was read on this server.
    pub(crate) fn expired_since(&self, tracked: &TrackedKey) -> bool {
        let events = self.keys.get(&tracked.key).copied().unwrap_or_default();
        tracked.at.node == self.node && events.expired > StreamOffset::of(tracked.at)
    }

    /// Returns whether no event was missed since the deadline was read on this server, or at least since the deadline.
    pub(crate) fn is_unbroken_since(&self, tracked: &TrackedKey) -> bool {
        let since = self.anchor.is_some_and(|anchor| tracked.at.canary >= anchor.number);
        since || self.is_anchored_before(tracked.deadline)
    }

    /// Returns whether the anchor arrived before this time, in ms of its server.
    pub(crate) fn is_anchored_before(&self, deadline: u64) -> bool {
        self.anchor.and_then(|anchor| anchor.time).is_some_and(|time| time.ms() < deadline)
    }

    /// Returns whether a later heartbeat than this one has arrived.
    pub(crate) fn has_canary_after(&self, canary: u64) -> bool {
        self.last_canary > canary
    }

    /// Returns the evidence of the stream on a tracked key, which matters if the key is gone. `checked_after` is the number
    /// of the last heartbeat before the answer to its check.
    pub(crate) fn evidence_for(&self, tracked: &TrackedKey, checked_after: u64) -> StreamEvidence {
        if tracked.announced_elsewhere {
            // Another server has announced the expiry, which has fired. The key may have moved there and back, so a gap
            // of this server does not matter.
            return StreamEvidence::Expired;
        }
        let Some(anchor) = self.anchor else { return StreamEvidence::Broken };
        if tracked.at.node != self.node {
            return StreamEvidence::Broken; // this stream is no evidence for another server
        }
        // No listener can be this far ahead, so the numbers were set back after the deadline was read.
        if tracked.at.canary > self.last_canary.saturating_add(KEY_EVENTS_LIFETIME_MS) {
            return StreamEvidence::Broken;
        }
        let events = self.keys.get(&tracked.key).copied().unwrap_or_default();
        let read_at = StreamOffset::of(tracked.at);
        if events.expired > read_at {
            return StreamEvidence::Expired;
        }
        let proven = self.last_canary > checked_after;
        // Positions do not count deletions. A deletion at the position of the read may have ended the previous cycle.
        if events.deleted.is_some_and(|deleted| deleted > read_at || deleted == read_at && proven) {
            return StreamEvidence::Deleted;
        }
        let unbroken = tracked.at.canary >= anchor.number;
        match anchor.time {
            None if !unbroken => StreamEvidence::NothingYet,
            Some(time) if !unbroken && time.ms() >= tracked.deadline => StreamEvidence::Broken,
            _ if proven => StreamEvidence::Nothing,
            _ => StreamEvidence::NothingYet,
        }
    }
}

#[cfg(test)]
mod tests;
