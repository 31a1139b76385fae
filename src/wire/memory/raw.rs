//! Ways to do what no call does: tests of broken data and of strangers' keys.

use bytes::Bytes;

use crate::wire::memory::MemoryStore;
use crate::error::Result;
use crate::wire::types::Scan;
use crate::wire::names::Partition;

impl MemoryStore {
    /// Puts somebody else's value where a trigger key might go.
    pub fn put_foreign(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.world().triggers.put_foreign(key.into(), value.into());
    }

    /// Lets a key expire then, whoever has written it, as PEXPIREAT does.
    pub fn expire_at(&self, key: &[u8], deadline: u64) {
        let now = self.0.clock.now().ms();
        self.world().triggering(|keys| keys.expire_at(now, key, deadline));
    }

    /// What stands in a trigger key.
    pub fn trigger(&self, key: &[u8]) -> Option<Bytes> {
        let now = self.0.clock.now().ms();
        self.world().triggering(|keys| keys.get(now, key))
    }

    /// For the conformance suite: writes a field of one of the hashes, or
    /// deletes it, and nothing else.
    #[doc(hidden)]
    pub fn put_raw(&self, at: &Partition, hash: Scan, key: &[u8], value: Option<Bytes>) -> Result<()> {
        let mut world = self.world();
        let ledger = world.agree(at)?;
        let hash = match hash {
            Scan::Records => &mut ledger.rec,
            Scan::States => &mut ledger.run,
            Scan::Next => &mut ledger.next,
            Scan::Lanes => return Ok(()),
        };
        match value {
            Some(value) => hash.insert(Bytes::copy_from_slice(key), value),
            None => hash.remove(key),
        };
        Ok(())
    }

    /// For the conformance suite: loses the index entry of a timer.
    #[doc(hidden)]
    pub fn unindex(&self, at: &Partition, key: &[u8]) -> Result<()> {
        self.world().agree(at)?.unindex(key);
        Ok(())
    }
}
