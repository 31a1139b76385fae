//! Moves what a closed partition holds to where it belongs with another number of partitions.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::Console;
use crate::error::Result;
use crate::id::RepartitionId;
use crate::wire::{Cargo, Entry, LETTER_NAME, Listing, PartitionNames, partition_of};

/// Names of one page.
const PAGE: usize = 500;
/// Bytes of one page, roughly.
const PAGE_BYTES: usize = 1 << 20;

/// What is gone through of timers. Nearly all have a record; the others are what repairs would find.
const TIMERS: [Listing; 5] =
    [Listing::Records, Listing::Due, Listing::Quarantine, Listing::States, Listing::Next];
/// The same of dead letters.
const LETTERS: [Listing; 2] = [Listing::Dead, Listing::Letters];

/// Of one partition.
pub(super) struct Carrier<'a> {
    pub(super) console: &'a Console,
    pub(super) id: RepartitionId,
    pub(super) from: PartitionNames,
    /// All that there will be.
    pub(super) all: &'a [PartitionNames],
    /// Those that are closed.
    pub(super) waiting: &'a [PartitionNames],
}

/// What went elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    pub(super) timers: u64,
    pub(super) letters: u64,
}

/// Another call is over with this: a partition is open.
pub(super) struct Ended;

type Step<T> = Result<Result<T, Ended>>;

/// Goes on with what a step has answered, unless another call has ended it.
macro_rules! go_on {
    ($step:expr) => {
        match $step? {
            Ok(done) => done,
            Err(ended) => return Ok(Err(ended)),
        }
    };
}

impl Carrier<'_> {
    pub(super) async fn carry_all(&self) -> Step<Carried> {
        let mut carried = Carried::default();
        for what in TIMERS {
            carried.timers += go_on!(self.carry(what, Cargo::Timers).await);
        }
        for what in LETTERS {
            carried.letters += go_on!(self.carry(what, Cargo::Letters).await);
        }
        go_on!(self.spread_tombstones().await);
        Ok(Ok(carried))
    }

    async fn page(&self, what: Listing, cursor: u64) -> Result<(u64, Vec<Bytes>)> {
        let store = self.console.store();
        self.console.persist(|_| store.names_in(&self.from, what, cursor, PAGE)).await
    }

    /// Moves what belongs elsewhere, page by page; how many there were.
    async fn carry(&self, what: Listing, cargo: Cargo) -> Step<u64> {
        let (mut cursor, mut carried) = (0, 0);
        loop {
            let (next, mut names) = self.page(what, cursor).await?;
            names.retain(|name| self.home(cargo, name) != self.from.index);
            names.sort_unstable();
            names.dedup();
            for some in names.chunks(PAGE) {
                go_on!(self.move_all(cargo, some).await);
                carried += some.len() as u64;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Ok(carried));
            }
        }
    }

    /// Where it belongs.
    fn home(&self, cargo: Cargo, name: &[u8]) -> u32 {
        let key = if cargo == Cargo::Letters { name.get(LETTER_NAME..).unwrap_or_default() } else { name };
        partition_of(key, u32::try_from(self.all.len()).unwrap_or(u32::MAX))
    }

    /// Writes these to where they belong, and then removes them here.
    async fn move_all(&self, cargo: Cargo, mut names: &[Bytes]) -> Step<()> {
        let store = self.console.store();
        while !names.is_empty() {
            let mut bytes = PAGE_BYTES;
            let read = |repeat| {
                // What has had no answer may be too large for the server to send.
                bytes = if repeat { bytes.div_ceil(4) } else { bytes };
                store.read_entries(&self.from, cargo, names, bytes)
            };
            let (count, entries) = self.console.persist(read).await?;
            let (moved, others) = names.split_at(count.max(1));
            let mut by_home = BTreeMap::<u32, Vec<Entry>>::new();
            for entry in entries {
                by_home.entry(self.home(cargo, &entry.name)).or_default().push(entry);
            }
            for (home, entries) in by_home {
                go_on!(self.put(&self.all[home as usize], &entries).await);
            }
            let shed = self.console.persist(|_| store.shed(&self.from, self.id, cargo, moved)).await?;
            if !shed {
                return Ok(Err(Ended));
            }
            names = others;
        }
        Ok(Ok(()))
    }

    async fn put(&self, at: &PartitionNames, entries: &[Entry]) -> Step<()> {
        let store = self.console.store();
        let put = self.console.persist(|_| store.put_entries(at, self.id, entries)).await?;
        Ok(if put { Ok(()) } else { Err(Ended) })
    }

    /// A tombstone does not say of which key it is: all have it whose keys may have been here.
    async fn spread_tombstones(&self) -> Step<()> {
        let store = self.console.store();
        let mut cursor = 0;
        loop {
            let (next, names) = self.page(Listing::Tombstones, cursor).await?;
            let read = |_| store.read_entries(&self.from, Cargo::Tombstones, &names, usize::MAX >> 11);
            let entries = if names.is_empty() { Vec::new() } else { self.console.persist(read).await?.1 };
            for at in
                self.waiting.iter().filter(|at| at.index != self.from.index && may_have_come(&self.from, at))
            {
                if !entries.is_empty() {
                    go_on!(self.put(at, &entries).await);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Ok(()));
            }
        }
    }
}

/// Whether a key of one partition may belong into another: their indexes are the same modulo what both numbers can be
/// divided by.
pub(super) fn may_have_come(from: &PartitionNames, to: &PartitionNames) -> bool {
    let (mut a, mut b) = (from.of, to.of);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    from.index % a == to.index % a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_only_where_they_may_have_come_from() {
        let names = |index, of| PartitionNames::new("ns", "t", index, of, false);
        for (from, to) in [(4, 8), (8, 4), (3, 5), (6, 4), (1, 3), (5, 1)] {
            for key in 0..200u32 {
                let key = key.to_be_bytes();
                let (old, new) = (partition_of(&key, from), partition_of(&key, to));
                assert!(may_have_come(&names(old, from), &names(new, to)), "{old}/{from} to {new}/{to}");
            }
        }
        let reached = |from, of| (0..of).filter(|index| may_have_come(&from, &names(*index, of))).count();
        assert_eq!((reached(names(1, 4), 8), reached(names(5, 8), 4), reached(names(0, 3), 5)), (2, 1, 5));
    }
}
