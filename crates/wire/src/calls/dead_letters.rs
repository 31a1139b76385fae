//! The dead letters; and timers and letters that are brought back from an export.

use bytes::Bytes;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::id::{ArmingId, ReplayId};
use crate::run::ScriptCall;
use crate::{PartitionNames, Reply, Store, scripts};

const READING: &str = "reading dead letters";

/// Bytes of a letter's name before its key: arming id and time of death.
pub const LETTER_NAME: usize = 16;

/// Bounds of a topic's dead letters, per partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterLimits {
    /// How many are kept.
    pub count: u64,
    /// For how long, in ms.
    pub age_ms: u64,
    /// Whether to pause the topic when they are full, rather than trim.
    pub pause_when_full: bool,
}

/// A dead letter and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDeadLetter {
    /// Arming id, time of death and key.
    pub id: Bytes,
    /// The letter's bytes.
    pub letter: Bytes,
}

/// Where a letter stands among the others, which Redis keeps by time and then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterPosition {
    /// When it died, in ms.
    pub died: u64,
    /// Its id.
    pub id: Bytes,
}

/// A replay call.
#[derive(Clone, Debug)]
pub struct ReplayCall {
    /// The letter's name.
    pub letter: Bytes,
    /// The id of this replay.
    pub id: ReplayId,
    /// The id of a new arming; none: it is the same again.
    pub anew: Option<ArmingId>,
    /// Whether this repeats an unanswered call with the same ids.
    pub repeat: bool,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Replayed {
    /// Armed again, for now; its attempts start over.
    Replayed,
    /// The key has a timer, of another arming or of the letter's own; the letter was left alone.
    Exists,
    /// The letter is gone: replayed, dropped or trimmed by somebody else.
    Gone,
    /// The letter's record cannot be read; it was left alone.
    Unreadable,
}

impl DeadLetterLimits {
    pub(super) fn add_to(self, call: &mut ScriptCall<'_>) {
        let full = if self.pause_when_full { "pause" } else { "trim" };
        call.arg(self.count).arg(self.age_ms).arg(full);
    }
}

impl Store {
    /// Reads up to `count` dead letters, oldest first, after this one; and where to go on, if there may be more.
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
        // One that was dropped in between is simply not listed.
        let both = found.into_iter().zip(letters);
        let letters =
            both.filter_map(|((_, id), letter)| Some(RawDeadLetter { id, letter: letter? })).collect();
        Ok((letters, more.then_some(DeadLetterPosition { died, id })))
    }

    /// The letters of one key, each with its name and when it died, in ms.
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

    /// How many dead letters there are, and how many have been trimmed.
    pub async fn letter_counts(&self, at: &PartitionNames) -> Result<(u64, u64)> {
        let mut counts = pipe();
        counts.cmd("ZCARD").arg(at.key("dead"));
        counts.cmd("HGET").arg(at.key("meta")).arg("trimmed");
        let mut reply = self.query_partition(at, "counting dead letters", &counts).await?;
        Ok((reply.int()?, reply.maybe_int()?.unwrap_or(0)))
    }

    /// Arms a dead letter's record again, for now.
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

    /// Forgets a dead letter; whether there was one.
    pub async fn drop_letter(&self, at: &PartitionNames, letter: &[u8]) -> Result<bool> {
        Ok(self.call(&scripts::DELETE_DEAD_LETTER, at).arg(letter).reply().await?.int()? == 1)
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Imported {
    /// It is there now.
    New,
    /// It was there already.
    There,
    /// The key has another timer, which was left alone.
    Taken,
    /// Its arming has ended within the last ten minutes: it stays ended.
    Ended,
}

/// A timer or a letter, as it stands in Redis.
#[derive(Clone, Debug)]
pub enum ImportEntry {
    /// A timer.
    Timer {
        /// Its key.
        key: Bytes,
        /// Its record.
        record: Bytes,
        /// Its state, if there is anything to say.
        state: Option<Bytes>,
        /// When it is due, in ms.
        due: u64,
    },
    /// A dead letter.
    Letter {
        /// Its name.
        name: Bytes,
        /// Its bytes.
        letter: Bytes,
        /// When it died, in ms.
        died: u64,
    },
}

impl Store {
    /// Installs entries of one partition, where nothing stands in their place. In a cluster trigger keys lie elsewhere,
    /// and are left out: the index fires without them.
    pub async fn import(
        &self,
        at: &PartitionNames,
        triggers: bool,
        entries: &[ImportEntry],
    ) -> Result<Vec<Imported>> {
        let codes = [Imported::New, Imported::There, Imported::Taken, Imported::Ended];
        let mut call = self.call(&scripts::IMPORT, at);
        call.arg(i32::from(triggers && !self.0.topology.is_cluster()));
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
        let said = reply.maybe_text()?.unwrap_or_default();
        let untold = said.lines().next().filter(|reason| !reason.is_empty());
        untold.into_iter().for_each(|reason| _ = self.wake_up_error(at, reason));
        Ok(imported)
    }
}
