//! What the scripts of attached topics promise, each by itself.

mod duties;
mod enrolling;
mod gaps;
mod history;
mod lapses;
mod limits;
mod nodes;
mod ranges;
mod touching;
mod writing_back;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use bytes::Bytes;
use keylapse::ErrorKind;
use keylapse::attach::Treatment;

use keylapse::timers::{ArmingId, MarkerKey};
use keylapse_connection::id::{SlotId, Token};
use keylapse_wire::policy::{CopySpec, FieldSelection, Policy, TopicPolicy, WriteBackValue};
use keylapse_wire::record::{Record, State};
use keylapse_wire::scripts;
use keylapse_wire::time::ServerTime;
use keylapse_wire::{
    AckReply, AttemptEnd, Claim, Claimed, DeadLetterLimits, Index, LeaseRef, QuarantineGroup, Settle,
    SettleReply, TopicEntry,
};
use keylapse_wire::{
    AnnouncedExpiry, CheckAction, CheckResult, DeadlineReading, DueChecks, Duty, ExpiryIdentity, KeyAbsence,
    KeyDeadline, KeySnapshot, NodeId, Position, RecordedExpiry, TakeChecks, TrackResult, TrackedKey,
};
use redis::cmd;

use crate::model::rig::{Rig, system_time};

/// Fire whatever is heard, remember ten keys.
pub(crate) fn on() -> Policy {
    Policy { cap: 10, ..Policy::default() }
}

/// The same with another policy of the topic.
pub(crate) fn with(change: impl FnOnce(&mut TopicPolicy)) -> Policy {
    let mut policy = on();
    change(&mut policy.topic);
    policy
}

/// The first canary, and the clock at the beginning: in 2096, so that what has a real time to live stays.
const FIRST: u64 = 4_000_000_000_000;
/// A page of the history takes so long, in ms.
const SPAN: u64 = 300_000;
const LETTERS: DeadLetterLimits = DeadLetterLimits { count: 10, age_ms: 86_400_000, pause_when_full: false };

/// Number of the last canary, and count since.
pub(crate) fn place((canary, count): (u64, u32)) -> Position {
    Position { canary, count, ..Position::default() }
}

/// Asked for and gone, on the only server.
fn found_gone(at: Position, stamp: ServerTime) -> KeyAbsence {
    KeyAbsence { at, stamp, requested_at: ServerTime::default() }
}

/// An expiry at this place, for who hears everything since this canary.
pub(crate) fn since(since: u64, at: (u64, u32)) -> ExpiryIdentity {
    ExpiryIdentity::Anchored { at: place(at), since }
}

/// An attached topic on a server, and the clock of its scripts at [`FIRST`].
pub(crate) struct Scene(Rig);

impl Deref for Scene {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.0
    }
}

impl Scene {
    pub(crate) async fn in_process(test: &str) -> Self {
        Self::on(Rig::in_process(test).await).await
    }

    pub(crate) async fn real(test: &str) -> Self {
        Self::on(Rig::real(test).await).await
    }

    /// On a server of its own, whose commands can be counted.
    async fn alone() -> Self {
        Self::on(Rig::alone("w").await).await
    }

    async fn on(mut rig: Rig) -> Self {
        rig.attach();
        let mut scene = Self(rig);
        scene.begin().await;
        scene
    }

    /// As at first.
    async fn begin(&mut self) {
        self.0.reset(system_time(FIRST)).await;
        let entry = TopicEntry {
            name: self.at.topic.clone(),
            pattern: "{id}".into(),
            partitions: 1,
            marker_keys: false,
            attached: true,
        };
        self.store.register(&entry, std::slice::from_ref(&self.at)).await.expect("a partition");
    }

    /// Sets the clock, in ms.
    pub(crate) async fn clock(&mut self, ms: u64) {
        self.0.set_clock(system_time(ms)).await;
    }

    async fn say(&self, words: &[&str]) -> redis::Value {
        self.ask(cmd(words[0]).arg(&words[1..])).await
    }

    /// How often each command was called, by the scripts too.
    async fn calls(&self) -> BTreeMap<String, u64> {
        let stats: String = self.ask(cmd("INFO").arg("commandstats")).await;
        let of_line = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
        };
        stats.lines().filter_map(of_line).collect()
    }

    /// The field of one of the partition's hashes.
    pub(crate) async fn get(&self, what: &str, field: &str) -> Bytes {
        self.ask(cmd("HGET").arg(self.at.key(what)).arg(field)).await
    }

    pub(crate) fn note_of(&self, key: &str) -> AnnouncedExpiry {
        let key = Bytes::copy_from_slice(key.as_bytes());
        AnnouncedExpiry { key, identity: ExpiryIdentity::Unknown(NodeId::NONE), arming: ArmingId::random() }
    }

    pub(crate) async fn notes(&self, how: &Policy, notes: &[AnnouncedExpiry]) -> Vec<RecordedExpiry> {
        self.store.record_expiries(&self.at, how, notes).await.expect("an answer")
    }

    /// What becomes of an expiry at this place, given from the first canary on, that is heard by who was
    /// anchored by the canary before it.
    async fn note(&self, key: &str, canary: u64, count: u32) -> RecordedExpiry {
        self.note_as(&on(), key, canary, count).await
    }

    async fn note_as(&self, how: &Policy, key: &str, canary: u64, count: u32) -> RecordedExpiry {
        let identity = since(FIRST + canary, (FIRST + canary, count));
        self.notes(how, &[AnnouncedExpiry { identity, ..self.note_of(key) }]).await[0]
    }

    pub(crate) async fn enrol(
        &self,
        key: &str,
        deadline: u64,
        at: (u64, u32),
        stamp: ServerTime,
        copy: &[u8],
    ) -> TrackResult {
        self.enrol_as(&on(), key, deadline, at, stamp, copy).await
    }

    async fn enrol_as(
        &self,
        how: &Policy,
        key: &str,
        deadline: u64,
        at: (u64, u32),
        stamp: ServerTime,
        copy: &[u8],
    ) -> TrackResult {
        let (key, copy) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(copy));
        let read = DeadlineReading {
            key,
            deadline,
            at: place(at),
            stamp,
            requested_at: ServerTime::default(),
            copy,
        };
        self.store.track_keys(&self.at, how, &[read]).await.expect("an answer").1[0]
    }

    /// Enrols a key that lives for a second, read at this place and so many µs later.
    async fn read(&self, key: &str, canary: u64, count: u32, micros: u64) -> TrackResult {
        self.read_until(key, FIRST + 1000, canary, count, micros).await
    }

    async fn read_until(
        &self,
        key: &str,
        deadline: u64,
        canary: u64,
        count: u32,
        micros: u64,
    ) -> TrackResult {
        self.enrol(key, deadline, (FIRST + canary, count), stamp(micros), b"").await
    }

    /// The watch of a key, as somebody gets it who looks at it.
    pub(crate) async fn watch(&self, key: &str) -> TrackedKey {
        self.looks(1000, 0)
            .await
            .watches
            .into_iter()
            .find(|watch| watch.key == key)
            .expect("a look that is due")
    }

    pub(crate) async fn judge(
        &self,
        watch: &TrackedKey,
        at: (u64, u32),
        stamp: ServerTime,
        deed: CheckAction,
    ) -> bool {
        let judgement = CheckResult { watch: watch.clone(), at: place(at), stamp, before: None, deed };
        self.store.apply_checks(&self.at, &on(), &[judgement]).await.expect("an answer").1[0]
    }

    async fn hold(&self, slot: &[u8; 8], patient: bool) -> Duty {
        let slot = SlotId::from_bytes(slot).expect("a slot");
        self.store.take_duty(&self.at, slot, 1000, patient).await.expect("an answer")
    }

    async fn settle(&self, held: LeaseRef, end: AttemptEnd) -> SettleReply {
        let settled = self.store.settle(&self.at, LETTERS, false, &[Settle { held, end }]).await;
        settled.expect("an answer").each[0]
    }

    async fn ack(&self, held: LeaseRef) -> AckReply {
        self.store.ack(&self.at, false, &[held]).await.expect("an answer")
    }

    /// What is there to be looked at, as one asks who gives it back after so long.
    async fn looks(&self, limit: usize, hold_ms: u64) -> DueChecks {
        self.store.take_checks(&self.at, take(limit, hold_ms)).await.expect("an answer")
    }

    async fn claim(&self) -> Vec<(ArmingId, LeaseRef, u32)> {
        let slot = SlotId::from_bytes(b"the-slot").expect("a slot");
        let token = Token::random();
        let claim = Claim {
            index: Index::Due,
            slot,
            token,
            repeat: false,
            limit: 10,
            bytes: 10_000,
            lookahead_ms: 0,
            lease_ms: 1_000_000,
            letters: LETTERS,
            group: QuarantineGroup::ALONE,
        };
        let Claimed { timers, .. } = self.store.claim(&self.at, claim).await.expect("an answer");
        let taken = timers.into_iter().map(|timer| {
            let record = Record::decode(timer.record).expect("a record");
            let attempt = timer.state.map_or(1, |state| State::decode(state).expect("a state").attempt);
            (record.arming, LeaseRef { key: timer.key, token }, attempt)
        });
        taken.collect()
    }
}

fn stamp(micros: u64) -> ServerTime {
    ServerTime::new(0, FIRST * 1000 + micros)
}

fn fire() -> CheckAction {
    CheckAction::Fire { arming: ArmingId::random(), flags: 3 }
}

/// A failure, to be tried again in a second.
fn retry() -> AttemptEnd {
    AttemptEnd::Retry { delay: 1000, attempt: 2, snoozes: 0, history: Bytes::from_static(b"[]") }
}

/// What the record in `rec` carries.
fn payload(record: &Bytes) -> Bytes {
    record.slice(17..)
}

fn take(limit: usize, hold_ms: u64) -> TakeChecks {
    TakeChecks { slot: SlotId::from_bytes(b"the-slot").expect("a slot"), limit, hold_ms, overdue_ms: 0 }
}
