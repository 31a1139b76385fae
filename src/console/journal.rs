//! What became of timers that have ended, where their topics keep a journal.

use bytes::Bytes;
use serde::{Serialize, Serializer};

use crate::console::Console;
use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::wire::calls::ended::{Ended, Ending, JournalPosition};
use crate::wire::{JournalBounds, MAX_BATCH, PartitionNames, partition_of};

/// Partitions that are asked at the same time.
const ASKED: usize = 250;

/// A timer that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The key.
    #[serde(serialize_with = "key_as_text")]
    pub key: Bytes,
    /// The arming; none where its record was broken, or too long to be read.
    #[serde(serialize_with = "id_as_text")]
    pub id: Option<ArmingId>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Ending,
    /// The attempt that was the last, or was to come.
    pub attempt: u32,
    /// Its first deadline, in ms since 1970; none where that is not known.
    pub deadline_ms: Option<u64>,
    /// When it ended, in ms since 1970.
    pub ended_ms: u64,
}

/// Where a page of the journal ends.
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
    fn of(ended: Ended) -> Self {
        Self {
            key: ended.key,
            id: ended.arming,
            outcome: ended.ending,
            attempt: ended.attempt,
            deadline_ms: (ended.deadline > 0).then_some(ended.deadline),
            ended_ms: ended.ended,
        }
    }
}

impl Console {
    /// How much of what has ended a topic keeps; none: nothing.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, or nobody has registered the topic.
    pub async fn journal_bounds(&self, topic: &str) -> Result<Option<JournalBounds>> {
        self.journal_bounds_of(&self.registered(topic).await?).await
    }

    /// A page of what has ended in a topic, newest first, of up to `count` entries, 1,000 at most.
    ///
    /// # Errors
    /// As for [`journal_bounds`](Self::journal_bounds).
    pub async fn journal(
        &self,
        topic: &str,
        behind: Option<&JournalCursor>,
        count: usize,
    ) -> Result<JournalPage> {
        self.journal_of(&self.registered(topic).await?, behind, count).await
    }

    /// What the journal has of one key, newest first; and whether all of it was looked at, which is no more than about
    /// 200,000 entries.
    ///
    /// # Errors
    /// As for [`journal_bounds`](Self::journal_bounds).
    pub async fn journal_of_key(&self, topic: &str, key: &[u8]) -> Result<(Vec<JournalEntry>, bool)> {
        let partitions = self.registered(topic).await?;
        let of = partitions.first().map_or(1, |first| first.of);
        self.ends_of(&partitions[partition_of(key, of) as usize], key).await
    }

    /// The partitions of a topic that somebody has registered.
    async fn registered(&self, topic: &str) -> Result<Vec<PartitionNames>> {
        let mut entries = self.client.store.registered(&self.client.namespace).await?;
        entries.retain(|entry| entry.name == topic);
        if entries.is_empty() {
            let name = crate::escape::excerpt(topic.as_bytes());
            return Err(Error::invalid(format!("no topic is registered as {name}")));
        }
        Ok(self.partitions_of(&entries[..1]))
    }

    /// Whether the topic of these partitions keeps a journal, and how much of one.
    pub(crate) async fn journal_bounds_of(
        &self,
        partitions: &[PartitionNames],
    ) -> Result<Option<JournalBounds>> {
        match partitions.first() {
            Some(first) => self.client.store.journal_bounds(first).await,
            None => Ok(None),
        }
    }

    /// A page of what has ended in these partitions, all of one topic, newest first, of up to `count` entries, 1,000 at most. Each
    /// partition is asked for as many.
    pub(crate) async fn journal_of(
        &self,
        partitions: &[PartitionNames],
        behind: Option<&JournalCursor>,
        count: usize,
    ) -> Result<JournalPage> {
        let count = count.min(MAX_BATCH);
        let (mut found, mut is_last) = (Vec::new(), true);
        for some in partitions.chunks(ASKED) {
            let pages = some.iter().map(async |at| {
                let from = behind.map(|behind| behind.in_partition(at.index));
                (at.index, self.client.store.journal(at, from.as_ref(), count).await)
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

    /// What the journal has of a key in its partition, newest first; and whether all of it was looked at, which is no
    /// more than about 200,000 entries.
    pub(crate) async fn ends_of(&self, at: &PartitionNames, key: &[u8]) -> Result<(Vec<JournalEntry>, bool)> {
        let (found, all) = self.client.store.journal_of_key(at, key).await?;
        Ok((entries(found.iter()), all))
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

/// What cannot be read was written by a newer version, or by somebody else.
fn entries<'a>(found: impl Iterator<Item = &'a JournalPosition>) -> Vec<JournalEntry> {
    found.filter_map(|one| one.decode().map(JournalEntry::of)).collect()
}

/// Printable ASCII as it is, a backslash doubled, the rest as escapes.
pub(super) fn key_as_text<S: Serializer>(key: &Bytes, out: S) -> Result<S::Ok, S::Error> {
    use std::fmt::Write;
    let text = key.iter().fold(String::with_capacity(key.len()), |mut text, byte| {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => _ = write!(text, "\\x{byte:02x}"),
        }
        text
    });
    out.serialize_str(&text)
}

#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)] // as serde asks
pub(super) fn id_as_text<S: Serializer>(id: &Option<ArmingId>, out: S) -> Result<S::Ok, S::Error> {
    id.map(|id| id.to_string()).serialize(out)
}
