//! The dead letters.

use bytes::Bytes;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::id::{ArmingId, ReplayId};
use crate::run::Call;
use crate::{PartitionNames, Reply, Store, scripts};

const READING: &str = "reading dead letters";

/// Bounds of a topic's dead letters, per partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterBounds {
    /// How many are kept.
    pub count: u64,
    /// For how long, in ms.
    pub age_ms: u64,
    /// Whether to pause the topic when they are full, rather than trim.
    pub pause_when_full: bool,
}

/// A dead letter and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLetter {
    /// Arming id, time of death and key.
    pub id: Bytes,
    /// The letter's bytes.
    pub letter: Bytes,
}

/// Where a letter stands among the others, which Redis keeps by time and then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LetterPosition {
    /// When it died, in ms.
    pub died: u64,
    /// Its id.
    pub id: Bytes,
}

/// A replay call.
#[derive(Clone, Debug)]
pub struct Replay {
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

impl LetterBounds {
    pub(super) fn add_to(self, call: &mut Call<'_>) {
        let full = if self.pause_when_full { "pause" } else { "trim" };
        call.arg(self.count).arg(self.age_ms).arg(full);
    }
}

impl Store {
    /// Reads up to `count` dead letters, oldest first, after this one; and where to go on, if there may be more.
    pub async fn letters(
        &self,
        at: &PartitionNames,
        after: Option<&LetterPosition>,
        count: usize,
    ) -> Result<(Vec<RawLetter>, Option<LetterPosition>)> {
        let (positions, more) = self.letter_positions(at, after, count).await?;
        let Some(last) = positions.last().cloned() else { return Ok((Vec::new(), None)) };
        let mut fetch = pipe();
        for position in &positions {
            fetch.cmd("HGET").arg(at.key("letters")).arg(&position.id[..]);
        }
        let letters = self.ask(at, READING, &fetch).await?.each(Reply::maybe_bytes)?;
        // One that was dropped in between is simply not listed.
        let both = positions.into_iter().zip(letters);
        let letters =
            both.filter_map(|(at, letter)| Some(RawLetter { id: at.id, letter: letter? })).collect();
        Ok((letters, more.then_some(last)))
    }

    /// Where they stand; and whether there may be more.
    async fn letter_positions(
        &self,
        at: &PartitionNames,
        after: Option<&LetterPosition>,
        count: usize,
    ) -> Result<(Vec<LetterPosition>, bool)> {
        let behind = after.map(|after| (after.died, &after.id));
        let (found, more) = self.by_time(READING, at, "dead", behind, count, false).await?;
        Ok((found.into_iter().map(|(died, id)| LetterPosition { died, id }).collect(), more))
    }

    /// How many dead letters there are, and how many have been trimmed.
    pub async fn letter_counts(&self, at: &PartitionNames) -> Result<(u64, u64)> {
        let mut counts = pipe();
        counts.cmd("ZCARD").arg(at.key("dead"));
        counts.cmd("HGET").arg(at.key("meta")).arg("trimmed");
        let mut reply = self.ask(at, "counting dead letters", &counts).await?;
        Ok((reply.int()?, reply.maybe_int()?.unwrap_or(0)))
    }

    /// Arms a dead letter's record again, for now.
    pub async fn replay(&self, at: &PartitionNames, call: &Replay) -> Result<Replayed> {
        let Replay { letter, id, anew, repeat } = call;
        let codes = [Replayed::Gone, Replayed::Replayed, Replayed::Exists, Replayed::Unreadable];
        let mut call = self.call(&scripts::REPLAY, at);
        call.arg(i32::from(*repeat)).arg(&letter[..]).arg(id.as_bytes());
        call.arg(anew.as_ref().map_or(&[][..], |anew| anew.as_bytes()));
        let mut reply = call.reply().await?;
        let (code, _deadline) = (reply.one_of(&codes)?, reply.int()?);
        self.told(at, &mut reply)?;
        Ok(code)
    }

    /// Forgets a dead letter; whether there was one.
    pub async fn drop_letter(&self, at: &PartitionNames, letter: &[u8]) -> Result<bool> {
        Ok(self.call(&scripts::DROP, at).arg(letter).reply().await?.int()? == 1)
    }
}
