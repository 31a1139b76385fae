//! The keys, their values and their expiries.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::random::Random;
use crate::value::{ELEMENT_OVERHEAD_BYTES, ScanMap, StoredValue};

/// The value and the expiry of a key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: StoredValue,
    /// The deadline in ms since 1970.
    expires: Option<u64>,
    /// When the server deletes the key if nobody reads it, in µs since 1970.
    found: u64,
}

impl Entry {
    pub(crate) fn new(value: StoredValue) -> Self {
        Self { value, expires: None, found: 0 }
    }

    pub(crate) fn expires(&self) -> Option<u64> {
        self.expires
    }
}

/// How late the server deletes expired keys that nobody reads.
#[derive(Debug)]
pub(crate) struct ExpiryLateness {
    pub(crate) most_micros: u64,
    /// `None` always gives the maximum.
    pub(crate) random: Option<Random>,
}

impl ExpiryLateness {
    fn next(&mut self) -> u64 {
        match &mut self.random {
            Some(random) => random.up_to(self.most_micros),
            None => self.most_micros,
        }
    }
}

/// All keys of the one database.
#[derive(Debug)]
pub(crate) struct Keyspace {
    entries: ScanMap<Entry>,
    /// The keys with an expiry, by the time at which the server deletes them.
    schedule: BTreeSet<(u64, Bytes)>,
    lateness: ExpiryLateness,
}

impl Keyspace {
    pub(crate) fn new(lateness: ExpiryLateness) -> Self {
        Self { entries: ScanMap::default(), schedule: BTreeSet::new(), lateness }
    }

    pub(crate) fn get(&self, key: &Bytes) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Returns the value for a change. [`set_expiry`](Self::set_expiry) changes the expiry.
    pub(crate) fn value_mut(&mut self, key: &Bytes) -> Option<&mut StoredValue> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// Sets a value without an expiry, and returns whether the key is new.
    pub(crate) fn put(&mut self, key: &Bytes, value: StoredValue) -> bool {
        let old = self.entries.insert(key, Entry::new(value));
        self.unschedule(key, old.as_ref());
        old.is_none()
    }

    pub(crate) fn remove(&mut self, key: &Bytes) -> Option<Entry> {
        let old = self.entries.remove(key);
        self.unschedule(key, old.as_ref());
        old
    }

    pub(crate) fn set_expiry(&mut self, key: &Bytes, expires: Option<u64>) {
        let found = expires.map(|at| {
            // A key still exists in the millisecond of its deadline.
            at.saturating_mul(1000).saturating_add(self.lateness.next().max(1000))
        });
        let Some(entry) = self.entries.get_mut(key) else { return };
        let old = entry.expires.is_some().then_some(entry.found);
        (entry.expires, entry.found) = (expires, found.unwrap_or_default());
        if let Some(old) = old {
            self.schedule.remove(&(old, key.clone()));
        }
        if let Some(found) = found {
            self.schedule.insert((found, key.clone()));
        }
    }

    fn unschedule(&mut self, key: &Bytes, old: Option<&Entry>) {
        if let Some(old) = old.filter(|old| old.expires.is_some()) {
            self.schedule.remove(&(old.found, key.clone()));
        }
    }

    /// Returns when the server deletes the next expired key, in µs since 1970.
    pub(crate) fn next_found(&self) -> Option<u64> {
        self.schedule.first().map(|(found, _)| *found)
    }

    /// Returns an expired key that the server deletes by now.
    pub(crate) fn found_by(&self, now_micros: u64) -> Option<Bytes> {
        self.schedule.first().filter(|(found, _)| *found <= now_micros).map(|(_, key)| key.clone())
    }

    pub(crate) fn clear(&mut self) {
        self.entries = ScanMap::default();
        self.schedule.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of keys with an expiry.
    pub(crate) fn volatile(&self) -> usize {
        self.schedule.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.entries.iter()
    }

    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<Bytes>) {
        let (next, page) = self.entries.scan(cursor, count);
        (next, page.into_iter().map(|(key, _)| key.clone()).collect())
    }

    pub(crate) fn near(&self, point: u32) -> Option<Bytes> {
        self.entries.near(point).cloned()
    }

    /// Returns an estimate of the bytes of all keys and values.
    pub(crate) fn size(&self) -> usize {
        self.iter().map(|(key, entry)| key.len() + entry.value.size() + 2 * ELEMENT_OVERHEAD_BYTES).sum()
    }
}
