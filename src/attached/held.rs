//! What was heard of a server and is not noted yet: because it has no name, or because its server is not believed.
//!
//! What is heard in a gap is called by the canary after it, counted back; what is followed by another gap first has no
//! name. Of several servers one that missed something may have been replaced, and announces what its successor has
//! announced: so what it has said behind a canary waits, too, until another server has named it a primary since.
//!
//! Pure: no clock, no server. The rules are those of docs/attach-protocol.md.

use std::collections::HashMap;
use std::mem;

use bytes::Bytes;

use crate::backlog::ByteBounded;
use crate::wire::{NodeId, Position};

/// Bytes of keys that are held at most, and what a key takes besides, about: 400,000 keys of 20 bytes are 46 MB. With what
/// waits before them, and the few that are read at a time, they cost a listener less than 100 MB.
const MOST: usize = 64 << 20;
const EACH: usize = 96;
/// The same of one in a list.
const EACH_LISTED: usize = 32;

/// What was heard in one gap since something was missed last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// How often each key was heard to expire.
    pub(super) keys: HashMap<Bytes, u32>,
    /// The canary after it.
    pub(super) canary: Option<u64>,
}

/// What was heard behind a canary, of a server that is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) partition: usize,
    pub(super) key: Bytes,
    pub(super) at: Position,
    /// The canary since which everything was heard.
    pub(super) since: u64,
}

/// All of it, of one server.
#[derive(Debug)]
pub(super) struct Held {
    /// Whether nobody can have replaced it: it is alone, or another has named it a primary since something of it was
    /// missed.
    confirmed: bool,
    alone: bool,
    kept: ByteBounded<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Heard in the last gap; those of it that are being read; and what was heard in the gaps before.
    last: Batch,
    reading: HashMap<Bytes, u32>,
    torn: Vec<Batch>,
    placed: Vec<Placed>,
}

impl Kept {
    fn is_last_empty(&self) -> bool {
        self.last.keys.is_empty() && self.reading.is_empty()
    }

    /// All of the last gap, whether it is being read or not.
    fn take_last(&mut self) -> Batch {
        let mut last = mem::take(&mut self.last);
        last.keys.extend(mem::take(&mut self.reading));
        last
    }
}

impl Held {
    pub(super) fn new(alone: bool) -> Self {
        Self { confirmed: alone, alone, kept: ByteBounded::new(MOST, EACH) }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_last_empty() && self.kept.torn.is_empty() && self.kept.placed.is_empty()
    }

    /// A key was heard to expire in a gap; false where there is no room.
    pub(super) fn hear(&mut self, key: Bytes) -> bool {
        if let Some(times) = self.kept.last.keys.get_mut(&key) {
            *times += 1;
            return true;
        }
        self.kept.take_room(&key) && self.kept.last.keys.insert(key, 1).is_none()
    }

    /// The same behind a canary.
    pub(super) fn place(&mut self, placed: Placed) -> bool {
        let fits = self.kept.take_room(&placed.key);
        if fits {
            self.kept.placed.push(placed);
        }
        fits
    }

    /// The canary after the last gap: what was heard in it is called by that, unless it has its name already. How many
    /// keys these are.
    pub(super) fn name(&mut self, canary: u64) -> usize {
        let last = &mut self.kept.last;
        let unnamed = if last.canary.is_none() { last.keys.len() } else { 0 };
        if unnamed > 0 {
            last.canary = Some(canary);
        }
        unnamed
    }

    /// What has its name keeps it; what has none will have none, where more was missed since.
    pub(super) fn tear(&mut self, missed: bool) {
        if (missed || self.kept.last.canary.is_some()) && !self.kept.is_last_empty() {
            let last = self.kept.take_last();
            self.kept.torn.push(last);
        }
    }

    /// Something of it was missed, and who it is now is for others to say.
    pub(super) fn doubt(&mut self) {
        self.confirmed = self.alone;
    }

    /// Another server has named it a primary.
    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Another has its place, and what it has announced since something was missed is for that one to say: all of it.
    pub(super) fn give_up(&mut self) -> Vec<Bytes> {
        let mut kept = self.kept.take_all();
        let last = kept.take_last();
        let batches = kept.torn.into_iter().chain([last]);
        let placed = kept.placed.into_iter().map(|placed| placed.key);
        let mut all: Vec<Bytes> = batches.flat_map(|batch| batch.keys.into_keys()).chain(placed).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What was heard behind a canary, in its order, once its server is believed.
    pub(super) fn take_placed(&mut self) -> Vec<Placed> {
        let placed = mem::take(&mut self.kept.placed);
        placed.iter().for_each(|placed| self.kept.give_room(&placed.key));
        placed
    }

    /// What was heard in gaps before the last.
    pub(super) fn take_torn(&mut self) -> Vec<Batch> {
        let torn = mem::take(&mut self.kept.torn);
        torn.iter().flat_map(|batch| batch.keys.keys()).for_each(|key| self.kept.give_room(key));
        torn
    }

    /// How the last gap's keys are called.
    pub(super) fn canary(&self) -> Option<u64> {
        self.kept.last.canary
    }

    /// Returns up to `most` keys of the last gap, and marks them as being read. Returns none before a canary follows the gap.
    pub(super) fn next_to_read(&mut self, most: usize) -> Vec<Bytes> {
        let Kept { last, reading, .. } = &mut *self.kept;
        if last.canary.is_none() {
            return Vec::new();
        }
        let keys: Vec<Bytes> = last.keys.keys().take(most).cloned().collect();
        for key in &keys {
            reading.extend(last.keys.remove_entry(key));
        }
        keys
    }

    /// Whether it will still be noted that this key has expired in the last gap.
    pub(super) fn has(&self, key: &Bytes) -> bool {
        self.kept.last.keys.contains_key(key) || self.kept.reading.contains_key(key)
    }

    /// Takes out a key of the last gap: how often it was heard.
    pub(super) fn remove(&mut self, key: &Bytes) -> Option<u32> {
        let Kept { last, reading, .. } = &mut *self.kept;
        let times = reading.remove(key).or_else(|| last.keys.remove(key))?;
        self.kept.give_room(key);
        if self.kept.is_last_empty() {
            self.kept.last = Batch::default(); // with the memory that it has
        }
        Some(times)
    }

    /// Takes out one of the times that it was heard; whether there was one.
    pub(super) fn take_one(&mut self, key: &Bytes) -> bool {
        let Kept { last, reading, .. } = &mut *self.kept;
        let times = reading.get_mut(key).or_else(|| last.keys.get_mut(key));
        let Some(times) = times else { return false };
        *times -= 1;
        if *times == 0 {
            self.remove(key);
        }
        true
    }
}

/// What servers have announced that others had replaced, until it is known which of these keys are gone: by who has announced
/// it, all that one reader keeps.
#[derive(Debug)]
pub(super) struct Replaced(ByteBounded<Vec<(NodeId, Vec<Bytes>)>>);

impl Default for Replaced {
    fn default() -> Self {
        Self(ByteBounded::new(MOST, EACH_LISTED))
    }
}

impl Replaced {
    /// How many of these keys found no room.
    pub(super) fn keep(&mut self, by: NodeId, mut keys: Vec<Bytes>) -> usize {
        let before = keys.len();
        keys.retain(|key| self.0.take_room(key));
        let lost = before - keys.len();
        if !keys.is_empty() {
            self.0.push((by, keys));
        }
        lost
    }

    /// All of it; nothing is left.
    pub(super) fn take(&mut self) -> Vec<(NodeId, Vec<Bytes>)> {
        self.0.take_all()
    }

    /// No more than so many, all by one.
    pub(super) fn take_some(&mut self, most: usize) -> Option<(NodeId, Vec<Bytes>)> {
        let (by, keys) = self.0.last_mut()?;
        let (by, some) = (*by, keys.split_off(keys.len().saturating_sub(most)));
        if keys.is_empty() {
            self.0.pop();
        }
        some.iter().for_each(|key| self.0.give_room(key));
        Some((by, some))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys these are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, keys)| keys.len()).sum()
    }
}

#[cfg(test)]
mod tests;
