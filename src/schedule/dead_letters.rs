//! Reading, replaying and dropping dead letters.

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
    DeadLetterPosition, DeadReason, FailedAttempt, History, MAX_BATCH, PartitionNames, RawDeadLetter, Record,
    ReplayCall, Replayed, State, StoredDeadLetter,
};

/// The number of dead letters that [`DeadLetters::next`] reads in one call.
const DEAD_LETTER_PAGE: usize = 100;

/// A timer that ended without success, with its payload and its failed attempts.
///
/// ```no_run
/// use keylapse::Schedule;
/// use keylapse::dead_letters::{DeadLetter, DeadReason, Replayed};
///
/// /// Replays a payment notice that has used up its attempts.
/// async fn replay(schedule: &Schedule, notice: &DeadLetter<String>) -> keylapse::Result<bool> {
///     println!("{:?} failed {} times: {:?}", notice.key, notice.attempts, notice.last_error());
///     Ok(notice.reason == DeadReason::Exhausted && schedule.replay(notice).await? == Replayed::Replayed)
/// }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct DeadLetter<T> {
    /// The key of the timer.
    pub key: Bytes,
    /// The ID of the arming. [`Lapse::id`](crate::Lapse::id) returned it, and returns it again after a
    /// [replay](Schedule::replay).
    pub arming: ArmingId,
    /// Why the timer became a dead letter.
    pub reason: DeadReason,
    /// When the timer became a dead letter, by the server's clock.
    pub died: SystemTime,
    /// The first deadline, or `None` if the record is unreadable.
    pub deadline: Option<SystemTime>,
    /// The number of attempts.
    pub attempts: u32,
    /// How many leases were lost since the last settled attempt.
    pub lost_leases: u8,
    /// The failed attempts, at most ten, oldest first. The last one has the last error.
    pub history: Vec<FailedAttempt>,
    /// The payload. For a lapse of an attached topic, it is the copy of the key's value, if it was kept.
    pub payload: Result<T, Undecoded>,
    /// The ID of the dead letter in its partition.
    id: Bytes,
    /// Its partition.
    at: PartitionNames,
}

/// A payload that does not match the topic's type.
#[derive(Clone)]
#[non_exhaustive]
pub struct Undecoded {
    /// The bytes of the payload, or of the whole record if that is unreadable.
    pub bytes: Bytes,
    /// Why the payload could not be decoded.
    pub error: Error,
}

impl fmt::Debug for Undecoded {
    /// Omits the bytes, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Undecoded({} bytes: {})", self.bytes.len(), self.error)
    }
}

impl<T> fmt::Debug for DeadLetter<T> {
    /// Omits the payload, which may contain secrets.
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
    /// Returns the error of the last failed attempt.
    pub fn last_error(&self) -> Option<&str> {
        self.history.last().map(|failed| failed.error.as_str())
    }

    fn decode(topic: &Topic<T>, at: &PartitionNames, raw: RawDeadLetter) -> Option<Self> {
        let arming = ArmingId::from_bytes(raw.id.get(..8)?)?;
        // Unreadable dead letters are listed too, so that an operator can inspect them.
        let letter = StoredDeadLetter::decode(raw.letter.clone());
        // Only a valid dead letter has a record: other bytes may have the length of one by chance.
        let record = letter.clone().and_then(|letter| Record::decode(letter.record));
        let letter = letter.unwrap_or_else(|_| StoredDeadLetter::unreadable(raw.letter));
        let state = State::decode(letter.state).unwrap_or_default();
        let deadline = record.as_ref().ok().map(|record| system_time(record.deadline));
        let payload = match record {
            Ok(record) => topic
                .decode(&record.payload)
                .map_err(|error| Undecoded { bytes: topic.config.own_payload(record.payload), error }),
            Err(_) => {
                let error = Error::new(ErrorKind::Payload, "the record is unreadable");
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

/// A cursor over the dead letters of a topic. It reads partition by partition, and the oldest first in each.
///
/// Each dead letter that is not removed during the read is returned once, even if others are replayed, dropped or
/// added. Dead letters that are added during the read may be missing.
///
/// ```no_run
/// # use keylapse::{Schedule, Topic};
/// # async fn clean(schedule: Schedule, orders: Topic<u64>) -> keylapse::Result<()> {
/// let mut dead_letters = schedule.dead_letters(&orders);
/// while let Some(order) = dead_letters.next().await? {
///     println!("{:?}: {}, {:?}", order.key, order.reason.as_str(), order.last_error());
///     schedule.drop_dead_letter(&order).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is read until next or page is awaited"]
pub struct DeadLetters<'a, T> {
    schedule: &'a Schedule,
    topic: &'a Topic<T>,
    /// The number of the current partition.
    partition: usize,
    /// The position of the last dead letter that was read in the current partition.
    last: Option<DeadLetterPosition>,
    /// Dead letters that were read and not returned yet.
    read: VecDeque<DeadLetter<T>>,
}

impl<T> DeadLetters<'_, T> {
    /// Returns the next dead letter, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call. The next call then reads the same dead
    /// letter.
    pub async fn next(&mut self) -> Result<Option<DeadLetter<T>>> {
        if self.read.is_empty() {
            self.read = self.page(DEAD_LETTER_PAGE).await?.into();
        }
        Ok(self.read.pop_front())
    }

    /// Returns up to `count` dead letters, and none at the end.
    ///
    /// # Errors
    /// Returns the errors of [`next`](Self::next).
    pub async fn page(&mut self, count: usize) -> Result<Vec<DeadLetter<T>>> {
        let partitions = self.schedule.lanes(&self.topic.config).await?;
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
            page.extend(raw.into_iter().filter_map(|raw| DeadLetter::decode(self.topic, at, raw)));
        }
        Ok(page)
    }
}

impl Schedule {
    /// Returns a cursor over the dead letters of a topic.
    pub fn dead_letters<'a, T>(&'a self, topic: &'a Topic<T>) -> DeadLetters<'a, T> {
        DeadLetters { schedule: self, topic, partition: 0, last: None, read: VecDeque::new() }
    }

    /// Returns how many dead letters a topic has, and how many were removed to make room since the topic was created.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call.
    pub async fn dead_letter_counts<T>(&self, topic: &Topic<T>) -> Result<(u64, u64)> {
        let mut counts = (0_u64, 0_u64);
        for lane in self.lanes(&topic.config).await?.iter() {
            let (kept, trimmed) = self.persist(|_| self.client.store.letter_counts(lane.at())).await?;
            counts = (counts.0.saturating_add(kept), counts.1.saturating_add(trimmed));
        }
        Ok(counts)
    }

    /// Arms the timer of a dead letter again, due now. It is the same arming, with the same [`id`](crate::Lapse::id),
    /// so receivers can recognize the repetition. Its attempts start over. If the key has a timer, nothing changes.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call.
    pub async fn replay<T>(&self, letter: &DeadLetter<T>) -> Result<Replayed> {
        self.replay_letter(letter, None).await
    }

    /// Arms the timer of a dead letter again as a new arming, with a new ID. Receivers do not recognize it as a
    /// repetition.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call.
    pub async fn replay_as_new<T>(&self, letter: &DeadLetter<T>) -> Result<Replayed> {
        self.replay_letter(letter, Some(ArmingId::random())).await
    }

    /// Arms the timer of a dead letter again, as the same arming or with a new ID.
    async fn replay_letter<T>(&self, letter: &DeadLetter<T>, new_id: Option<ArmingId>) -> Result<Replayed> {
        let first =
            ReplayCall { letter: letter.id.clone(), id: ReplayId::random(), anew: new_id, repeat: false };
        let call = |repeat| {
            let call = ReplayCall { repeat, ..first.clone() };
            async move { self.client.store.replay(&letter.at, &call).await }
        };
        self.persist(call).await.map_err(|error| error.at_key(&letter.key))
    }

    /// Deletes a dead letter. Returns `false` if it no longer existed.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call.
    pub async fn drop_dead_letter<T>(&self, letter: &DeadLetter<T>) -> Result<bool> {
        let call = |_| self.client.store.drop_letter(&letter.at, &letter.id);
        self.persist(call).await.map_err(|error| error.at_key(&letter.key))
    }
}
