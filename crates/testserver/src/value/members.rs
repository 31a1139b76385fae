//! Sets.

use bytes::Bytes;

use super::{ELEMENT_OVERHEAD_BYTES, ScanMap};

/// The members of a set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    map: ScanMap<()>,
    size: usize,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn contains(&self, member: &Bytes) -> bool {
        self.map.contains(member)
    }

    /// Adds a member, and returns whether it is new.
    pub(crate) fn add(&mut self, member: &Bytes) -> bool {
        let new = self.map.insert(member, ()).is_none();
        self.size += if new { member.len() + ELEMENT_OVERHEAD_BYTES } else { 0 };
        new
    }

    /// Removes a member, and returns whether it existed.
    pub(crate) fn remove(&mut self, member: &Bytes) -> bool {
        let old = self.map.remove(member).is_some();
        self.size -= if old { member.len() + ELEMENT_OVERHEAD_BYTES } else { 0 };
        old
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.map.iter().map(|(member, ())| member)
    }

    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<&Bytes>) {
        let (next, page) = self.map.scan(cursor, count);
        (next, page.into_iter().map(|(member, ())| member).collect())
    }
}
