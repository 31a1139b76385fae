//! One timer, dead letter or enrolled key, as it is shown; and what a topic has of one key.

use std::time::SystemTime;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::time::system_time;
use crate::trace::Traceparent;
use crate::wire::{
    DeadReason, FailedAttempt, History, LETTER_NAME, Letter, Look, PageMember, RECORD_HEAD, Record, State,
};
use crate::{KnownTopic, text};

/// What an entry is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EntryState {
    /// A timer that waits: for its deadline, its retry, or to be taken.
    #[default]
    Waiting,
    /// A timer whose attempt runs, under a lease.
    Running,
    /// A timer that has lost leases, and waits or runs in a small group or alone.
    Quarantined,
    /// A dead letter.
    Dead,
    /// A key of another program whose deadline is known.
    Enrolled,
}

impl EntryState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Quarantined, Self::Dead, Self::Enrolled];

    /// The state's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Quarantined => "quarantined",
            Self::Dead => "dead",
            Self::Enrolled => "enrolled",
        }
    }

    /// What an entry in it is called: `waiting timer`, `dead letter`, `enrolled key`.
    pub fn called(self) -> &'static str {
        match self {
            Self::Waiting => "waiting timer",
            Self::Running => "running timer",
            Self::Quarantined => "quarantined timer",
            Self::Dead => "dead letter",
            Self::Enrolled => "enrolled key",
        }
    }
}

impl std::str::FromStr for EntryState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let text = crate::escape::excerpt(text.as_bytes());
            Error::invalid(format!("{text} is no state: waiting, running, quarantined, dead or enrolled"))
        })
    }
}

/// A timer, a dead letter or an enrolled key.
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
    /// What it is doing.
    pub state: EntryState,
    /// The arming; none where the record cannot be read, and of enrolled keys.
    #[serde(serialize_with = "text::id_as_text")]
    pub id: Option<ArmingId>,
    /// When it next needs attention, in ms since 1970: its deadline while it waits, the end of its lease while it runs.
    /// Of a dead letter when it died.
    pub at_ms: u64,
    /// Its first deadline, in ms since 1970. Of an enrolled key its deadline.
    pub deadline_ms: Option<u64>,
    /// The attempt that runs or is to come, from 1; of a dead letter how many it had.
    pub attempt: u32,
    /// Leases lost since a live holder last settled.
    pub lost_leases: u8,
    /// How often it was snoozed.
    pub snoozes: u16,
    /// Why it died.
    #[serde(serialize_with = "text::reason_as_text", skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    /// The failed attempts, at most ten, oldest first.
    pub failures: Vec<FailedAttempt>,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// The payload, if it was asked for; cut where it is long.
    #[serde(with = "text::serde_maybe_bytes", skip_serializing_if = "Option::is_none")]
    pub payload: Option<Bytes>,
    /// What names a dead letter among others of its key: arming id, time of death and key.
    #[serde(skip)]
    pub(super) name: Bytes,
    /// Where it stands among the others of its index.
    #[serde(skip)]
    pub(super) score: f64,
    /// What stands in Redis, as far as it was read: record, and state.
    #[serde(skip)]
    pub(super) stands: (Bytes, Bytes),
    /// Whether an attempt was taken whose lease has ended, and which nobody has settled.
    #[serde(skip)]
    pub(super) was_left: bool,
}

impl Entry {
    /// When it next needs attention, or died.
    pub fn at(&self) -> SystemTime {
        system_time(self.at_ms)
    }

    /// What the last failed attempt said.
    pub fn last_error(&self) -> Option<&str> {
        self.failures.last().map(|failed| failed.error.as_str())
    }
}

/// Reads what a page has said of one member.
pub(super) fn read(topic: &KnownTopic, partition: u32, member: PageMember, payload: Option<usize>) -> Entry {
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
        stands: (member.what.clone().unwrap_or_default(), member.state.clone().unwrap_or_default()),
        was_left: false,
    }
    .said_by(member.state)
    .recorded(topic, member.what, member.size, payload)
}

impl Entry {
    /// Of a timer whose lease has ended nobody knows of a running attempt: it waits to be taken again.
    pub(super) fn judged_at(self, now_ms: u64) -> Self {
        match self.state {
            EntryState::Running if self.at_ms < now_ms => {
                Self { state: EntryState::Waiting, was_left: true, ..self }
            }
            _ => self,
        }
    }

    /// With what the state says.
    pub(super) fn said_by(mut self, state: Option<Bytes>) -> Self {
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

    /// With what the record says, of which there are `size` bytes in all.
    pub(super) fn recorded(
        mut self,
        topic: &KnownTopic,
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

/// Reads a letter of a page.
pub(super) fn read_letter(
    topic: &KnownTopic,
    partition: u32,
    member: PageMember,
    payload: Option<usize>,
) -> Option<Entry> {
    let PageMember { name, what, size, .. } = member;
    let what = what?;
    let letter = Letter::decode(what.clone()).unwrap_or_else(|_| Letter::unreadable(what.clone()));
    let size = size - (what.len() - letter.record.len()) as u64;
    let key = name.slice(name.len().min(LETTER_NAME)..);
    let plain = PageMember { name: key, what: None, size, ..member };
    let stands = (letter.record.clone(), letter.state.clone());
    let entry = read(topic, partition, plain, payload);
    let entry = entry.said_by(Some(letter.state)).recorded(topic, Some(letter.record), size, payload);
    let id = entry.id.or_else(|| ArmingId::from_bytes(name.get(..8)?));
    Some(Entry { state: EntryState::Dead, reason: Some(letter.reason), id, name, stands, ..entry })
}

/// Reads an enrolled key of a page: its watch begins with the deadline.
pub(super) fn read_watch(topic: &KnownTopic, partition: u32, member: PageMember) -> Entry {
    let deadline =
        member.what.as_ref().and_then(|watch| watch.get(..8)?.try_into().ok()).map(u64::from_be_bytes);
    let entry = read(topic, partition, PageMember { what: None, state: None, ..member }, None);
    Entry { state: EntryState::Enrolled, deadline_ms: deadline, attempt: 0, ..entry }
}

/// Bytes of a record that are read of each entry, besides what is wanted of its payload: its head, and where its
/// producer's trace stands.
pub(super) const HEADS: usize = RECORD_HEAD + Traceparent::LENGTH;

/// Returns the whole part; a score out of range becomes the nearest `u64`.
fn whole(score: f64) -> u64 {
    score.max(0.0) as u64
}

impl KnownTopic {
    /// A key's timer, with up to so many bytes of its payload.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn timer(&self, key: &[u8], payload: Option<usize>) -> Result<Option<Entry>> {
        Ok(self.look(key).await?.map(|look| self.entry_of(key, look, payload)))
    }

    /// The dead letters of a key, the newest first. All letters of its partition are gone through by name, 500 in
    /// a step.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn letters_of(&self, key: &[u8], payload: Option<usize>) -> Result<Vec<Entry>> {
        let at = self.partition_of(key);
        let (store, keep) = (self.console.store(), payload.unwrap_or(0));
        let found = self.console.persist(|_| store.letters_of_key(at, key)).await?;
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

    pub(super) async fn look(&self, key: &[u8]) -> Result<Option<Look>> {
        let (store, at) = (self.console.store(), self.partition_of(key));
        self.console.persist(|_| store.look_if_made(at, key)).await.map_err(|error| error.at_key(key))
    }

    /// A key of an attached topic, if it is enrolled.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn enrolment(&self, key: &[u8]) -> Result<Option<Entry>> {
        if !self.is_attached() {
            return Ok(None);
        }
        let (store, at) = (self.console.store(), self.partition_of(key));
        let found = self.console.persist(|_| store.watch_of_key(at, key)).await?;
        Ok(found.map(|(watch, score)| {
            let name = Bytes::copy_from_slice(key);
            read_watch(self, at.index, PageMember { name, score, size: 0, what: Some(watch), state: None })
        }))
    }

    pub(super) fn entry_of(&self, key: &[u8], look: Look, payload: Option<usize>) -> Entry {
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
