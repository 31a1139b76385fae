//! Dead letters, and imports of exported timers and dead letters.

use bytes::Bytes;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::id::{ArmingId, ReplayId};
use crate::run::ScriptCall;
use crate::{PartitionNames, Reply, Store, scripts};

const READING: &str = "reading dead letters";

/// The length of a dead letter's name before its key: arming ID and time of death.
pub const LETTER_NAME: usize = 16;

/// The limits of a topic's dead letters in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterLimits {
    /// The maximum number of dead letters.
    pub count: u64,
    /// How long they are kept, in ms.
    pub age_ms: u64,
    /// True to pause the topic at the maximum number; false to remove the oldest dead letters.
    pub pause_when_full: bool,
}

/// A dead letter and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDeadLetter {
    /// The name: arming ID, time of death and key.
    pub id: Bytes,
    /// The bytes of the dead letter.
    pub letter: Bytes,
}

/// The position of a dead letter among the others, which Redis sorts by time and then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterPosition {
    /// The time of death, in ms.
    pub died: u64,
    /// The name.
    pub id: Bytes,
}

/// The parameters of a replay.
#[derive(Clone, Debug)]
pub struct ReplayCall {
    /// The name of the dead letter.
    pub letter: Bytes,
    /// The ID of this replay.
    pub id: ReplayId,
    /// The ID of a new arming; `None` to keep the arming.
    pub anew: Option<ArmingId>,
    /// True if this repeats an unanswered call with the same IDs.
    pub repeat: bool,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Replayed {
    /// The timer is armed and due now, and its attempts start over.
    Replayed,
    /// The key has a timer already, so the dead letter was left alone.
    Exists,
    /// The dead letter is gone: it was replayed, deleted or trimmed before.
    Gone,
    /// The record of the dead letter cannot be read, so it was left alone.
    Unreadable,
}

impl DeadLetterLimits {
    pub(super) fn add_to(self, call: &mut ScriptCall<'_>) {
        let full = if self.pause_when_full { "pause" } else { "trim" };
        call.arg(self.count).arg(self.age_ms).arg(full);
    }
}

impl Store {
    /// Reads up to `count` dead letters after a position, oldest first. Returns the next position, if there may be more.
    pub async fn letters(
        &self,
        at: &PartitionNames,
        after: Option<&DeadLetterPosition>,
        count: usize,
    ) -> Result<(Vec<RawDeadLetter>, Option<DeadLetterPosition>)> {
        let behind = after.map(|after| (after.died, &after.id));
        let (found, more) = self.by_time(READING, at, "dead", behind, count, false).await?;
        let Some((died, id)) = found.last().cloned() else { return Ok((Vec::new(), None)) };
        let mut fetch = pipe();
        found.iter().for_each(|(_, id)| _ = fetch.cmd("HGET").arg(at.key("dead_letters")).arg(&id[..]));
        let letters = self.query_partition(at, READING, &fetch).await?.each(Reply::maybe_bytes)?;
        // A dead letter that was deleted since the first request is left out.
        let both = found.into_iter().zip(letters);
        let letters =
            both.filter_map(|((_, id), letter)| Some(RawDeadLetter { id, letter: letter? })).collect();
        Ok((letters, more.then_some(DeadLetterPosition { died, id })))
    }

    /// Returns the dead letters of a key: name, bytes, and time of death in ms.
    pub async fn letters_of_key(&self, at: &PartitionNames, key: &[u8]) -> Result<Vec<(Bytes, Bytes, u64)>> {
        const DOING: &str = "looking for dead letters";
        let (found, _) = self.named_with(DOING, at, ("dead", LETTER_NAME), key, usize::MAX).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut fetch = pipe();
        found.iter().for_each(|(name, _)| _ = fetch.cmd("HGET").arg(at.key("dead_letters")).arg(&name[..]));
        let letters = self.query_partition(at, DOING, &fetch).await?.each(Reply::maybe_bytes)?;
        let both = found.into_iter().zip(letters);
        Ok(both.filter_map(|((name, died), letter)| Some((name, letter?, died))).collect())
    }

    /// Returns how many dead letters there are, and how many have been trimmed.
    pub async fn letter_counts(&self, at: &PartitionNames) -> Result<(u64, u64)> {
        let mut counts = pipe();
        counts.cmd("ZCARD").arg(at.key("dead"));
        counts.cmd("HGET").arg(at.key("meta")).arg("trimmed");
        let mut reply = self.query_partition(at, "counting dead letters", &counts).await?;
        Ok((reply.int()?, reply.maybe_int()?.unwrap_or(0)))
    }

    /// Arms the timer of a dead letter again, due now.
    pub async fn replay(&self, at: &PartitionNames, call: &ReplayCall) -> Result<Replayed> {
        let ReplayCall { letter, id, anew, repeat } = call;
        let codes = [Replayed::Gone, Replayed::Replayed, Replayed::Exists, Replayed::Unreadable];
        let mut call = self.call(&scripts::REPLAY, at);
        call.arg(i32::from(*repeat)).arg(&letter[..]).arg(id.as_bytes());
        call.arg(anew.as_ref().map_or(&[][..], |anew| anew.as_bytes()));
        let mut reply = call.reply().await?;
        let (code, _deadline) = (reply.one_of(&codes)?, reply.int()?);
        self.read_wake_up_error(at, &mut reply)?;
        Ok(code)
    }

    /// Deletes a dead letter. Returns whether there was one.
    pub async fn drop_letter(&self, at: &PartitionNames, letter: &[u8]) -> Result<bool> {
        Ok(self.call(&scripts::DELETE_DEAD_LETTER, at).arg(letter).reply().await?.int()? == 1)
    }
}

/// The result of importing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Imported {
    /// The entry was imported.
    New,
    /// Redis has the entry already.
    There,
    /// The key has another timer, which was left alone.
    Taken,
    /// The arming was cancelled, replaced or followed within the last ten minutes, and was left so. An arming that has
    /// succeeded or died since the export is not detected: it is [`New`](Self::New).
    Ended,
}

/// A timer or a dead letter, as Redis holds it.
#[derive(Clone, Debug)]
pub enum ImportEntry {
    /// A timer.
    Timer {
        /// The key.
        key: Bytes,
        /// The record's bytes.
        record: Bytes,
        /// The state's bytes, if it has a state.
        state: Option<Bytes>,
        /// When the timer is due, in ms.
        due: u64,
    },
    /// A dead letter.
    Letter {
        /// The name.
        name: Bytes,
        /// The bytes of the dead letter.
        letter: Bytes,
        /// The time of death, in ms.
        died: u64,
    },
}

impl Store {
    /// Imports entries of one partition, and leaves existing ones alone. In a Redis Cluster it sets no marker keys, because
    /// they are in other slots. Timers fire without them.
    pub async fn import(
        &self,
        at: &PartitionNames,
        marker_keys: bool,
        entries: &[ImportEntry],
    ) -> Result<Vec<Imported>> {
        let codes = [Imported::New, Imported::There, Imported::Taken, Imported::Ended];
        let mut call = self.call(&scripts::IMPORT, at);
        call.arg(i32::from(marker_keys && !self.0.topology.is_cluster()));
        for entry in entries {
            match entry {
                ImportEntry::Timer { key, record, state, due } => {
                    call.arg("timer").arg(&key[..]).arg(&record[..]);
                    call.arg(state.as_deref().unwrap_or_default()).arg(due.to_string());
                }
                ImportEntry::Letter { name, letter, died } => {
                    call.arg("letter").arg(&name[..]).arg(&letter[..]).arg("").arg(died.to_string());
                }
            }
        }
        let mut reply = call.reply().await?;
        let imported = reply.list()?.codes(entries.len(), &codes)?;
        let errors = reply.maybe_text()?.unwrap_or_default();
        let unpublished = errors.lines().next().filter(|reason| !reason.is_empty());
        unpublished.into_iter().for_each(|reason| _ = self.wake_up_error(at, reason));
        Ok(imported)
    }
}
