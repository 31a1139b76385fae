//! The journal of a topic: how timers have ended.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::wire::JournalPosition;
use crate::wire::{DeadReason, Ending, JournalBounds, MAX_BATCH, MAX_PARTITIONS};
use crate::{TopicHandle, text};

/// How many partitions are read at the same time.
const PARTITIONS_PER_REQUEST: usize = 250;

/// A timer that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The arming ID. It is missing if the record was damaged or too long to be read.
    #[serde(serialize_with = "text::id_as_text")]
    pub id: Option<ArmingId>,
    /// How the timer ended.
    pub outcome: Ending,
    /// The reason, if the timer became a dead letter.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text::reason_as_text")]
    pub reason: Option<DeadReason>,
    /// The number of the last attempt, or of the next one if none was running.
    pub attempt: u32,
    /// The first deadline, in ms since 1970, if it is known.
    pub deadline_ms: Option<u64>,
    /// The time of the end, in ms since 1970.
    pub ended_ms: u64,
}

/// The position at which a page of the journal ends. Its text has the form `<ms>@<partition>/<member>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalCursor {
    /// The last entry of the page.
    last: JournalPosition,
    partition: u32,
}

/// A page of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalPage {
    /// The entries, the newest first.
    pub entries: Vec<JournalEntry>,
    /// The position of the next page, or `None` after the last one.
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

impl TopicHandle {
    /// Returns how many entries each partition's journal keeps, and for how long. Returns `None` if the topic keeps none.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn journal_bounds(&self) -> Result<Option<JournalBounds>> {
        match self.partition_names().first() {
            Some(first) => self.console.store().journal_bounds(first).await,
            None => Ok(None),
        }
    }

    /// Returns the journal entries of one key, the newest first, and whether the whole journal was searched. A search ends
    /// after about 200,000 entries.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn journal_of_key(&self, key: &[u8]) -> Result<(Vec<JournalEntry>, bool)> {
        let (found, all) = self.console.store().journal_of_key(self.partition_of(key), key).await?;
        Ok((entries(found.iter()), all))
    }

    /// Returns a page of up to `count` journal entries, at most 1,000, the newest first. Reads up to `count` entries of each
    /// partition.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn journal(&self, behind: Option<&JournalCursor>, count: usize) -> Result<JournalPage> {
        let count = count.min(MAX_BATCH);
        let (mut found, mut is_last) = (Vec::new(), true);
        for some in self.partition_names().chunks(PARTITIONS_PER_REQUEST) {
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
        found.sort_unstable_by(|one, other| other.sort_key().cmp(&one.sort_key()));
        is_last &= found.len() <= count;
        found.truncate(count);
        let next = found.last().cloned().filter(|_| !is_last);
        Ok(JournalPage { entries: entries(found.iter().map(|one| &one.last)), next })
    }
}

impl JournalCursor {
    /// Returns the key of the global order: time, then partition, then bytes.
    fn sort_key(&self) -> (u64, u32, &Bytes) {
        (self.last.ended, self.partition, &self.last.member)
    }

    /// Returns the position in a partition after which that partition's next entries follow.
    fn in_partition(&self, index: u32) -> JournalPosition {
        let ended = self.last.ended;
        match index.cmp(&self.partition) {
            std::cmp::Ordering::Equal => self.last.clone(),
            // Pages are read backwards: this partition's entries of the cursor's millisecond follow it.
            std::cmp::Ordering::Less => JournalPosition { ended: ended + 1, member: Bytes::new() },
            // Earlier pages had all entries of that millisecond.
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
            let text = crate::escape::excerpt(text.as_bytes());
            Error::invalid(format!("invalid cursor {text}: copy it as it was printed"))
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

/// Decodes journal entries. Skips entries that a newer version or another program has written.
fn entries<'a>(found: impl Iterator<Item = &'a JournalPosition>) -> Vec<JournalEntry> {
    found.filter_map(JournalEntry::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back(ended in 0..1_u64 << 43, partition in 0..1024_u32, member: Vec<u8>) {
            let cursor = JournalCursor { last: JournalPosition { ended, member: member.into() }, partition };
            prop_assert_eq!(cursor.to_string().parse::<JournalCursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<JournalCursor>();
        }
    }

    #[test]
    fn invalid_cursors_are_refused() {
        for bad in ["", "1", "1@", "1@0", "x@0/a", "-1@0/a", "99999999999999@0/a", "1@1024/a", "1@0/\\q"] {
            assert!(bad.parse::<JournalCursor>().is_err(), "{bad}");
        }
    }
}
