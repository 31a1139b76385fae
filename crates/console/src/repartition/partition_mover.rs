//! Moves the entries of a closed partition to the partitions to which the new number assigns them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::Console;
use crate::error::Result;
use crate::id::RepartitionId;
use crate::wire::{LETTER_NAME, ListTarget, MovedEntry, MovedKind, PartitionNames, partition_of};

const NAMES_PER_PAGE: usize = 500;
/// The approximate size of one page.
const PAGE_BYTES: usize = 1 << 20;

/// The collections that are scanned for timers. Nearly all timers have a record; the other collections hold leftovers that a
/// repair would find.
const TIMERS: [ListTarget; 5] =
    [ListTarget::Records, ListTarget::Due, ListTarget::Quarantine, ListTarget::States, ListTarget::Next];
/// The collections that are scanned for dead letters.
const LETTERS: [ListTarget; 2] = [ListTarget::Dead, ListTarget::Letters];

/// The move of one partition's entries.
pub(super) struct PartitionMover<'a> {
    pub(super) console: &'a Console,
    pub(super) id: RepartitionId,
    pub(super) from: PartitionNames,
    /// All partitions with the new number.
    pub(super) all: &'a [PartitionNames],
    /// The new partitions that are still closed.
    pub(super) waiting: &'a [PartitionNames],
}

/// How many entries were moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovedCounts {
    pub(super) timers: u64,
    pub(super) letters: u64,
}

/// Another call has ended the change, because a partition is open.
pub(super) struct EndedByAnother;

type Step<T> = Result<Result<T, EndedByAnother>>;

/// Returns the result of a step, or leaves the function if another call has ended the change.
macro_rules! continue_with {
    ($step:expr) => {
        match $step? {
            Ok(done) => done,
            Err(ended) => return Ok(Err(ended)),
        }
    };
}

impl PartitionMover<'_> {
    pub(super) async fn run(&self) -> Step<MovedCounts> {
        let mut counts = MovedCounts::default();
        for what in TIMERS {
            counts.timers += continue_with!(self.move_listed(what, MovedKind::Timers).await);
        }
        for what in LETTERS {
            counts.letters += continue_with!(self.move_listed(what, MovedKind::Letters).await);
        }
        continue_with!(self.spread_tombstones().await);
        Ok(Ok(counts))
    }

    async fn page(&self, what: ListTarget, cursor: u64) -> Result<(u64, Vec<Bytes>)> {
        let store = self.console.store();
        self.console.retry_until_answered(|_| store.names_in(&self.from, what, cursor, NAMES_PER_PAGE)).await
    }

    /// Moves the listed entries that belong to other partitions, page by page. Returns their number.
    async fn move_listed(&self, what: ListTarget, kind: MovedKind) -> Step<u64> {
        let (mut cursor, mut count) = (0, 0);
        loop {
            let (next, mut names) = self.page(what, cursor).await?;
            names.retain(|name| self.target(kind, name) != self.from.index);
            names.sort_unstable();
            names.dedup();
            for some in names.chunks(NAMES_PER_PAGE) {
                continue_with!(self.move_all(kind, some).await);
                count += some.len() as u64;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Ok(count));
            }
        }
    }

    /// Returns the new partition of an entry.
    fn target(&self, kind: MovedKind, name: &[u8]) -> u32 {
        let key = if kind == MovedKind::Letters { name.get(LETTER_NAME..).unwrap_or_default() } else { name };
        partition_of(key, u32::try_from(self.all.len()).unwrap_or(u32::MAX))
    }

    /// Writes entries to their new partitions, then removes them from this one.
    async fn move_all(&self, kind: MovedKind, mut names: &[Bytes]) -> Step<()> {
        let store = self.console.store();
        while !names.is_empty() {
            let mut bytes = PAGE_BYTES;
            let read = |repeat| {
                // The answer may have been too large for the server to send.
                bytes = if repeat { bytes.div_ceil(4) } else { bytes };
                store.read_entries(&self.from, kind, names, bytes)
            };
            let (count, entries) = self.console.retry_until_answered(read).await?;
            let (moved, others) = names.split_at(count.max(1));
            let mut by_target = BTreeMap::<u32, Vec<MovedEntry>>::new();
            for entry in entries {
                by_target.entry(self.target(kind, &entry.name)).or_default().push(entry);
            }
            for (target, entries) in by_target {
                continue_with!(self.put(&self.all[target as usize], &entries).await);
            }
            let deleted = self
                .console
                .retry_until_answered(|_| store.delete_moved(&self.from, self.id, kind, moved))
                .await?;
            if !deleted {
                return Ok(Err(EndedByAnother));
            }
            names = others;
        }
        Ok(Ok(()))
    }

    async fn put(&self, at: &PartitionNames, entries: &[MovedEntry]) -> Step<()> {
        let store = self.console.store();
        let put = self.console.retry_until_answered(|_| store.put_entries(at, self.id, entries)).await?;
        Ok(if put { Ok(()) } else { Err(EndedByAnother) })
    }

    /// Copies tombstones to all partitions that can have keys of this one, because a tombstone does not contain its key.
    async fn spread_tombstones(&self) -> Step<()> {
        let store = self.console.store();
        let mut cursor = 0;
        loop {
            let (next, names) = self.page(ListTarget::Tombstones, cursor).await?;
            let read = |_| store.read_entries(&self.from, MovedKind::Tombstones, &names, usize::MAX >> 11);
            let entries =
                if names.is_empty() { Vec::new() } else { self.console.retry_until_answered(read).await?.1 };
            for at in
                self.waiting.iter().filter(|at| at.index != self.from.index && may_have_come(&self.from, at))
            {
                if !entries.is_empty() {
                    continue_with!(self.put(at, &entries).await);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Ok(()));
            }
        }
    }
}

/// Returns whether a key of partition `from` can belong to partition `to`: their indexes must be equal modulo the greatest
/// common divisor of both numbers of partitions.
pub(super) fn may_have_come(from: &PartitionNames, to: &PartitionNames) -> bool {
    let (mut a, mut b) = (from.partitions, to.partitions);
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
