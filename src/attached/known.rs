//! The deadlines that the index certainly has. A key whose TTL was only extended need not be tracked again.
//!
//! An entry means that the index has this deadline of a key, or an earlier one. A check then comes in time, and finds
//! any later deadline. An entry is *pending* until its deadline is written. Every event that may end the tracking of a
//! key removes its entry. A lost entry does no harm: its key is tracked once more.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::time::ServerTime;

/// Maximum number of entries, which take 13 MB.
const MAX_KNOWN_KEYS: usize = 450_000;
/// Other listeners may check a key this long before its deadline, and then move its tracked deadline; in ms.
const CHECK_LEAD_MS: u64 = 1000;
/// A deadline that was confirmed longer ago is tracked again, in case its tracking ended unnoticed.
const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(60);
/// The shortest time between two cleanups of a full table, in ms.
const TIDY: u64 = 10_000;

/// The deadlines that a listener has tracked.
#[derive(Debug)]
pub(crate) struct KnownDeadlines {
    /// Uses random seeds, so that nobody can choose keys with equal hashes.
    hasher: RandomState,
    began: Instant,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry, BuildHasherDefault<PassThroughHasher>>,
    /// The number of the last entry.
    number: u32,
    /// Entries with a lower number are invalid.
    sound_from: u32,
    /// The last server time, in ms, and when it was received.
    clock: Option<(u64, Instant)>,
    tidied: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: u64,
    number: u32,
    /// When the entry was confirmed, in seconds since `began`, plus 1. A pending entry has 0.
    since: u32,
}

/// A handle to a pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingDeadline {
    key: u64,
    number: u32,
}

/// Returns its input, as the keys of the table are hashes.
#[derive(Default)]
struct PassThroughHasher(u64);

impl Hasher for PassThroughHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys of the table are u64 hashes")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl KnownDeadlines {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), began: Instant::now(), table: Mutex::default() }
    }

    /// Adds a deadline that is about to be written. Returns None if the table is full.
    pub(crate) fn pend(&self, key: &[u8], deadline: u64, stamp: ServerTime) -> Option<PendingDeadline> {
        let key = self.hasher.hash_one(key);
        let mut table = lock(&self.table);
        table.clock = Some((stamp.ms(), Instant::now()));
        table.tidy(stamp.ms());
        if table.entries.len() >= MAX_KNOWN_KEYS && !table.entries.contains_key(&key) {
            return None;
        }
        if table.number == u32::MAX {
            *table = Table::default();
        }
        table.number += 1;
        let number = table.number;
        table.entries.insert(key, Entry { deadline, number, since: 0 });
        Some(PendingDeadline { key, number })
    }

    /// Confirms an entry after its deadline was written.
    pub(crate) fn confirm(&self, pending: PendingDeadline) {
        let since = self.seconds().saturating_add(1);
        let mut table = lock(&self.table);
        if let Some(entry) = table.entries.get_mut(&pending.key).filter(|it| it.number == pending.number) {
            entry.since = since;
        }
    }

    /// Removes an entry whose deadline was refused, or may not have been written.
    pub(crate) fn refuse(&self, pending: PendingDeadline) {
        let mut table = lock(&self.table);
        if table.entries.get(&pending.key).is_some_and(|it| it.number == pending.number) {
            table.entries.remove(&pending.key);
        }
    }

    /// Removes the entry of a key that has expired or is gone. If the key is written again, a new expiry cycle begins.
    pub(crate) fn forget(&self, key: &[u8]) {
        let key = self.hasher.hash_one(key);
        lock(&self.table).entries.remove(&key);
    }

    /// Invalidates all entries, as the index may have changed unnoticed.
    pub(crate) fn invalidate_all(&self) {
        let mut table = lock(&self.table);
        table.sound_from = table.number.saturating_add(1);
    }

    /// Returns whether a key has no entry, so that its value is read, too. Returns false if the table is full, as the
    /// key may be tracked without an entry.
    pub(crate) fn is_new(&self, key: &[u8]) -> bool {
        let key = self.hasher.hash_one(key);
        let table = lock(&self.table);
        table.entries.len() < MAX_KNOWN_KEYS && !table.entries.contains_key(&key)
    }

    /// Returns whether a key with this deadline need not be tracked again, as its check comes in time.
    pub(crate) fn covers(&self, key: &[u8], deadline: u64, stamp: ServerTime) -> bool {
        let key = self.hasher.hash_one(key);
        let mut table = lock(&self.table);
        table.clock = Some((stamp.ms(), Instant::now()));
        table.sound(key, stamp.ms(), self.seconds()).is_some_and(|known| known <= deadline)
    }

    /// Returns whether a key need not even be read, if its deadline only ever moves later.
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
    /// Returns the deadline of a valid entry.
    fn sound(&self, key: u64, now: u64, seconds: u32) -> Option<u64> {
        let Entry { deadline, number, since } = *self.entries.get(&key)?;
        let confirmed = since > 0 && number >= self.sound_from;
        let recent = u64::from(seconds + 1 - since.min(seconds + 1)) < CONFIRMATION_LIFETIME.as_secs();
        (confirmed && recent && now + CHECK_LEAD_MS < deadline).then_some(deadline)
    }

    /// Removes past and invalid entries from a full table.
    fn tidy(&mut self, now: u64) {
        if self.entries.len() >= MAX_KNOWN_KEYS && now >= self.tidied + TIDY {
            self.tidied = now;
            let sound_from = self.sound_from;
            self.entries.retain(|_, entry| entry.deadline > now && entry.number >= sound_from);
        }
    }
}

#[cfg(test)]
mod tests;
