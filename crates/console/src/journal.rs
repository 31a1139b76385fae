//! What became of timers that have ended, where their topics keep a journal.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::wire::JournalPosition;
use crate::wire::{DeadReason, Ending, JournalBounds, MAX_BATCH, MAX_PARTITIONS};
use crate::{KnownTopic, text};

/// Partitions that are asked at the same time.
const ASKED: usize = 250;

/// A timer that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The arming; none where its record was broken, or too long to be read.
    #[serde(serialize_with = "text::id_as_text")]
    pub id: Option<ArmingId>,
    /// How it ended.
    pub outcome: Ending,
    /// Of a dead letter, why.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text::reason_as_text")]
    pub reason: Option<DeadReason>,
    /// The attempt that was the last, or was to come.
    pub attempt: u32,
    /// Its first deadline, in ms since 1970; none where that is not known.
    pub deadline_ms: Option<u64>,
    /// When it ended, in ms since 1970.
    pub ended_ms: u64,
}

/// Where a page of the journal ends. As text it can be handed to anybody: `<ms>@<partition>/<member>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalCursor {
    /// The last that was read, and its partition.
    last: JournalPosition,
    partition: u32,
}

/// A page of the journal, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalPage {
    /// What it has.
    pub entries: Vec<JournalEntry>,
    /// Where the next begins; none at the end.
    pub next: Option<JournalCursor>,
}

impl JournalEntry {
    fn of(entry: &JournalPosition) -> Option<Self> {
        let ended = entry.decode()?;
        Some(Self {
            key: ended.key,
            id: ended.arming,
            outcome: ended.what,
            reason: ended.reason,
            attempt: ended.attempt,
            deadline_ms: (ended.at > 0).then_some(ended.at),
            ended_ms: entry.ended,
        })
    }
}

impl KnownTopic {
    /// How much of what has ended the topic keeps; none: nothing.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn journal_bounds(&self) -> Result<Option<JournalBounds>> {
        match self.parts().first() {
            Some(first) => self.console.store().journal_bounds(first).await,
            None => Ok(None),
        }
    }

    /// What the journal has of one key, newest first; and whether all of it was looked at, which is no more than about
    /// 200,000 entries.
    ///
    /// # Errors
    /// As for [`journal_bounds`](Self::journal_bounds).
    pub async fn journal_of_key(&self, key: &[u8]) -> Result<(Vec<JournalEntry>, bool)> {
        let (found, all) = self.console.store().journal_of_key(self.partition_of(key), key).await?;
        Ok((entries(found.iter()), all))
    }

    /// A page of what has ended, newest first, of up to `count` entries, 1,000 at most. Each partition is asked for as many.
    ///
    /// # Errors
    /// As for [`journal_bounds`](Self::journal_bounds).
    pub async fn journal(&self, behind: Option<&JournalCursor>, count: usize) -> Result<JournalPage> {
        let count = count.min(MAX_BATCH);
        let (mut found, mut is_last) = (Vec::new(), true);
        for some in self.parts().chunks(ASKED) {
            let pages = some.iter().map(async |at| {
                let from = behind.map(|behind| behind.in_partition(at.index));
                (at.index, self.console.store().journal(at, from.as_ref(), count).await)
            });
            for (partition, page) in futures::future::join_all(pages).await {
                let (page, more) = page?;
                is_last &= !more;
                found.extend(page.into_iter().map(|last| JournalCursor { last, partition }));
            }
        }
        found.sort_unstable_by(|one, other| other.place().cmp(&one.place()));
        is_last &= found.len() <= count;
        found.truncate(count);
        let next = found.last().cloned().filter(|_| !is_last);
        Ok(JournalPage { entries: entries(found.iter().map(|one| &one.last)), next })
    }
}

impl JournalCursor {
    /// In the order in which all is read: by time, then by partition, then by its bytes.
    fn place(&self) -> (u64, u32, &Bytes) {
        (self.last.ended, self.partition, &self.last.member)
    }

    /// The place in a partition behind which all lies that comes after this.
    fn in_partition(&self, index: u32) -> JournalPosition {
        let ended = self.last.ended;
        match index.cmp(&self.partition) {
            std::cmp::Ordering::Equal => self.last.clone(),
            // Of the same millisecond nothing was read, ...
            std::cmp::Ordering::Less => JournalPosition { ended: ended + 1, member: Bytes::new() },
            // ... or all.
            std::cmp::Ordering::Greater => JournalPosition { ended, member: Bytes::new() },
        }
    }
}

impl fmt::Display for JournalCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}/{}", self.last.ended, self.partition, text::escape(&self.last.member))
    }
}

impl FromStr for JournalCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        read(text).ok_or_else(|| {
            Error::invalid(
                "this is no place at which a page of the journal has ended: take it as it was written",
            )
        })
    }
}

fn read(text: &str) -> Option<JournalCursor> {
    let (ended, rest) = text.split_once('@')?;
    let (partition, member) = rest.split_once('/')?;
    let ended = ended.parse().ok().filter(|ended| *ended < crate::time::MAX_DEADLINE_MS)?;
    let partition = partition.parse().ok().filter(|partition| *partition < MAX_PARTITIONS)?;
    let member = text::unescape(member).ok()?.into();
    Some(JournalCursor { last: JournalPosition { ended, member }, partition })
}

/// What cannot be read was written by a newer version, or by somebody else.
fn entries<'a>(found: impl Iterator<Item = &'a JournalPosition>) -> Vec<JournalEntry> {
    found.filter_map(JournalEntry::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_reads_back(ended in 0..1_u64 << 43, partition in 0..1024_u32, member: Vec<u8>) {
            let cursor = JournalCursor { last: JournalPosition { ended, member: member.into() }, partition };
            prop_assert_eq!(cursor.to_string().parse::<JournalCursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<JournalCursor>();
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for bad in ["", "1", "1@", "1@0", "x@0/a", "-1@0/a", "99999999999999@0/a", "1@1024/a", "1@0/\\q"] {
            assert!(bad.parse::<JournalCursor>().is_err(), "{bad}");
        }
    }
}
