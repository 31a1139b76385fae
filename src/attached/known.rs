//! Which deadlines the index has for certain, so that a key that only lives longer need not be enrolled again.
//!
//! An entry says that the index remembers this deadline of a key, or an earlier one: then a look comes in time, and
//! finds whatever later deadline the key has by then. It is *pending* until the enrolment is written, and ends with
//! all that may end the enrolment. Nothing is lost with an entry: its key is enrolled once more.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::time::ServerTime;

/// How many keys are known at most: 13 MB of them.
const MOST: usize = 450_000;
/// So long before its deadline other listeners look at a key, and may put off what is remembered of it; in ms.
const NEAR: u64 = 1000;
/// An enrolment that was confirmed longer ago is made again: whatever may have happened to it unheard.
const SOUND: Duration = Duration::from_secs(60);
/// A full table is rid of what has passed no more often than this, in ms.
const TIDY: u64 = 10_000;

/// The deadlines that a listener has written.
#[derive(Debug)]
pub(crate) struct KnownDeadlines {
    /// Keyed, so that nobody can choose keys that are taken for each other.
    hasher: RandomState,
    began: Instant,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry, BuildHasherDefault<AsItIs>>,
    /// Of the last entry.
    number: u32,
    /// What was entered before this one is doubted.
    sound_from: u32,
    /// The server's time, and when that was.
    clock: Option<(u64, Instant)>,
    tidied: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: u64,
    number: u32,
    /// When it was confirmed, in seconds from one on; 0: it is pending.
    since: u32,
}

/// An entry that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    key: u64,
    number: u32,
}

/// The keys are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl KnownDeadlines {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), began: Instant::now(), table: Mutex::default() }
    }

    /// A deadline was read, and is about to be written; none where there is no room for it.
    pub(crate) fn pend(&self, key: &[u8], deadline: u64, stamp: ServerTime) -> Option<Pending> {
        let key = self.hasher.hash_one(key);
        let mut table = lock(&self.table);
        table.clock = Some((stamp.ms(), Instant::now()));
        table.tidy(stamp.ms());
        if table.entries.len() >= MOST && !table.entries.contains_key(&key) {
            return None;
        }
        if table.number == u32::MAX {
            *table = Table::default();
        }
        table.number += 1;
        let number = table.number;
        table.entries.insert(key, Entry { deadline, number, since: 0 });
        Some(Pending { key, number })
    }

    /// It was written.
    pub(crate) fn confirm(&self, pending: Pending) {
        let since = self.seconds().saturating_add(1);
        let mut table = lock(&self.table);
        if let Some(entry) = table.entries.get_mut(&pending.key).filter(|it| it.number == pending.number) {
            entry.since = since;
        }
    }

    /// It was refused, or nobody knows.
    pub(crate) fn refuse(&self, pending: Pending) {
        let mut table = lock(&self.table);
        if table.entries.get(&pending.key).is_some_and(|it| it.number == pending.number) {
            table.entries.remove(&pending.key);
        }
    }

    /// The key has expired or is gone: what is remembered of it ends, and what comes is another life.
    pub(crate) fn forget(&self, key: &[u8]) {
        let key = self.hasher.hash_one(key);
        lock(&self.table).entries.remove(&key);
    }

    /// Anything may have happened to all of them.
    pub(crate) fn doubt(&self) {
        let mut table = lock(&self.table);
        table.sound_from = table.number.saturating_add(1);
    }

    /// Whether nothing is known of a key, so that its value is wanted, too. In a full table that cannot be told.
    pub(crate) fn is_new(&self, key: &[u8]) -> bool {
        let key = self.hasher.hash_one(key);
        let table = lock(&self.table);
        table.entries.len() < MOST && !table.entries.contains_key(&key)
    }

    /// Whether a key that has this deadline at this time need not be enrolled: it will be looked at no later.
    pub(crate) fn covers(&self, key: &[u8], deadline: u64, stamp: ServerTime) -> bool {
        let key = self.hasher.hash_one(key);
        let mut table = lock(&self.table);
        table.clock = Some((stamp.ms(), Instant::now()));
        table.sound(key, stamp.ms(), self.seconds()).is_some_and(|known| known <= deadline)
    }

    /// Whether a key of which nobody ever brings the deadline forward need not even be read.
    pub(crate) fn is_certain(&self, key: &[u8]) -> bool {
        let key = self.hasher.hash_one(key);
        let table = lock(&self.table);
        let Some((ms, at)) = table.clock else { return false };
        table.sound(key, ms + at.elapsed().as_millis() as u64, self.seconds()).is_some()
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX - 1)
    }
}

impl Table {
    /// The deadline that the index has for certain.
    fn sound(&self, key: u64, now: u64, seconds: u32) -> Option<u64> {
        let Entry { deadline, number, since } = *self.entries.get(&key)?;
        let confirmed = since > 0 && number >= self.sound_from;
        let recent = u64::from(seconds + 1 - since.min(seconds + 1)) < SOUND.as_secs();
        (confirmed && recent && now + NEAR < deadline).then_some(deadline)
    }

    /// Makes room, if there is none.
    fn tidy(&mut self, now: u64) {
        if self.entries.len() >= MOST && now >= self.tidied + TIDY {
            self.tidied = now;
            let sound_from = self.sound_from;
            self.entries.retain(|_, entry| entry.deadline > now && entry.number >= sound_from);
        }
    }
}

#[cfg(test)]
mod tests;
