//! A listener's position in its server's stream of expired keys, and what the stream has said of a key.
//!
//! Pure: no clock, no server. The rules are those of docs/attach-protocol.md.

use std::collections::HashMap;

use bytes::Bytes;

use crate::attached::decision::StreamSays as Said;
use crate::events::Canary;
use crate::time::ServerTime;
use crate::wire::{NodeId, Position, Watch};

/// For how long what was heard of a key is remembered, in the numbers of canaries: ms.
const MEMORY: u64 = 60_000;
/// Keys remembered at most; beyond, all but those since the last canary are forgotten.
const KEYS: usize = 500_000;

/// A position, of one server's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    canary: u64,
    count: u32,
}

impl Place {
    fn of(at: Position) -> Self {
        Self { canary: at.canary, count: at.count }
    }
}

/// What one listener has heard of one server, in order.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    node: NodeId,
    anchor: Option<Anchor>,
    /// The number of the last canary; 0 before the first.
    pub(super) number: u64,
    /// Counts all that is heard of keys, and so is a moment of the stream.
    pub(super) heard: u64,
    keys: HashMap<Bytes, Heard>,
}

/// From where on everything was heard.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// The first canary.
    number: u64,
    /// The server's time, read after it was heard; none until that is answered.
    time: Option<ServerTime>,
}

/// What was heard of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The last expiry.
    expired: Place,
    /// The last deletion, if it has not expired since.
    gone: Option<Place>,
    /// When anything was heard last.
    last: u64,
    /// The canary before that.
    since: u64,
}

impl Stream {
    /// That of a server among several.
    pub(crate) fn of(node: NodeId) -> Self {
        Self { node, ..Self::default() }
    }

    /// A canary was heard; whether nothing was missed since the last. Otherwise the stream begins here, and
    /// what was known is not any more.
    pub(crate) fn canary(&mut self, canary: Canary) -> bool {
        let unbroken = self.anchor.is_some() && canary.before == self.number;
        if !unbroken {
            self.lose();
            // The clock or the data were set back: what was heard before is not earlier than what comes.
            if canary.number <= self.number {
                self.keys.clear();
            }
            self.anchor = Some(Anchor { number: canary.number, time: None });
        }
        self.number = canary.number;
        self.keys.retain(|_, heard| heard.since.saturating_add(MEMORY) > canary.number);
        if self.keys.len() > KEYS {
            self.keys.clear();
        }
        unbroken
    }

    /// The server's time, read after the first canary was heard.
    pub(crate) fn anchored_at(&mut self, time: ServerTime) {
        if let Some(anchor) = &mut self.anchor {
            anchor.time.get_or_insert(time);
        }
    }

    /// Whether it is anchored, and nobody knows since when.
    pub(crate) fn is_untimed(&self) -> bool {
        self.anchor.is_some_and(|anchor| anchor.time.is_none())
    }

    /// Something may have been missed.
    pub(crate) fn lose(&mut self) {
        self.anchor = None;
        // A deletion is the last word on a key only as long as nothing after it can have been missed.
        self.keys.values_mut().for_each(|heard| heard.gone = None);
    }

    /// A key has expired; where, which is the expiry's identity, but in a gap it has none.
    pub(crate) fn expired(&mut self, key: &Bytes) -> Option<Position> {
        self.anchor?;
        let number = self.number;
        let heard = self.hear(key);
        let count = if heard.expired.canary == number { heard.expired.count + 1 } else { 1 };
        heard.expired = Place { canary: number, count };
        heard.gone = None;
        Some(Position { node: self.node, canary: number, count })
    }

    /// A key was deleted or renamed.
    pub(crate) fn gone(&mut self, key: &Bytes) {
        if self.anchor.is_some() {
            let place = Place::of(self.place(key));
            self.hear(key).gone = Some(place);
        }
    }

    fn hear(&mut self, key: &Bytes) -> &mut Heard {
        self.heard += 1;
        let (last, since) = (self.heard, self.number);
        let heard = self.keys.entry(key.clone()).or_default();
        (heard.last, heard.since) = (last, since);
        heard
    }

    /// Whose it is.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The canary since which everything was heard; 0 without an anchor.
    pub(crate) fn since(&self) -> u64 {
        self.anchor.map_or(0, |anchor| anchor.number)
    }

    pub(crate) fn is_anchored(&self) -> bool {
        self.anchor.is_some()
    }

    /// Where it is now, as far as this key is concerned; (0, 0) without an anchor.
    pub(crate) fn place(&self, key: &Bytes) -> Position {
        if self.anchor.is_none() {
            return Position { node: self.node, ..Position::default() };
        }
        let count = self.keys.get(key).filter(|heard| heard.expired.canary == self.number);
        let count = count.map_or(0, |heard| heard.expired.count);
        Position { node: self.node, canary: self.number, count }
    }

    /// Where this key was last heard to be deleted, if nothing has happened to it since.
    pub(crate) fn deleted_at(&self, key: &Bytes) -> Option<Position> {
        let Place { canary, count } = self.keys.get(key)?.gone?;
        Some(Position { node: self.node, canary, count })
    }

    /// Whether anything was heard of a key since.
    pub(crate) fn heard_since(&self, key: &Bytes, moment: u64) -> bool {
        self.keys.get(key).is_some_and(|heard| heard.last > moment)
    }

    /// Whether the key was heard to expire since this was read here.
    pub(crate) fn expired_since(&self, watch: &Watch) -> bool {
        let heard = self.keys.get(&watch.key).copied().unwrap_or_default();
        watch.at.node == self.node && heard.expired > Place::of(watch.at)
    }

    /// Whether nothing was missed since this was read here, or since its deadline.
    pub(crate) fn is_whole_since(&self, watch: &Watch) -> bool {
        let since = self.anchor.is_some_and(|anchor| watch.at.canary >= anchor.number);
        since || self.is_anchored_before(watch.deadline)
    }

    /// Whether its anchor was heard before this time, in ms of its server.
    pub(crate) fn is_anchored_before(&self, deadline: u64) -> bool {
        self.anchor.and_then(|anchor| anchor.time).is_some_and(|time| time.ms() < deadline)
    }

    /// Whether a canary was heard after this one.
    pub(crate) fn is_beyond(&self, canary: u64) -> bool {
        self.number > canary
    }

    /// What the stream says of a watched expiry cycle, after a touch that was answered behind canary `touched`.
    pub(crate) fn says(&self, watch: &Watch, touched: u64) -> Said {
        if watch.answered {
            // Another server has announced it, which has run: the key may be back where it was read, and a gap there says nothing.
            return Said::Expired;
        }
        let Some(anchor) = self.anchor else { return Said::Broken };
        if watch.at.node != self.node {
            return Said::Broken; // of another server's stream nothing follows from this one alone
        }
        // Nobody is ahead by so much: numbers have been set back since it was read.
        if watch.at.canary > self.number.saturating_add(MEMORY) {
            return Said::Broken;
        }
        let heard = self.keys.get(&watch.key).copied().unwrap_or_default();
        let enrolled = Place::of(watch.at);
        if heard.expired > enrolled {
            return Said::Expired;
        }
        let proven = self.number > touched;
        // Deletions do not count: one at the very position of the reading may have ended the cycle before it.
        if heard.gone.is_some_and(|gone| gone > enrolled || gone == enrolled && proven) {
            return Said::Deleted;
        }
        let whole = watch.at.canary >= anchor.number;
        match anchor.time {
            None if !whole => Said::NothingYet,
            Some(time) if !whole && time.ms() >= watch.deadline => Said::Broken,
            _ if proven => Said::Nothing,
            _ => Said::NothingYet,
        }
    }
}

#[cfg(test)]
mod tests;
