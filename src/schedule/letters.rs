//! The dead letters.

use std::collections::VecDeque;
use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::id::{ArmingId, ReplayId};
use crate::schedule::Schedule;
use crate::time::system_time;
use crate::topic::Topic;
use crate::wire::{
    DeadReason, FailedAttempt, History, Letter, LetterPosition, MAX_BATCH, PartitionNames, RawLetter, Record,
    Replay, Replayed, State,
};

/// Letters that are read at a time.
const PAGE: usize = 100;

/// A timer that has ended without success.
#[derive(Clone)]
#[non_exhaustive]
pub struct DeadLetter<T> {
    /// The key.
    pub key: Bytes,
    /// The arming: what [`Lapse::id`](crate::Lapse::id) was, and will be after a [replay](Schedule::replay).
    pub arming: ArmingId,
    /// Why it died.
    pub reason: DeadReason,
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
    pub history: Vec<FailedAttempt>,
    /// The payload; of an attached topic's lapse the copy of the key's value, if one was kept.
    pub payload: Result<T, Undecoded>,
    id: Bytes,
    at: PartitionNames,
}

/// A payload that is not of the topic's type.
#[derive(Clone)]
#[non_exhaustive]
pub struct Undecoded {
    /// Its bytes; of an unreadable record, all of that.
    pub bytes: Bytes,
    /// Why it could not be decoded.
    pub error: Error,
}

impl fmt::Debug for Undecoded {
    /// Without the bytes, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Undecoded({} bytes: {})", self.bytes.len(), self.error)
    }
}

impl<T> fmt::Debug for DeadLetter<T> {
    /// Without the payload, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("key", &format_args!("{}", Escaped(&self.key)))
            .field("arming", &self.arming)
            .field("reason", &self.reason)
            .field("attempts", &self.attempts)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

impl<T> DeadLetter<T> {
    /// What the last failed attempt said.
    pub fn last_error(&self) -> Option<&str> {
        self.history.last().map(|failed| failed.error.as_str())
    }

    fn read(topic: &Topic<T>, at: &PartitionNames, raw: RawLetter) -> Option<Self> {
        let arming = ArmingId::from_bytes(raw.id.get(..8)?)?;
        // Those that cannot be read are listed all the same, for somebody to look into.
        let letter = Letter::decode(raw.letter.clone());
        // Of a letter alone: what is none can have the length of a record.
        let record = letter.clone().and_then(|letter| Record::decode(letter.record));
        let letter = letter.unwrap_or_else(|_| Letter::unreadable(raw.letter));
        let state = State::decode(letter.state).unwrap_or_default();
        let deadline = record.as_ref().ok().map(|record| system_time(record.deadline));
        let payload = match record {
            Ok(record) => topic
                .decode(&record.payload)
                .map_err(|error| Undecoded { bytes: topic.config.own_payload(record.payload), error }),
            Err(_) => {
                let error = Error::new(ErrorKind::Payload, "the record itself cannot be read");
                Err(Undecoded { bytes: letter.record, error })
            }
        };
        Some(Self {
            key: raw.id.slice(raw.id.len().min(16)..),
            arming,
            reason: letter.reason,
            died: system_time(letter.died),
            deadline,
            attempts: state.attempt,
            lost_leases: state.lost,
            history: History::decode(&state.history).0,
            payload,
            id: raw.id,
            at: at.clone(),
        })
    }
}

/// The dead letters of a topic, read page by page: partition by partition, and in each the oldest first. Each
/// letter that stays is read once, whatever is replayed, dropped or added meanwhile; of those that are added
/// while this reads, some may be left out.
#[derive(Debug)]
#[must_use = "nothing is read until a letter or a page is asked for"]
pub struct DeadLetters<'a, T> {
    schedule: &'a Schedule,
    topic: &'a Topic<T>,
    /// The partition that is being read, and the last letter that was read there.
    partition: usize,
    last: Option<LetterPosition>,
    read: VecDeque<DeadLetter<T>>,
}

impl<T> DeadLetters<'_, T> {
    /// The next letter; none at the end.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses. The same letter can be asked for again.
    pub async fn next(&mut self) -> Result<Option<DeadLetter<T>>> {
        if self.read.is_empty() {
            self.read = self.page(PAGE).await?.into();
        }
        Ok(self.read.pop_front())
    }

    /// The next letters, up to `count`; none at the end.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub async fn page(&mut self, count: usize) -> Result<Vec<DeadLetter<T>>> {
        let partitions = self.schedule.partitions(&self.topic.config).await?;
        let mut page: Vec<_> = self.read.drain(..count.min(self.read.len())).collect();
        while let Some(lane) = partitions.get(self.partition).filter(|_| page.len() < count) {
            let at = lane.at();
            let (last, most) = (self.last.clone(), (count - page.len()).min(MAX_BATCH));
            let read = |most| self.schedule.client.store.letters(at, last.as_ref(), most);
            let (raw, last) = self.schedule.persist_read(most, read).await?;
            match last {
                Some(last) => self.last = Some(last),
                None => (self.partition, self.last) = (self.partition + 1, None),
            }
            page.extend(raw.into_iter().filter_map(|raw| DeadLetter::read(self.topic, at, raw)));
        }
        Ok(page)
    }
}

impl Schedule {
    /// The dead letters of a topic.
    pub fn dead_letters<'a, T>(&'a self, topic: &'a Topic<T>) -> DeadLetters<'a, T> {
        DeadLetters { schedule: self, topic, partition: 0, last: None, read: VecDeque::new() }
    }

    /// How many dead letters a topic has, and how many have been trimmed since
    /// it was created.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn dead_letter_counts<T>(&self, topic: &Topic<T>) -> Result<(u64, u64)> {
        let mut counts = (0_u64, 0_u64);
        for lane in self.partitions(&topic.config).await?.iter() {
            let (kept, trimmed) = self.persist(|_| self.client.store.letter_counts(lane.at())).await?;
            counts = (counts.0.saturating_add(kept), counts.1.saturating_add(trimmed));
        }
        Ok(counts)
    }

    /// Arms a dead letter's timer again, for now, as the same arming: its
    /// [`id`](crate::Lapse::id) is what it was, so that receivers who have booked it
    /// book it once. Its attempts start over. A timer that the key has is left alone.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn replay<T>(&self, letter: &DeadLetter<T>) -> Result<Replayed> {
        self.bring_back(letter, None).await
    }

    /// The same as a new arming, with an id of its own: for what is to be done once
    /// more although it may have been done.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn replay_as_new<T>(&self, letter: &DeadLetter<T>) -> Result<Replayed> {
        self.bring_back(letter, Some(ArmingId::random())).await
    }

    async fn bring_back<T>(&self, letter: &DeadLetter<T>, anew: Option<ArmingId>) -> Result<Replayed> {
        let first = Replay { letter: letter.id.clone(), id: ReplayId::random(), anew, repeat: false };
        let call = |repeat| {
            let call = Replay { repeat, ..first.clone() };
            async move { self.client.store.replay(&letter.at, &call).await }
        };
        self.persist(call).await.map_err(|error| error.at_key(&letter.key))
    }

    /// Forgets a dead letter; whether it was still there.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn drop_dead_letter<T>(&self, letter: &DeadLetter<T>) -> Result<bool> {
        let call = |_| self.client.store.drop_letter(&letter.at, &letter.id);
        self.persist(call).await.map_err(|error| error.at_key(&letter.key))
    }
}
