//! The dead letters.

use bytes::Bytes;
use redis::{Cmd, Value, cmd, pipe};

use crate::error::Result;
use crate::id::ArmingId;
use crate::wire::names::PartitionNames;
use crate::wire::reply::Reply;
use crate::wire::scripts;
use crate::wire::store::Store;

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
    /// Arming id and key.
    pub id: Bytes,
    /// The letter's bytes.
    pub letter: Bytes,
}

/// Where a letter stands among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterPosition {
    /// When it died, in ms.
    pub died: u64,
    /// Its id.
    pub id: Bytes,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Replayed {
    /// Armed again, for now, as a new arming whose attempts start over.
    Replayed,
    /// The key has a timer again; the letter was left alone.
    Exists,
    /// The letter is gone: replayed, dropped or trimmed by somebody else.
    Gone,
    /// The letter's record cannot be read; it was left alone.
    Unreadable,
}

impl Store {
    /// Reads up to `count` dead letters, oldest first, after this one; and where to go on, if there may be more.
    pub async fn letters(
        &self,
        at: &PartitionNames,
        after: Option<&LetterPosition>,
        count: usize,
    ) -> Result<(Vec<RawLetter>, Option<LetterPosition>)> {
        let (ids, more) = self.letter_ids(at, after, count).await?;
        let Some(last) = ids.last().cloned() else { return Ok((Vec::new(), None)) };
        let (mut fetch, doing) = (pipe(), "reading dead letters");
        fetch.cmd("ZSCORE").arg(at.key("dead")).arg(&last[..]);
        for id in &ids {
            fetch.cmd("HGET").arg(at.key("letters")).arg(&id[..]);
        }
        let answers = self.0.node.call_all(doing, &fetch).await?;
        let mut reply = Reply::new(doing, Value::Array(answers))?;
        let died = self.named(at, reply.maybe_score()).await?;
        let letters = self.named(at, reply.each(Reply::maybe_bytes)).await?;
        // One that was dropped in between is simply not listed.
        let both = ids.into_iter().zip(letters);
        let letters = both.filter_map(|(id, letter)| Some(RawLetter { id, letter: letter? })).collect();
        let died = died.or(after.map(|after| after.died)).unwrap_or(0);
        Ok((letters, more.then_some(LetterPosition { died, id: last })))
    }

    /// Their ids, which Redis keeps by time and then by id; and whether there may be more.
    async fn letter_ids(
        &self,
        at: &PartitionNames,
        after: Option<&LetterPosition>,
        count: usize,
    ) -> Result<(Vec<Bytes>, bool)> {
        let doing = "reading dead letters";
        let (mut earlier, mut passed) = (0, 0);
        if let Some(after) = after {
            let mut counts = pipe();
            counts.cmd("ZCOUNT").arg(at.key("dead")).arg("-inf").arg(format!("({}", after.died));
            counts.cmd("ZCOUNT").arg(at.key("dead")).arg(after.died).arg(after.died);
            let answers = self.0.node.call_all(doing, &counts).await?;
            let mut reply = Reply::new(doing, Value::Array(answers))?;
            (earlier, passed) = (reply.int()?, reply.int()?);
        }
        let mut range = cmd("ZRANGE");
        let last = earlier.saturating_add(passed).saturating_add(count as u64).min(i64::MAX as u64);
        range.arg(at.key("dead")).arg(earlier).arg(last.saturating_sub(1));
        let ids = self.0.node.call(doing, &range).await;
        let ids = Reply::new(doing, self.named(at, ids).await?)?.each(Reply::bytes)?;
        let more = ids.len() as u64 == last - earlier;
        // Of those that died in the same millisecond, some were read before.
        let read = |(rank, id): &(u64, Bytes)| *rank < passed && after.is_some_and(|after| *id <= after.id);
        let fresh = (0..).zip(ids).filter(|one| !read(one)).map(|(_, id)| id);
        Ok((fresh.take(count).collect(), more))
    }

    /// How many dead letters there are, and how many have been trimmed.
    pub async fn letter_counts(&self, at: &PartitionNames) -> Result<(u64, u64)> {
        let mut counts = pipe();
        counts.cmd("ZCARD").arg(at.key("dead"));
        counts.cmd("HGET").arg(at.key("meta")).arg("trimmed");
        let answers = self.0.node.call_all("counting dead letters", &counts).await?;
        let mut reply = Reply::new("counting dead letters", Value::Array(answers))?;
        let kept = self.named(at, reply.int()).await?;
        let trimmed = self.named(at, reply.maybe_score()).await?;
        Ok((kept, trimmed.unwrap_or(0)))
    }

    /// Arms a dead letter's record again, for now.
    pub async fn replay(&self, at: &PartitionNames, letter: &[u8], arming: ArmingId) -> Result<Replayed> {
        let mut command = self.partition_script(&scripts::REPLAY, at);
        command.arg(letter).arg(arming.as_bytes());
        let mut reply = self.run_at(&scripts::REPLAY, at, &command).await?;
        match reply.int()? {
            0 => Ok(Replayed::Gone),
            1 => Ok(Replayed::Replayed),
            2 => Ok(Replayed::Exists),
            3 => Ok(Replayed::Unreadable),
            _ => Err(reply.unexpected()),
        }
    }

    /// Forgets a dead letter; whether there was one.
    pub async fn drop_letter(&self, at: &PartitionNames, letter: &[u8]) -> Result<bool> {
        let mut both = pipe();
        both.atomic();
        both.cmd("ZREM").arg(at.key("dead")).arg(letter);
        both.cmd("HDEL").arg(at.key("letters")).arg(letter);
        let answers = self.0.node.call_all("dropping a dead letter", &both).await?;
        let mut reply = Reply::new("dropping a dead letter", Value::Array(answers))?;
        let mut both = self.named(at, reply.list()).await?;
        Ok(both.int()? == 1)
    }
}

pub(super) fn add_bounds(command: &mut Cmd, bounds: LetterBounds) {
    let full = if bounds.pause_when_full { "pause" } else { "trim" };
    command.arg(bounds.count).arg(bounds.age_ms).arg(full);
}
