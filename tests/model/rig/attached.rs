//! Calls for keys that other programs write, in the few words that a readable case needs.

use bytes::Bytes;

use keylapse::timers::{ArmingId, MarkerKey};
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};
use keylapse_wire::policy::{Policy, TopicPolicy, WriteBackValue};
use keylapse_wire::time::ServerTime;
use keylapse_wire::{
    AnnouncedExpiry, CheckAction, CheckResult, DeadlineReading, DueChecks, ExpiryIdentity, NodeId, Position,
    RecordedExpiry, TakeChecks, TrackResult, TrackedKey,
};
use redis::cmd;

use super::{Ids, Rig};

/// Whatever is heard fires, keys are written back for their retries, and ten are remembered.
pub(crate) fn policy() -> Policy {
    let topic = TopicPolicy { write_back: WriteBackValue::Unchanged, ..TopicPolicy::default() };
    Policy { cap: 10, topic, ..Policy::default() }
}

impl Rig {
    /// From here on the topic is attached.
    pub(crate) fn attach(&mut self) {
        self.at = PartitionNames::new(DEFAULT_NAMESPACE, &self.at.topic, 0, 1, true);
    }

    /// What becomes of an expiry of `a`, the `count`th since the canary of this number.
    pub(crate) async fn note(&mut self, canary: u64, count: u32) -> RecordedExpiry {
        self.note_at(Some(Position { canary, count, ..Position::default() })).await
    }

    /// The same of an expiry that was heard without an anchor.
    pub(crate) async fn note_unanchored(&mut self) -> RecordedExpiry {
        self.note_at(None).await
    }

    async fn note_at(&mut self, at: Option<Position>) -> RecordedExpiry {
        let arming = self.ids.arming();
        self.note_as(at, arming).await
    }

    /// A note whose lapse would have this id.
    pub(crate) async fn note_as(&self, at: Option<Position>, arming: ArmingId) -> RecordedExpiry {
        // Who has heard it was anchored by the canary before it.
        let identity = at.map_or(ExpiryIdentity::Unknown(NodeId::NONE), |at| ExpiryIdentity::Anchored {
            at,
            since: at.canary,
        });
        let note = AnnouncedExpiry { key: Bytes::from_static(b"a"), identity, arming };
        self.store.record_expiries(&self.at, &policy(), &[note]).await.expect("it can be noted")[0]
    }

    /// Reads that `a` lives until this deadline (0: it has none), behind so many expiries since the canary
    /// of this number (0: none is heard). Also when the next check is due.
    pub(crate) async fn read(&self, deadline: u64, canary: u64, count: u32) -> (TrackResult, Option<u64>) {
        let read = DeadlineReading {
            key: Bytes::from_static(b"a"),
            deadline,
            at: Position { canary, count, ..Position::default() },
            stamp: ServerTime::new(0, self.micros()),
            requested_at: ServerTime::default(),
            copy: Bytes::new(),
        };
        let enrolled = self.store.track_keys(&self.at, &policy(), &[read]).await;
        let (next, value) = enrolled.expect("it can be enrolled");
        (value[0], next)
    }

    /// Takes the checks that are due for this slot, and keeps others from them for so long.
    pub(crate) async fn take_checks(&self, slot: u64, hold_ms: u64) -> DueChecks {
        let take = TakeChecks { slot: Ids::slot(slot), limit: 10, hold_ms, overdue_ms: 0 };
        self.store.take_checks(&self.at, take).await.expect("they can be taken")
    }

    /// Whether a verdict on this watch, given now, holds; and when the next check is due.
    pub(crate) async fn judge(&self, watch: TrackedKey, deed: CheckAction) -> (bool, Option<u64>) {
        let at = Position { canary: self.now(), ..Position::default() };
        let judged = CheckResult { watch, at, stamp: ServerTime::new(0, self.micros()), before: None, deed };
        let (next, value) =
            self.store.apply_checks(&self.at, &policy(), &[judged]).await.expect("it answers");
        (value[0], next)
    }

    /// Says that `a` was written back until this deadline, and has expired; whether its announcement is
    /// still to come.
    pub(crate) async fn returned(&self, deadline: u64) -> bool {
        self.store.write_back_expired(&self.at, b"a", deadline).await.expect("it can be said")
    }

    pub(crate) async fn write_back(&self, key: &str, deadline: u64, copy: &[u8]) -> MarkerKey {
        self.store.write_back(key.as_bytes(), deadline, copy).await.expect("it answers")
    }

    /// Loses the check of `a`.
    pub(crate) async fn lose_check(&self) {
        self.ask::<()>(cmd("ZREM").arg(self.at.key("checks")).arg("a")).await;
    }

    /// Writes the watch of `a` anew, or loses it.
    pub(crate) async fn put_watch(&self, watch: Option<&[u8]>) {
        let name = self.at.key("tracked");
        match watch {
            Some(watch) => self.ask::<()>(cmd("HSET").arg(name).arg("a").arg(watch)).await,
            None => self.ask::<()>(cmd("HDEL").arg(name).arg("a")).await,
        }
    }

    /// Of how many keys there is a history, on both pages.
    pub(crate) async fn histories(&self) -> u64 {
        self.length("expiry_history").await + self.length("expiry_history_old").await
    }
}
