//! What a listener makes of one server among several: when it is believed, and what is held until it is.
//!
//! A gap of a server ends by two things, in any order: another server names it a primary since the gap began, and a
//! canary of it is heard. Till then nothing that it announces is noted. What it has announced behind a canary has its
//! place; what it announced before it is called by that canary, counted back; and what was followed by another gap has
//! no name. What one has announced that was replaced is dropped, and the key's present owner is asked.
//!
//! Pure: no clock, no server. The rules are those of docs/attach-protocol.md, "Several servers".

use std::collections::HashMap;
use std::mem;

use bytes::Bytes;

use crate::attached::decision::StreamSays as Said;
use crate::attached::stream::Stream;
use crate::events::Canary;
use crate::wire::{NodeId, Position, Watch};

/// Bytes of keys that are held at most, and what a key takes beside, about.
const MOST: usize = 16 << 20;
const BESIDE_KEY: usize = 96;

/// What another server says of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is a primary, of whatever slots.
    Primary,
    /// It was one, and another has its place.
    Replaced,
    /// It is a replica, or not known: nothing follows, as who says so may be late.
    Other,
}

/// What becomes of something that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is noted at once, by its place and the anchor of this listener.
    Placed(Position, u64),
    /// It waits.
    Held,
    /// It would wait, and there is no room.
    NoRoom,
}

/// Something that was held, and by what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Its place, and the anchor behind which it was heard.
    Placed(Bytes, Position, u64),
    /// A canary after it, and how often the key was heard to expire before that.
    Gap(Bytes, u64, u32),
    /// Heard so often, and without a name.
    Unknown(Bytes, u32),
}

/// Keys that were heard to expire between something that was missed and what came next, and how often.
#[derive(Debug, Default)]
struct Batch {
    keys: HashMap<Bytes, u32>,
    name: Name,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Name {
    #[default]
    None,
    Canary(u64),
    Torn,
}

/// One server.
#[derive(Debug)]
pub(crate) struct NodeStream {
    stream: Stream,
    /// Whether another server has named it a primary since something of it was missed.
    confirmed: bool,
    /// What was heard in gaps, the last of them at the end.
    batches: Vec<Batch>,
    /// What was heard behind a canary, in order.
    placed: Vec<(Bytes, Position, u64)>,
    bytes: usize,
}

impl NodeStream {
    /// Of which nothing was heard yet. A replica is heard, too: what it announces when it is promoted is held.
    pub(crate) fn new(node: NodeId) -> Self {
        let stream = Stream::of(node);
        Self { stream, confirmed: false, batches: Vec::new(), placed: Vec::new(), bytes: 0 }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether what it announces is noted at once, and keys are looked at there.
    pub(crate) fn is_trusted(&self) -> bool {
        self.confirmed && self.stream.is_anchored()
    }

    /// A key has expired.
    pub(crate) fn expired(&mut self, key: &Bytes) -> Heard {
        let at = self.stream.expired(key);
        if let Some(at) = at.filter(|_| self.confirmed) {
            return Heard::Placed(at, self.stream.since());
        }
        let bytes = self.bytes + key.len() + BESIDE_KEY;
        if bytes > MOST {
            return Heard::NoRoom;
        }
        self.bytes = bytes;
        match at {
            Some(at) => self.placed.push((key.clone(), at, self.stream.since())),
            None => *self.open_batch().keys.entry(key.clone()).or_default() += 1,
        }
        Heard::Held
    }

    fn open_batch(&mut self) -> &mut Batch {
        if self.batches.last().is_none_or(|batch| batch.name != Name::None) {
            self.batches.push(Batch::default());
        }
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// A canary was heard: it gives a name to what has none.
    pub(crate) fn canary(&mut self, canary: Canary) {
        let was_anchored = self.stream.is_anchored();
        if !self.stream.canary(canary) {
            // One that is out of turn is a gap itself.
            self.confirmed &= !was_anchored;
            self.name_last(Name::Canary(canary.number));
        }
    }

    /// Something may have been missed: a connection is lost, an event was dropped, or a canary is missing.
    pub(crate) fn lost(&mut self) {
        self.stream.lose();
        self.confirmed = false;
        self.name_last(Name::Torn);
    }

    fn name_last(&mut self, name: Name) {
        if let Some(batch) = self.batches.last_mut().filter(|batch| batch.name == Name::None) {
            batch.name = name;
        }
    }

    /// Another server was asked since the last gap began. What is answered is what was dropped.
    pub(crate) fn told(&mut self, word: Word) -> Vec<Bytes> {
        match word {
            Word::Primary => self.confirmed = true,
            // What was heard before it was replaced, and without a gap, was true.
            Word::Replaced if !self.is_trusted() => return self.drop_held(),
            Word::Replaced | Word::Other => {}
        }
        Vec::new()
    }

    fn drop_held(&mut self) -> Vec<Bytes> {
        self.bytes = 0;
        let placed = mem::take(&mut self.placed).into_iter().map(|(key, ..)| key);
        let batches = mem::take(&mut self.batches).into_iter().flat_map(|batch| batch.keys.into_keys());
        let mut dropped: Vec<Bytes> = placed.chain(batches).collect();
        dropped.sort_unstable();
        dropped.dedup();
        dropped
    }

    /// What waits for nothing any more; that which has its place comes last, and in its order.
    pub(crate) fn release(&mut self) -> Vec<Released> {
        if !self.is_trusted() {
            return Vec::new();
        }
        self.bytes = 0;
        let of_batch = |Batch { keys, name }| {
            keys.into_iter().map(move |(key, times)| match name {
                Name::Canary(number) => Released::Gap(key, number, times),
                Name::None | Name::Torn => Released::Unknown(key, times),
            })
        };
        let batches = mem::take(&mut self.batches).into_iter().flat_map(of_batch);
        let placed = mem::take(&mut self.placed).into_iter();
        batches.chain(placed.map(|(key, at, since)| Released::Placed(key, at, since))).collect()
    }
}

/// What the streams of two servers say of a key that was read on the one, and is gone on the other, which answered
/// behind canary `touched`. All that the former has published was heard before; of deletions nothing can be told.
pub(crate) fn say_of_moved(here: &NodeStream, there: &NodeStream, watch: &Watch, touched: u64) -> Said {
    if watch.answered || there.stream.expired_since(watch) {
        return Said::Expired;
    }
    let whole = there.is_trusted() && there.stream.is_whole_since(watch);
    if !whole || !here.is_trusted() || !here.stream.is_anchored_before(watch.deadline) {
        return Said::Broken;
    }
    if here.stream.is_beyond(touched) { Said::Nothing } else { Said::NothingYet }
}

#[cfg(test)]
mod tests;
