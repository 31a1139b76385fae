//! A listener's position in the event stream of a server, and the evidence of the stream on a key.
//!
//! This module is pure: it uses no clock and no server. docs/attach-protocol.md has the rules.

use std::collections::HashMap;

use bytes::Bytes;

use crate::attached::decision::StreamEvidence;
use crate::events::Canary;
use crate::time::ServerTime;
use crate::wire::{NodeId, Position, TrackedKey};

/// How long the events of a key are kept, in ms. The numbers of heartbeats serve as the clock.
const KEY_EVENTS_LIFETIME_MS: u64 = 60_000;
/// Maximum number of keys with events. If there are more at a heartbeat, all are removed.
const KEYS: usize = 500_000;

/// A position in the stream of one server.
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

/// The events that a listener has received from one server, in order.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    node: NodeId,
    anchor: Option<Anchor>,
    /// The number of the last heartbeat. 0 before the first.
    pub(super) number: u64,
    /// The number of key events received, which identifies a moment in the stream.
    pub(super) heard: u64,
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
    gone: Option<StreamOffset>,
    /// The moment of the last event, as in `Stream::heard`.
    last: u64,
    /// The number of the heartbeat before that event.
    since: u64,
}

impl Stream {
    /// Creates the stream of one of several servers.
    pub(crate) fn of(node: NodeId) -> Self {
        Self { node, ..Self::default() }
    }

    /// Processes a heartbeat. Returns whether no event was missed since the last one. Otherwise the stream starts over
    /// here.
    pub(crate) fn canary(&mut self, canary: Canary) -> bool {
        let unbroken = self.anchor.is_some() && canary.before == self.number;
        if !unbroken {
            self.lose();
            // The server's clock or its data were set back, so earlier events may have higher numbers than later ones.
            if canary.number <= self.number {
                self.keys.clear();
            }
            self.anchor = Some(Anchor { number: canary.number, time: None });
        }
        self.number = canary.number;
        self.keys.retain(|_, heard| heard.since.saturating_add(KEY_EVENTS_LIFETIME_MS) > canary.number);
        if self.keys.len() > KEYS {
            self.keys.clear();
        }
        unbroken
    }

    /// Sets the server's time, read after the first heartbeat. Later calls change nothing.
    pub(crate) fn anchored_at(&mut self, time: ServerTime) {
        if let Some(anchor) = &mut self.anchor {
            anchor.time.get_or_insert(time);
        }
    }

    /// Returns whether the stream is anchored, and the time of its anchor is unknown.
    pub(crate) fn is_untimed(&self) -> bool {
        self.anchor.is_some_and(|anchor| anchor.time.is_none())
    }

    /// Removes the anchor, as events may have been missed.
    pub(crate) fn lose(&mut self) {
        self.anchor = None;
        // A deletion counts as the last event of a key only while no later event can have been missed.
        self.keys.values_mut().for_each(|heard| heard.gone = None);
    }

    /// Processes an expiry. Returns its position, which identifies it. Returns None in a gap.
    pub(crate) fn expired(&mut self, key: &Bytes) -> Option<Position> {
        self.anchor?;
        let number = self.number;
        let heard = self.record_event(key);
        let count = if heard.expired.canary == number { heard.expired.count + 1 } else { 1 };
        heard.expired = StreamOffset { canary: number, count };
        heard.gone = None;
        Some(Position { node: self.node, canary: number, count })
    }

    /// Processes the deletion or renaming of a key.
    pub(crate) fn gone(&mut self, key: &Bytes) {
        if self.anchor.is_some() {
            let place = StreamOffset::of(self.position_of(key));
            self.record_event(key).gone = Some(place);
        }
    }

    fn record_event(&mut self, key: &Bytes) -> &mut KeyEvents {
        self.heard += 1;
        let (last, since) = (self.heard, self.number);
        let heard = self.keys.entry(key.clone()).or_default();
        (heard.last, heard.since) = (last, since);
        heard
    }

    /// Returns the name of the server.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the number of the heartbeat since which all events were received. 0 without an anchor.
    pub(crate) fn since(&self) -> u64 {
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
        let count = self.keys.get(key).filter(|heard| heard.expired.canary == self.number);
        let count = count.map_or(0, |heard| heard.expired.count);
        Position { node: self.node, canary: self.number, count }
    }

    /// Returns the position of the key's last deletion, if it has not expired since.
    pub(crate) fn deleted_at(&self, key: &Bytes) -> Option<Position> {
        let StreamOffset { canary, count } = self.keys.get(key)?.gone?;
        Some(Position { node: self.node, canary, count })
    }

    /// Returns whether an event of the key arrived after this moment.
    pub(crate) fn heard_since(&self, key: &Bytes, moment: u64) -> bool {
        self.keys.get(key).is_some_and(|heard| heard.last > moment)
    }

    /// Returns whether the key expired after its deadline was read on this server.
    pub(crate) fn expired_since(&self, watch: &TrackedKey) -> bool {
        let heard = self.keys.get(&watch.key).copied().unwrap_or_default();
        watch.at.node == self.node && heard.expired > StreamOffset::of(watch.at)
    }

    /// Returns whether no event was missed since the deadline was read on this server, or since the deadline.
    pub(crate) fn is_whole_since(&self, watch: &TrackedKey) -> bool {
        let since = self.anchor.is_some_and(|anchor| watch.at.canary >= anchor.number);
        since || self.is_anchored_before(watch.deadline)
    }

    /// Returns whether the anchor arrived before this time, in ms of its server.
    pub(crate) fn is_anchored_before(&self, deadline: u64) -> bool {
        self.anchor.and_then(|anchor| anchor.time).is_some_and(|time| time.ms() < deadline)
    }

    /// Returns whether a later heartbeat than this one has arrived.
    pub(crate) fn is_beyond(&self, canary: u64) -> bool {
        self.number > canary
    }

    /// Returns the evidence of the stream on a tracked key. `touched` is the number of the last heartbeat before the
    /// answer to its check.
    pub(crate) fn evidence_for(&self, watch: &TrackedKey, touched: u64) -> StreamEvidence {
        if watch.announced_elsewhere {
            // Another server has announced the expiry, which has fired. The key may have moved there and back, so a gap
            // of this server does not matter.
            return StreamEvidence::Expired;
        }
        let Some(anchor) = self.anchor else { return StreamEvidence::Broken };
        if watch.at.node != self.node {
            return StreamEvidence::Broken; // this stream is no evidence for another server
        }
        // No listener can be this far ahead, so the numbers were set back after the deadline was read.
        if watch.at.canary > self.number.saturating_add(KEY_EVENTS_LIFETIME_MS) {
            return StreamEvidence::Broken;
        }
        let heard = self.keys.get(&watch.key).copied().unwrap_or_default();
        let enrolled = StreamOffset::of(watch.at);
        if heard.expired > enrolled {
            return StreamEvidence::Expired;
        }
        let proven = self.number > touched;
        // Positions do not count deletions. A deletion at the position of the read may have ended the previous cycle.
        if heard.gone.is_some_and(|gone| gone > enrolled || gone == enrolled && proven) {
            return StreamEvidence::Deleted;
        }
        let whole = watch.at.canary >= anchor.number;
        match anchor.time {
            None if !whole => StreamEvidence::NothingYet,
            Some(time) if !whole && time.ms() >= watch.deadline => StreamEvidence::Broken,
            _ if proven => StreamEvidence::Nothing,
            _ => StreamEvidence::NothingYet,
        }
    }
}

#[cfg(test)]
mod tests;
