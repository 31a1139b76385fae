//! The dead letters.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

use crate::schedule::Schedule;
use crate::connection::retry::persist;
use crate::error::Result;
use crate::escape::Escaped;
use crate::id::ArmingId;
use crate::wire::names::Partition;
use crate::wire::record::{Failed, History, Letter, Reason, Record, State};
use crate::wire::MAX_BATCH;
use crate::wire::types::{RawLetter, ReplayReply};
use crate::time::system_time;
use crate::topic::{TopicConfig, Topic};

/// A timer that has ended without success.
#[derive(Clone)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The key.
    pub key: Bytes,
    /// The arming.
    pub arming: ArmingId,
    /// Why it died.
    pub reason: Reason,
    /// When it died, by the server's clock.
    pub died: SystemTime,
    /// Its first deadline; none if the record cannot be read.
    pub deadline: Option<SystemTime>,
    /// The attempts it had.
    pub attempts: u32,
    /// Leases it lost since somebody last settled it.
    pub lost_leases: u8,
    /// The failed attempts, at most ten, oldest first; the last one holds the
    /// last error.
    pub history: Vec<Failed>,
    /// The payload; of an unreadable record, all its bytes; of an attached topic's lapse the copy of the
    /// key's value, if one was kept.
    pub payload: Bytes,
    id: Bytes,
    at: Partition,
}

impl fmt::Debug for DeadLetter {
    /// Without the payload, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("key", &Escaped(&self.key))
            .field("arming", &self.arming)
            .field("reason", &self.reason)
            .field("attempts", &self.attempts)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

/// What became of a replay.
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

impl DeadLetter {
    /// What the last failed attempt said.
    pub fn last_error(&self) -> Option<&str> {
        self.history.last().map(|failed| failed.error.as_str())
    }

    fn read(config: &TopicConfig, at: &Partition, raw: RawLetter) -> Option<Self> {
        let key = raw.id.get(8..).map(|_| raw.id.slice(8..))?;
        let arming = ArmingId::from_bytes(&raw.id[..8])?;
        let (letter, record) = match Letter::decode(raw.letter.clone()) {
            Ok(letter) => {
                let record = Record::decode(letter.record.clone()).ok();
                (letter, record)
            }
            // Listed all the same, for somebody to look into.
            Err(_) => (Letter::unreadable(raw.letter), None),
        };
        let state = State::decode(letter.state).ok();
        Some(Self {
            key,
            arming,
            reason: letter.reason,
            died: system_time(letter.died),
            deadline: record.as_ref().map(|record| system_time(record.deadline)),
            attempts: state.as_ref().map_or(0, |state| state.attempt),
            lost_leases: state.as_ref().map_or(0, |state| state.lost),
            history: state.map(|state| History::decode(&state.history).0).unwrap_or_default(),
            payload: record.map_or(letter.record, |record| config.own_payload(record.payload)),
            id: raw.id,
            at: at.clone(),
        })
    }
}

impl Schedule {
    /// Reads up to `count` dead letters of a topic, oldest first in each
    /// partition, after skipping `skip` of each.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn dead_letters<T>(
        &self,
        topic: &Topic<T>,
        skip: usize,
        count: usize,
    ) -> Result<Vec<DeadLetter>> {
        let mut letters = Vec::new();
        for at in self.partitions(&topic.config).await?.iter() {
            let mut skip = skip;
            while letters.len() < count {
                let page = (count - letters.len()).min(MAX_BATCH);
                let raw = persist(self.patience, |_| self.store.letters(at, skip, page)).await?;
                if raw.is_empty() {
                    break;
                }
                skip = skip.saturating_add(page);
                letters.extend(raw.into_iter().filter_map(|raw| DeadLetter::read(&topic.config, at, raw)));
            }
        }
        Ok(letters)
    }

    /// How many dead letters a topic has, and how many have been trimmed since
    /// it was created.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn dead_letter_counts<T>(&self, topic: &Topic<T>) -> Result<(u64, u64)> {
        let mut counts = (0_u64, 0_u64);
        for at in self.partitions(&topic.config).await?.iter() {
            let (kept, trimmed) = persist(self.patience, |_| self.store.letter_counts(at)).await?;
            counts = (counts.0.saturating_add(kept), counts.1.saturating_add(trimmed));
        }
        Ok(counts)
    }

    /// Arms a dead letter's timer again, for now.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn replay(&self, letter: &DeadLetter) -> Result<Replayed> {
        let arming = ArmingId::random();
        let call = |_| self.store.replay(&letter.at, &letter.id, arming);
        let reply = persist(self.patience, call).await.map_err(|error| error.at_key(&letter.key))?;
        Ok(match reply {
            ReplayReply::Replayed(_) => Replayed::Replayed,
            ReplayReply::Exists => Replayed::Exists,
            ReplayReply::NoLetter => Replayed::Gone,
            ReplayReply::Unreadable => Replayed::Unreadable,
        })
    }

    /// Forgets a dead letter; whether it was still there.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn drop_dead_letter(&self, letter: &DeadLetter) -> Result<bool> {
        let call = |_| self.store.drop_letter(&letter.at, &letter.id);
        persist(self.patience, call).await.map_err(|error| error.at_key(&letter.key))
    }
}
