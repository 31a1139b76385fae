//! The deadlines that this listener has tracked. A key whose TTL was only extended need not be tracked again.
//!
//! An entry is *valid* if the index certainly has this deadline of a key, or an earlier one. A check then comes in time,
//! and finds any later deadline. An entry is *pending* until its deadline is written. Every event that may end the
//! tracking of a key removes its entry. A lost entry does no harm: its key is tracked once more.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::time::ServerTime;

/// Maximum number of entries, which take 13 MB.
const MAX_KNOWN_KEYS: usize = 450_000;
/// An entry is invalid this long before its deadline, in ms: other listeners may check the key by then, and replace its
/// tracked deadline.
const CHECK_LEAD_MS: u64 = 1000;
/// An entry is invalid this long after it was confirmed, in case the tracking of its key ended unnoticed.
const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(60);
/// The shortest time between two cleanups of a full table, in ms.
const MIN_CLEANUP_INTERVAL_MS: u64 = 10_000;

/// A table of deadlines by the hash of their key.
#[derive(Debug)]
pub(crate) struct KnownDeadlines {
    /// Uses random seeds, so that nobody can choose keys with equal hashes.
    hasher: RandomState,
    created_at: Instant,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry, BuildHasherDefault<PassThroughHasher>>,
    /// The number of the last entry.
    last_number: u32,
    /// Entries with a lower number are invalid.
    first_valid: u32,
    /// The last server time, in ms, and when it was received. The present server time is estimated from it.
    clock: Option<(u64, Instant)>,
    /// The server time of the last cleanup, in ms.
    cleaned_at_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: u64,
    number: u32,
    /// When the entry was confirmed, in seconds since `created_at`, plus 1. A pending entry has 0.
    confirmed_at: u32,
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
        Self { hasher: RandomState::new(), created_at: Instant::now(), table: Mutex::default() }
    }

    /// Adds a deadline that is about to be written. Returns None if the table is full.
    pub(crate) fn add_pending(
        &self,
        key: &[u8],
        deadline: u64,
        stamp: ServerTime,
    ) -> Option<PendingDeadline> {
        let key = self.hasher.hash_one(key);
        let mut table = lock(&self.table);
        table.clock = Some((stamp.ms(), Instant::now()));
        table.clean_if_full(stamp.ms());
        if table.entries.len() >= MAX_KNOWN_KEYS && !table.entries.contains_key(&key) {
            return None;
        }
        if table.last_number == u32::MAX {
            *table = Table::default();
        }
        table.last_number += 1;
        let number = table.last_number;
        table.entries.insert(key, Entry { deadline, number, confirmed_at: 0 });
        Some(PendingDeadline { key, number })
    }

    /// Confirms an entry whose deadline was written.
    pub(crate) fn confirm(&self, pending: PendingDeadline) {
        let confirmed_at = self.seconds_since_creation().saturating_add(1);
        let mut table = lock(&self.table);
        if let Some(entry) = table.entries.get_mut(&pending.key).filter(|it| it.number == pending.number) {
            entry.confirmed_at = confirmed_at;
        }
    }

    /// Removes an entry whose deadline was refused, or may not have been written.
    pub(crate) fn remove_pending(&self, pending: PendingDeadline) {
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
        table.first_valid = table.last_number.saturating_add(1);
    }

    /// Returns whether a key has no entry, not even an invalid one. Returns false if the table is full, as the key may be
    /// tracked without an entry. The value of a new key is read together with its deadline.
    pub(crate) fn is_new(&self, key: &[u8]) -> bool {
        let key = self.hasher.hash_one(key);
        let table = lock(&self.table);
        table.entries.len() < MAX_KNOWN_KEYS && !table.entries.contains_key(&key)
    }

    /// Returns whether a key with this deadline need not be tracked again: it has a valid entry that is not later.
    pub(crate) fn covers(&self, key: &[u8], deadline: u64, stamp: ServerTime) -> bool {
        let key = self.hasher.hash_one(key);
        let mut table = lock(&self.table);
        table.clock = Some((stamp.ms(), Instant::now()));
        table
            .valid_deadline(key, stamp.ms(), self.seconds_since_creation())
            .is_some_and(|known| known <= deadline)
    }

    /// Returns whether a key has a valid entry at the estimated server time. If deadlines only ever move later, such a
    /// key need not even be read.
    pub(crate) fn is_covered_if_extended(&self, key: &[u8]) -> bool {
        let key = self.hasher.hash_one(key);
        let table = lock(&self.table);
        let Some((ms, at)) = table.clock else { return false };
        table
            .valid_deadline(key, ms + at.elapsed().as_millis() as u64, self.seconds_since_creation())
            .is_some()
    }

    fn seconds_since_creation(&self) -> u32 {
        u32::try_from(self.created_at.elapsed().as_secs()).unwrap_or(u32::MAX - 1)
    }
}

impl Table {
    /// Returns the deadline of an entry, if it is valid. `now` is the server's time in ms, and `seconds` the time since
    /// `created_at`.
    fn valid_deadline(&self, key: u64, now: u64, seconds: u32) -> Option<u64> {
        let Entry { deadline, number, confirmed_at } = *self.entries.get(&key)?;
        let confirmed = confirmed_at > 0 && number >= self.first_valid;
        let recent = u64::from(seconds + 1 - confirmed_at.min(seconds + 1)) < CONFIRMATION_LIFETIME.as_secs();
        (confirmed && recent && now + CHECK_LEAD_MS < deadline).then_some(deadline)
    }

    /// Removes past and invalid entries from a full table.
    fn clean_if_full(&mut self, now: u64) {
        if self.entries.len() >= MAX_KNOWN_KEYS && now >= self.cleaned_at_ms + MIN_CLEANUP_INTERVAL_MS {
            self.cleaned_at_ms = now;
            let first_valid = self.first_valid;
            self.entries.retain(|_, entry| entry.deadline > now && entry.number >= first_valid);
        }
    }
}

#[cfg(test)]
mod tests;
