//! Hashes.

use bytes::Bytes;

use super::{ELEMENT_OVERHEAD_BYTES, ScanMap};

/// Redis stores a hash within these limits in one piece, and HSCAN returns it in one page.
const COMPACT_FIELDS: usize = 128;
const COMPACT_BYTES: usize = 64;

/// The fields of a hash.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashFields {
    map: ScanMap<Bytes>,
    size: usize,
    /// True once the hash was larger than the limits. Redis never compacts it again.
    spread: bool,
}

impl HashFields {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_compact(&self) -> bool {
        !self.spread
    }

    pub(crate) fn get(&self, field: &Bytes) -> Option<&Bytes> {
        self.map.get(field)
    }

    pub(crate) fn contains(&self, field: &Bytes) -> bool {
        self.map.contains(field)
    }

    /// Sets a field, and returns whether it is new.
    pub(crate) fn set(&mut self, field: &Bytes, value: Bytes) -> bool {
        self.size += field.len() + value.len() + ELEMENT_OVERHEAD_BYTES;
        self.spread |= field.len() > COMPACT_BYTES || value.len() > COMPACT_BYTES;
        let old = self.map.insert(field, value);
        self.spread |= self.map.len() > COMPACT_FIELDS;
        self.size -= old.as_ref().map_or(0, |old| field.len() + old.len() + ELEMENT_OVERHEAD_BYTES);
        old.is_none()
    }

    /// Removes a field, and returns whether it existed.
    pub(crate) fn remove(&mut self, field: &Bytes) -> bool {
        let old = self.map.remove(field);
        self.size -= old.as_ref().map_or(0, |old| field.len() + old.len() + ELEMENT_OVERHEAD_BYTES);
        old.is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.map.iter()
    }

    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &Bytes)>) {
        if self.spread { self.map.scan(cursor, count) } else { (0, self.map.iter().collect()) }
    }
}
