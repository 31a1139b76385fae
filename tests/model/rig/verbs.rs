//! Calls in the few words that a readable case needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse::dead_letters::{DeadReason, Replayed};
use keylapse::timers::ArmingId;
use keylapse::{ArmResult, Rescheduled, Result};
use keylapse_wire::record::State;
use keylapse_wire::time::{ServerTime, WireWhen};
use keylapse_wire::{
    AckReply, AttemptEnd, CancelReply, Claim, Claimed, ClaimedTimer, DeadLetterLimits, Heads, Index,
    LeaseRef, NewTimer, OpFlags, QuarantineGroup, RawDeadLetter, RepairStep, RepairTarget, ReplayCall,
    Settle, SettleReply, TimerSnapshot,
};

use super::{Ids, Rig};
use crate::produce::{Cancel, Produce};

/// How long claims hold, unless a case says otherwise.
pub(crate) const LEASE: u64 = 30_000;

/// Room for more dead letters than most cases make.
pub(crate) const LETTERS: DeadLetterLimits =
    DeadLetterLimits { count: 100, age_ms: 86_400_000, pause_when_full: false };

/// The result of an arm, without the receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArmCode {
    Armed,
    Replaced,
    AfterRunning,
    Exists,
    Superseded,
    /// Its deadline cannot be kept.
    TooFar,
}

/// The result of an arm, and when what it armed is due; 0 where that is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArmReply {
    pub code: ArmCode,
    pub deadline: u64,
}

impl From<Result<ArmResult>> for ArmReply {
    fn from(arming: Result<ArmResult>) -> Self {
        let arming = match arming {
            Ok(arming) => arming,
            Err(error) => {
                assert_eq!(error.kind(), keylapse::ErrorKind::Invalid, "{error}");
                return Self { code: ArmCode::TooFar, deadline: 0 };
            }
        };
        let code = match arming {
            ArmResult::Armed(_) => ArmCode::Armed,
            ArmResult::Replaced(_) => ArmCode::Replaced,
            ArmResult::AfterRunning(_) => ArmCode::AfterRunning,
            ArmResult::Exists => ArmCode::Exists,
            ArmResult::Superseded => ArmCode::Superseded,
            other => panic!("nobody expects {other:?}"),
        };
        Self { code, deadline: arming.receipt().map_or(0, |receipt| unix_ms(receipt.deadline)) }
    }
}

pub(crate) fn system_time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::try_from(since.as_millis()).expect("it can be kept")
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What a claim took, and what it takes to end that.
#[derive(Debug)]
pub(crate) struct Taken {
    pub claimed: Claimed,
    pub call: Claim,
}

impl Taken {
    pub(crate) fn held(&self) -> Vec<LeaseRef> {
        let held = |timer: &ClaimedTimer| LeaseRef { key: timer.key.clone(), token: self.call.token };
        self.claimed.timers.iter().map(held).collect()
    }

    /// The only one.
    pub(crate) fn one(&self) -> LeaseRef {
        let [timer] = &self.claimed.timers[..] else { panic!("not one timer: {:?}", self.claimed) };
        LeaseRef { key: timer.key.clone(), token: self.call.token }
    }

    /// The state of the only one.
    pub(crate) fn state(&self) -> State {
        let [timer] = &self.claimed.timers[..] else { panic!("not one timer: {:?}", self.claimed) };
        match &timer.state {
            Some(state) => State::decode(state.clone()).expect("states can be read"),
            None => State::first(self.call.token),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Bytes> {
        keys(&self.claimed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claimed.timers.is_empty()
    }
}

pub(crate) fn keys(claimed: &Claimed) -> Vec<Bytes> {
    claimed.timers.iter().map(|timer| timer.key.clone()).collect()
}

/// An ordinary claim of the first slot.
pub(crate) fn ask(ids: &mut Ids) -> Claim {
    Claim {
        index: Index::Due,
        slot: Ids::slot(1),
        token: ids.token(),
        repeat: false,
        limit: 1000,
        bytes: 1 << 20,
        lookahead_ms: 0,
        lease_ms: LEASE,
        letters: LETTERS,
        group: QuarantineGroup::ALONE,
    }
}

impl Rig {
    /// A timer to be, with an id of its own and the key as its payload.
    pub(crate) fn timer(&mut self, key: &str, when: WireWhen) -> NewTimer {
        let key = Bytes::copy_from_slice(key.as_bytes());
        NewTimer { payload: key.clone(), key, when, arming: self.ids.arming(), trace: None, by: None }
    }

    pub(crate) async fn arm(&self, flags: OpFlags, timers: &[NewTimer]) -> Result<Vec<ArmReply>> {
        Ok(self.store.arm(&self.at, flags, timers).await?.into_iter().map(ArmReply::from).collect())
    }

    pub(crate) async fn arm_all(&self, timers: &[NewTimer]) -> Vec<ArmReply> {
        self.arm(OpFlags::default(), timers).await.expect("it can be armed")
    }

    pub(crate) async fn arm_if_absent(&self, timer: &NewTimer) -> ArmReply {
        let flags = OpFlags { only_if_absent: true, ..OpFlags::default() };
        self.arm(flags, std::slice::from_ref(timer)).await.expect("it can be armed")[0]
    }

    /// The arm of an unanswered call once more.
    pub(crate) async fn arm_again(&self, timer: &NewTimer) -> ArmReply {
        let flags = OpFlags { repeat: true, ..OpFlags::default() };
        self.arm(flags, std::slice::from_ref(timer)).await.expect("it can be armed")[0]
    }

    /// Arms a key now, from within the attempt that runs.
    pub(crate) async fn arm_own(&mut self, key: &str) -> (NewTimer, ArmReply) {
        let timer = NewTimer { by: self.armed(key).await, ..self.timer(key, WireWhen::In(0)) };
        let reply = self.arm_all(std::slice::from_ref(&timer)).await[0];
        (timer, reply)
    }

    /// Arms one key this many milliseconds ahead.
    pub(crate) async fn arm_in(&mut self, key: &str, ms: u64) -> (NewTimer, ArmReply) {
        let timer = self.timer(key, WireWhen::In(ms));
        let reply = self.arm_all(std::slice::from_ref(&timer)).await[0];
        (timer, reply)
    }

    /// Arms keys in one call for now, and lets them come due.
    pub(crate) async fn arm_due<const N: usize>(&mut self, keys: [&str; N]) -> [NewTimer; N] {
        let timers = keys.map(|key| self.timer(key, WireWhen::In(0)));
        let armed = self.arm_all(&timers).await;
        assert!(armed.iter().all(|reply| reply.code == ArmCode::Armed), "{armed:?}");
        self.pass(ms(1)).await;
        timers
    }

    /// Arms a key for now and claims it.
    pub(crate) async fn run(&mut self, key: &str) -> (NewTimer, LeaseRef) {
        let [timer] = self.arm_due([key]).await;
        (timer, self.claim().await.one())
    }

    pub(crate) async fn claim(&mut self) -> Taken {
        self.claim_with(|_| {}).await
    }

    pub(crate) async fn claim_quarantined(&mut self) -> Taken {
        self.claim_with(|call| call.index = Index::Quarantine).await
    }

    /// A claim that differs from the ordinary one.
    pub(crate) async fn claim_with(&mut self, change: impl FnOnce(&mut Claim)) -> Taken {
        let mut call = ask(&mut self.ids);
        change(&mut call);
        self.claim_as(call).await
    }

    pub(crate) async fn claim_as(&self, call: Claim) -> Taken {
        let claimed = self.store.claim(&self.at, call).await.expect("it can be claimed");
        Taken { claimed, call }
    }

    pub(crate) async fn ack(&self, held: &[LeaseRef]) -> AckReply {
        let reply = self.store.ack(&self.at, false, held).await.expect("it can be acked");
        AckReply { stamp: ServerTime::default(), ..reply }
    }

    pub(crate) async fn end(&self, held: &LeaseRef, end: AttemptEnd) -> SettleReply {
        self.end_bounded(LETTERS, held, end).await
    }

    pub(crate) async fn end_bounded(
        &self,
        letters: DeadLetterLimits,
        held: &LeaseRef,
        end: AttemptEnd,
    ) -> SettleReply {
        let settle = Settle { held: held.clone(), end };
        self.store.settle(&self.at, letters, false, &[settle]).await.expect("it can be settled").each[0]
    }

    pub(crate) async fn renew(&self, held: &LeaseRef) -> bool {
        let lost = self.store.renew(&self.at, LEASE, std::slice::from_ref(held)).await;
        lost.expect("it can be renewed").is_empty()
    }

    pub(crate) async fn cancel(&mut self, key: &str) -> CancelReply {
        let cancel = self.cancelling(key);
        self.cancel_as(&cancel).await
    }

    pub(crate) fn cancelling(&mut self, key: &str) -> Cancel {
        Cancel { key: Bytes::copy_from_slice(key.as_bytes()), id: self.ids.cancel() }
    }

    pub(crate) async fn cancel_as(&self, cancel: &Cancel) -> CancelReply {
        let replies = self.store.cancel(&self.at, std::slice::from_ref(cancel)).await;
        replies.expect("it can be cancelled")[0]
    }

    /// How many timers should have ended by now, and how long ago the first of them.
    pub(crate) async fn undelivered(&self) -> (u64, Option<u64>) {
        let ahead = [ms(0), ms(0)];
        let seen = self.store.overviews(std::slice::from_ref(&self.at), ahead).await.remove(0);
        let seen = seen.expect("it can be looked over");
        (seen.undelivered, seen.oldest.map(|oldest| self.now() - oldest))
    }

    pub(crate) async fn look(&self, key: &str) -> Option<TimerSnapshot> {
        self.store.get_timer(&self.at, key.as_bytes()).await.expect("it can be looked at")
    }

    /// The arming that a key's timer is of.
    pub(crate) async fn armed(&self, key: &str) -> Option<ArmingId> {
        let look = self.look(key).await?;
        look.record.get(1..9).and_then(ArmingId::from_bytes)
    }

    pub(crate) async fn letters(&self) -> Vec<RawDeadLetter> {
        self.store.letters(&self.at, None, 1000).await.expect("letters can be read").0
    }

    /// Lets the lease of everything that is held run out.
    pub(crate) async fn lose_leases(&mut self) {
        self.pass(ms(LEASE)).await;
    }

    /// Runs a key until its leases are lost this often; below five.
    pub(crate) async fn lose(&mut self, key: &str, times: u8) {
        self.arm_due([key]).await;
        for lost in 0..times {
            assert_eq!(self.claim_next().await.state().lost, lost);
            self.lose_leases().await;
        }
    }

    /// Runs a key until it is in quarantine.
    pub(crate) async fn quarantine(&mut self, key: &str) {
        self.lose(key, 2).await;
        self.finds_nothing().await;
    }

    /// A claim that comes away empty; what it says is due next.
    pub(crate) async fn finds_nothing(&mut self) -> Heads {
        let taken = self.claim().await;
        assert!(taken.is_empty(), "{taken:?}");
        taken.claimed.heads
    }

    pub(crate) async fn reschedule(&self, key: &str, when: WireWhen) -> Rescheduled {
        self.store.reschedule(&self.at, key.as_bytes(), when).await.expect("it answers")
    }

    /// A replay of a letter as what it was.
    pub(crate) fn replaying(&mut self, letter: &[u8]) -> ReplayCall {
        ReplayCall {
            letter: Bytes::copy_from_slice(letter),
            id: self.ids.replay(),
            anew: None,
            repeat: false,
        }
    }

    pub(crate) async fn replay_as(&self, call: &ReplayCall) -> Replayed {
        self.store.replay(&self.at, call).await.expect("it answers")
    }

    pub(crate) async fn replay(&mut self, letter: &[u8]) -> Replayed {
        let call = self.replaying(letter);
        self.replay_as(&call).await
    }

    /// The replay of an unanswered call once more.
    pub(crate) async fn replay_again(&self, call: &ReplayCall) -> Replayed {
        self.replay_as(&ReplayCall { repeat: true, ..call.clone() }).await
    }

    /// One whole scan of the slow repair; how many entries it has put right.
    pub(crate) async fn repair(&self, what: RepairTarget) -> Result<u64> {
        let mut step = RepairStep { what, cursor: 0, count: 100, lease_ms: LEASE };
        let mut repaired = 0;
        loop {
            let reply = self.store.repair(&self.at, step.clone()).await?;
            (step.cursor, repaired) = (reply.cursor, repaired + reply.repaired);
            if reply.cursor == 0 {
                return Ok(repaired);
            }
        }
    }

    /// Claims whatever has come due, from the quarantine if it is there.
    pub(crate) async fn claim_next(&mut self) -> Taken {
        let taken = self.claim().await;
        if taken.is_empty() { self.claim_quarantined().await } else { taken }
    }
}

/// The name of a letter: what died, and when, in ms.
pub(crate) fn letter_name(arming: ArmingId, died: u64, key: &[u8]) -> Vec<u8> {
    [&arming.as_bytes()[..], &died.to_be_bytes(), key].concat()
}

/// A failure, to be tried again.
pub(crate) fn retry(delay: u64) -> AttemptEnd {
    AttemptEnd::Retry { delay, attempt: 2, snoozes: 0, history: Bytes::from_static(b"[1]") }
}

/// The same attempt, later.
pub(crate) fn snooze(delay: u64) -> AttemptEnd {
    AttemptEnd::Snooze { delay, attempt: 1, snoozes: 1, history: Bytes::new() }
}

/// Never again.
pub(crate) fn dead() -> AttemptEnd {
    AttemptEnd::Dead { reason: DeadReason::Permanent, history: Bytes::from_static(b"[2]") }
}
