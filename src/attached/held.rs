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

use crate::wire::Position;

/// Bytes of keys that are held at most, and what a key takes besides, about: 400,000 keys of 20 bytes are 46 MB. With what
/// waits before them, and the few that are read at a time, they cost a listener less than 100 MB.
const MOST: usize = 64 << 20;
const BESIDE_KEY: usize = 96;

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
    /// Heard in the last gap; those of it that are being read; and what was heard in the gaps before.
    last: Batch,
    reading: HashMap<Bytes, u32>,
    torn: Vec<Batch>,
    placed: Vec<Placed>,
    bytes: usize,
}

impl Held {
    pub(super) fn new(alone: bool) -> Self {
        Self {
            confirmed: alone,
            alone,
            last: Batch::default(),
            reading: HashMap::new(),
            torn: Vec::new(),
            placed: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_last_empty() && self.torn.is_empty() && self.placed.is_empty()
    }

    fn is_last_empty(&self) -> bool {
        self.last.keys.is_empty() && self.reading.is_empty()
    }

    /// A key was heard to expire in a gap; false where there is no room.
    pub(super) fn hear(&mut self, key: Bytes) -> bool {
        if let Some(times) = self.last.keys.get_mut(&key) {
            *times += 1;
            return true;
        }
        self.take_room(&key) && self.last.keys.insert(key, 1).is_none()
    }

    /// The same behind a canary.
    pub(super) fn place(&mut self, placed: Placed) -> bool {
        let fits = self.take_room(&placed.key);
        if fits {
            self.placed.push(placed);
        }
        fits
    }

    fn take_room(&mut self, key: &Bytes) -> bool {
        let bytes = self.bytes + key.len() + BESIDE_KEY;
        let fits = bytes <= MOST;
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    fn give_room(&mut self, key: &Bytes) {
        self.bytes -= key.len() + BESIDE_KEY;
    }

    /// The canary after the last gap: what was heard in it is called by that, unless it has its name already. How many
    /// keys these are.
    pub(super) fn name(&mut self, canary: u64) -> usize {
        let unnamed = if self.last.canary.is_none() { self.last.keys.len() } else { 0 };
        if unnamed > 0 {
            self.last.canary = Some(canary);
        }
        unnamed
    }

    /// What has its name keeps it; what has none will have none, where more was missed since.
    pub(super) fn tear(&mut self, missed: bool) {
        if (missed || self.last.canary.is_some()) && !self.is_last_empty() {
            let last = self.take_last();
            self.torn.push(last);
        }
    }

    /// All of the last gap, whether it is being read or not.
    fn take_last(&mut self) -> Batch {
        let mut last = mem::take(&mut self.last);
        last.keys.extend(mem::take(&mut self.reading));
        last
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
        let last = self.take_last();
        let batches = mem::take(&mut self.torn).into_iter().chain([last]);
        let placed = mem::take(&mut self.placed).into_iter().map(|placed| placed.key);
        let mut all: Vec<Bytes> = batches.flat_map(|batch| batch.keys.into_keys()).chain(placed).collect();
        all.sort_unstable();
        all.dedup();
        self.bytes = 0;
        all
    }

    /// What was heard behind a canary, in its order, once its server is believed.
    pub(super) fn take_placed(&mut self) -> Vec<Placed> {
        let placed = mem::take(&mut self.placed);
        placed.iter().for_each(|placed| self.give_room(&placed.key));
        placed
    }

    /// What was heard in gaps before the last.
    pub(super) fn take_torn(&mut self) -> Vec<Batch> {
        let torn = mem::take(&mut self.torn);
        torn.iter().flat_map(|batch| batch.keys.keys()).for_each(|key| self.give_room(key));
        torn
    }

    /// How the last gap's keys are called.
    pub(super) fn canary(&self) -> Option<u64> {
        self.last.canary
    }

    /// Returns up to `most` keys of the last gap, and marks them as being read. Returns none before a canary follows the gap.
    pub(super) fn next_to_read(&mut self, most: usize) -> Vec<Bytes> {
        if self.last.canary.is_none() {
            return Vec::new();
        }
        let keys: Vec<Bytes> = self.last.keys.keys().take(most).cloned().collect();
        for key in &keys {
            self.reading.extend(self.last.keys.remove_entry(key));
        }
        keys
    }

    /// Whether it will still be noted that this key has expired in the last gap.
    pub(super) fn has(&self, key: &Bytes) -> bool {
        self.last.keys.contains_key(key) || self.reading.contains_key(key)
    }

    /// Takes out a key of the last gap: how often it was heard.
    pub(super) fn remove(&mut self, key: &Bytes) -> Option<u32> {
        let times = self.reading.remove(key).or_else(|| self.last.keys.remove(key))?;
        self.give_room(key);
        if self.is_last_empty() {
            self.last = Batch::default(); // with the memory that it has
        }
        Some(times)
    }

    /// Takes out one of the times that it was heard; whether there was one.
    pub(super) fn take_one(&mut self, key: &Bytes) -> bool {
        let times = self.reading.get_mut(key).or_else(|| self.last.keys.get_mut(key));
        let Some(times) = times else { return false };
        *times -= 1;
        if *times == 0 {
            self.remove(key);
        }
        true
    }
}

#[cfg(test)]
mod tests;
