//! Timers, dead letters and tracked keys as operators see them, and look-ups by key.

use std::time::SystemTime;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::time::system_time;
use crate::trace::Traceparent;
use crate::wire::{
    DeadReason, FailedAttempt, History, LETTER_NAME, PageMember, RECORD_HEAD, Record, State,
    StoredDeadLetter, TimerSnapshot,
};
use crate::{TopicHandle, text};

/// The state of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EntryState {
    /// A timer that waits for its deadline, for its retry or for a listener that claims it.
    #[default]
    Waiting,
    /// A timer whose attempt runs under a lease.
    Running,
    /// A timer that has lost leases. It waits or runs in quarantine, in a small group or alone.
    Quarantined,
    /// A dead letter.
    Dead,
    /// A tracked key: another program has written it, and keylapse remembers its deadline.
    Tracked,
}

impl EntryState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Quarantined, Self::Dead, Self::Tracked];

    /// Returns the state's name for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Quarantined => "quarantined",
            Self::Dead => "dead",
            Self::Tracked => "tracked",
        }
    }

    /// Returns the noun for an entry in this state: `waiting timer`, `dead letter`, `tracked key`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting timer",
            Self::Running => "running timer",
            Self::Quarantined => "quarantined timer",
            Self::Dead => "dead letter",
            Self::Tracked => "tracked key",
        }
    }
}

impl std::str::FromStr for EntryState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!(
                "unknown state {}: the states are {all}",
                crate::escape::excerpt(text.as_bytes())
            ))
        })
    }
}

/// A timer, a dead letter or a tracked key.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The state.
    pub state: EntryState,
    /// The arming ID. Tracked keys and entries with an unreadable record have none.
    #[serde(serialize_with = "text::id_as_text")]
    pub id: Option<ArmingId>,
    /// The time in ms since 1970 at which the entry next needs attention: the deadline of a waiting timer, the end of a
    /// running timer's lease. For a dead letter, the time of death.
    pub at_ms: u64,
    /// The first deadline of a timer, or the deadline of a tracked key, in ms since 1970.
    pub deadline_ms: Option<u64>,
    /// The number of the running or next attempt, from 1. For a dead letter, the number of attempts.
    pub attempt: u32,
    /// The leases lost since the last attempt that was settled.
    pub lost_leases: u8,
    /// The number of snoozes.
    pub snoozes: u16,
    /// The reason of a dead letter.
    #[serde(serialize_with = "text::reason_as_text", skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    /// The last failed attempts, at most ten, the oldest first.
    pub failures: Vec<FailedAttempt>,
    /// The size of the payload in bytes.
    pub payload_bytes: u64,
    /// The payload, if it was requested, up to the requested length.
    #[serde(with = "text::serde_maybe_bytes", skip_serializing_if = "Option::is_none")]
    pub payload: Option<Bytes>,
    /// The name in the index: the key, or for a dead letter its arming ID, time of death and key.
    #[serde(skip)]
    pub(super) name: Bytes,
    /// The score in the index.
    #[serde(skip)]
    pub(super) score: f64,
    /// The record and the state from Redis, as far as they were read.
    #[serde(skip)]
    pub(super) stored: (Bytes, Bytes),
    /// True if the lease of an attempt has ended before the attempt was settled.
    #[serde(skip)]
    pub(super) was_left: bool,
}

impl Entry {
    /// Returns the time of [`at_ms`](Self::at_ms).
    pub fn at(&self) -> SystemTime {
        system_time(self.at_ms)
    }

    /// Returns the error of the last failed attempt.
    pub fn last_error(&self) -> Option<&str> {
        self.failures.last().map(|failed| failed.error.as_str())
    }
}

/// Converts one member of a page to an entry.
pub(super) fn read(topic: &TopicHandle, partition: u32, member: PageMember, payload: Option<usize>) -> Entry {
    let at_ms = whole(member.score);
    Entry {
        topic: topic.name().to_owned(),
        partition,
        key: member.name.clone(),
        state: EntryState::Waiting,
        id: None,
        at_ms,
        deadline_ms: None,
        attempt: 1,
        lost_leases: 0,
        snoozes: 0,
        reason: None,
        failures: Vec::new(),
        payload_bytes: 0,
        payload: payload.map(|_| Bytes::new()),
        name: member.name,
        score: member.score,
        stored: (member.what.clone().unwrap_or_default(), member.state.clone().unwrap_or_default()),
        was_left: false,
    }
    .with_state(member.state)
    .with_record(topic, member.what, member.size, payload)
}

impl Entry {
    /// Turns a running timer into a waiting one if its lease has ended, because then any listener can claim it.
    pub(super) fn judged_at(self, now_ms: u64) -> Self {
        match self.state {
            EntryState::Running if self.at_ms < now_ms => {
                Self { state: EntryState::Waiting, was_left: true, ..self }
            }
            _ => self,
        }
    }

    /// Adds the fields of an encoded state.
    pub(super) fn with_state(mut self, state: Option<Bytes>) -> Self {
        let Some(state) = state.and_then(|state| State::decode(state).ok()) else { return self };
        if state.claimed {
            self.state = EntryState::Running;
        }
        self.attempt = state.attempt;
        self.lost_leases = state.lost;
        self.snoozes = state.snoozes;
        self.failures = History::decode(&state.history).0;
        self
    }

    /// Adds the fields of an encoded record, which may be cut. `size` is its full length in bytes.
    pub(super) fn with_record(
        mut self,
        topic: &TopicHandle,
        record: Option<Bytes>,
        size: u64,
        payload: Option<usize>,
    ) -> Self {
        let cut = record.as_ref().map_or(0, Bytes::len) as u64;
        let Some(Ok(record)) = record.map(Record::decode) else { return self };
        self.id = Some(record.arming);
        self.deadline_ms = Some(record.deadline);
        self.payload_bytes = size - cut + record.payload.len() as u64;
        self.payload = payload.map(|most| {
            let own = topic.config().own_payload(record.payload);
            own.slice(..own.len().min(most))
        });
        self
    }
}

/// Converts one member of a page to a dead letter.
pub(super) fn read_letter(
    topic: &TopicHandle,
    partition: u32,
    member: PageMember,
    payload: Option<usize>,
) -> Option<Entry> {
    let PageMember { name, what, size, .. } = member;
    let what = what?;
    let letter =
        StoredDeadLetter::decode(what.clone()).unwrap_or_else(|_| StoredDeadLetter::unreadable(what.clone()));
    let size = size - (what.len() - letter.record.len()) as u64;
    let key = name.slice(name.len().min(LETTER_NAME)..);
    let plain = PageMember { name: key, what: None, size, ..member };
    let stored = (letter.record.clone(), letter.state.clone());
    let entry = read(topic, partition, plain, payload);
    let entry = entry.with_state(Some(letter.state)).with_record(topic, Some(letter.record), size, payload);
    let id = entry.id.or_else(|| ArmingId::from_bytes(name.get(..8)?));
    Some(Entry { state: EntryState::Dead, reason: Some(letter.reason), id, name, stored, ..entry })
}

/// Converts one member of a page to a tracked key. The stored bytes begin with the deadline.
pub(super) fn read_tracked_key(topic: &TopicHandle, partition: u32, member: PageMember) -> Entry {
    let deadline =
        member.what.as_ref().and_then(|watch| watch.get(..8)?.try_into().ok()).map(u64::from_be_bytes);
    let entry = read(topic, partition, PageMember { what: None, state: None, ..member }, None);
    Entry { state: EntryState::Tracked, deadline_ms: deadline, attempt: 0, ..entry }
}

/// How many bytes of each record are read in addition to the requested part of the payload: the head and the trace context.
pub(super) const HEADS: usize = RECORD_HEAD + Traceparent::LENGTH;

/// Returns the whole part of a score. A score out of range becomes the nearest `u64`.
fn whole(score: f64) -> u64 {
    score.max(0.0) as u64
}

impl TopicHandle {
    /// Returns a key's timer, with at most `payload` bytes of its payload.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn timer(&self, key: &[u8], payload: Option<usize>) -> Result<Option<Entry>> {
        Ok(self.look(key).await?.map(|look| self.entry_of(key, look, payload)))
    }

    /// Returns the dead letters of a key, the newest first. Scans the names of all dead letters of the key's partition, 500
    /// at a time.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn dead_letters_of_key(&self, key: &[u8], payload: Option<usize>) -> Result<Vec<Entry>> {
        let at = self.partition_of(key);
        let (store, keep) = (self.console.store(), payload.unwrap_or(0));
        let found = self.console.retry_until_answered(|_| store.letters_of_key(at, key)).await?;
        let letter = |(name, letter, died): (Bytes, Bytes, u64)| {
            let member = PageMember {
                name,
                score: died as f64,
                size: letter.len() as u64,
                what: Some(letter),
                state: None,
            };
            read_letter(self, at.index, member, payload.map(|_| keep))
        };
        let mut letters: Vec<_> = found.into_iter().filter_map(letter).collect();
        letters.sort_by(|a, b| b.at_ms.cmp(&a.at_ms).then_with(|| b.name.cmp(&a.name)));
        Ok(letters)
    }

    pub(super) async fn look(&self, key: &[u8]) -> Result<Option<TimerSnapshot>> {
        let (store, at) = (self.console.store(), self.partition_of(key));
        self.console
            .retry_until_answered(|_| store.get_timer_without_init(at, key))
            .await
            .map_err(|error| error.at_key(key))
    }

    /// Returns a tracked key of an attached topic.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn tracked_key(&self, key: &[u8]) -> Result<Option<Entry>> {
        if !self.is_attached() {
            return Ok(None);
        }
        let (store, at) = (self.console.store(), self.partition_of(key));
        let found = self.console.retry_until_answered(|_| store.watch_of_key(at, key)).await?;
        Ok(found.map(|(watch, score)| {
            let name = Bytes::copy_from_slice(key);
            read_tracked_key(
                self,
                at.index,
                PageMember { name, score, size: 0, what: Some(watch), state: None },
            )
        }))
    }

    pub(super) fn entry_of(&self, key: &[u8], look: TimerSnapshot, payload: Option<usize>) -> Entry {
        let at = self.partition_of(key).index;
        let lost = look.score.is_none();
        let member = PageMember {
            name: Bytes::copy_from_slice(key),
            score: look.score.unwrap_or_default() as f64,
            size: look.record.len() as u64,
            what: Some(look.record),
            state: look.state,
        };
        let entry = read(self, at, member, payload).judged_at(look.stamp.ms());
        match look.quarantined {
            true => Entry { state: EntryState::Quarantined, ..entry },
            false if lost => Entry { state: EntryState::Waiting, ..entry },
            false => entry,
        }
    }
}
