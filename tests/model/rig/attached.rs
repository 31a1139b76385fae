//! Calls for keys that other programs write, in the few words that a readable case needs.

use bytes::Bytes;

use keylapse::timers::{ArmingId, TriggerKey};
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};
use keylapse_wire::policy::{Counting, Policy, TopicPolicy};
use keylapse_wire::time::ServerTime;
use keylapse_wire::{
    Deed, DueChecks, Enrolled, Enrolment, Identity, Judged, NodeId, Note, Noted, Position, TakeChecks, Watch,
};
use redis::cmd;

use super::{Ids, Rig};

/// Whatever is heard fires, keys are written back for their retries, and ten are remembered.
pub(crate) fn policy() -> Policy {
    let topic = TopicPolicy { write_back: Counting::Nowhere, ..TopicPolicy::default() };
    Policy { cap: 10, topic, ..Policy::default() }
}

impl Rig {
    /// From here on the topic is attached.
    pub(crate) fn attach(&mut self) {
        self.at = PartitionNames::new(DEFAULT_NAMESPACE, &self.at.topic, 0, 1, true);
    }

    /// What becomes of an expiry of `a`, the `count`th since the canary of this number.
    pub(crate) async fn note(&mut self, canary: u64, count: u32) -> Noted {
        self.note_at(Some(Position { canary, count, ..Position::default() })).await
    }

    /// The same of an expiry that was heard without an anchor.
    pub(crate) async fn note_unanchored(&mut self) -> Noted {
        self.note_at(None).await
    }

    async fn note_at(&mut self, at: Option<Position>) -> Noted {
        let arming = self.ids.arming();
        self.note_as(at, arming).await
    }

    /// A note whose lapse would have this id.
    pub(crate) async fn note_as(&self, at: Option<Position>, arming: ArmingId) -> Noted {
        // Who has heard it was anchored by the canary before it.
        let identity =
            at.map_or(Identity::Unknown(NodeId::NONE), |at| Identity::Anchored { at, since: at.canary });
        let note = Note { key: Bytes::from_static(b"a"), identity, arming };
        self.store.note(&self.at, &policy(), &[note]).await.expect("it can be noted")[0]
    }

    /// Reads that `a` lives until this deadline (0: it has none), behind so many expiries since the canary
    /// of this number (0: none is heard). Also when the next check is due.
    pub(crate) async fn read(&self, deadline: u64, canary: u64, count: u32) -> (Enrolled, Option<u64>) {
        let read = Enrolment {
            key: Bytes::from_static(b"a"),
            deadline,
            at: Position { canary, count, ..Position::default() },
            stamp: ServerTime::new(0, self.micros()),
            asked: ServerTime::default(),
            copy: Bytes::new(),
        };
        let enrolled = self.store.enrol(&self.at, &policy(), &[read]).await;
        let (next, value) = enrolled.expect("it can be enrolled");
        (value[0], next)
    }

    /// Takes the checks that are due for this slot, and keeps others from them for so long.
    pub(crate) async fn take_checks(&self, slot: u64, hold_ms: u64) -> DueChecks {
        let take = TakeChecks { slot: Ids::slot(slot), limit: 10, hold_ms, overdue_ms: 0 };
        self.store.checks(&self.at, take).await.expect("they can be taken")
    }

    /// Whether a verdict on this watch, given now, holds; and when the next check is due.
    pub(crate) async fn judge(&self, watch: Watch, deed: Deed) -> (bool, Option<u64>) {
        let at = Position { canary: self.now(), ..Position::default() };
        let judged = Judged { watch, at, stamp: ServerTime::new(0, self.micros()), before: None, deed };
        let (next, value) = self.store.judge(&self.at, &policy(), &[judged]).await.expect("it answers");
        (value[0], next)
    }

    /// Says that `a` was written back until this deadline, and has expired; whether its announcement is
    /// still to come.
    pub(crate) async fn returned(&self, deadline: u64) -> bool {
        self.store.returned(&self.at, b"a", deadline).await.expect("it can be said")
    }

    pub(crate) async fn write_back(&self, key: &str, deadline: u64, copy: &[u8]) -> TriggerKey {
        self.store.write_back(key.as_bytes(), deadline, copy).await.expect("it answers")
    }

    /// Loses the check of `a`.
    pub(crate) async fn lose_check(&self) {
        self.ask::<()>(cmd("ZREM").arg(self.at.key("checks")).arg("a")).await;
    }

    /// Writes the watch of `a` anew, or loses it.
    pub(crate) async fn put_watch(&self, watch: Option<&[u8]>) {
        let name = self.at.key("watch");
        match watch {
            Some(watch) => self.ask::<()>(cmd("HSET").arg(name).arg("a").arg(watch)).await,
            None => self.ask::<()>(cmd("HDEL").arg(name).arg("a")).await,
        }
    }

    /// Of how many keys there is a history, on both pages.
    pub(crate) async fn histories(&self) -> u64 {
        self.length("history").await + self.length("history_old").await
    }
}
