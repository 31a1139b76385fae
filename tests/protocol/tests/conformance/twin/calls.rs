//! The calls themselves, in the words of the scripts.

use bytes::Bytes;
use keylapse::dead_letters::{DeadReason, Replayed};
use keylapse::{ArmResult, Cancelled};
use keylapse_connection::id::{CancelId, ReplayId, Token};
use keylapse_protocol::model::{Answer, Deed, End, Few, Index, KEYS, Phase, Told, World};
use keylapse_wire::record::{Record, State};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    self, Claim, Claimed, LeaseRef, NewTimer, Op, OpCall, OpFlags, OpReply, QuarantineGroup, ReplayCall,
    Settle, SettleReply,
};

use super::{FAR, LETTERS, LOOKAHEAD, Twin, arming, id, key};

fn told(answer: Told) -> Option<Answer> {
    Some(Answer::Told(answer))
}

impl Twin {
    pub(super) async fn produce(&self, flags: OpFlags, op: Op) -> OpReply {
        let call = OpCall { flags, ops: vec![&op] };
        let mut replies = self.store.produce(&self.at, &[call]).await.remove(0).expect("it answers");
        replies.remove(0).expect("its deadline can be kept")
    }

    pub(super) async fn deed(&self, number: usize, deed: Deed, repeat: bool) -> Option<Answer> {
        match deed {
            Deed::Arm { id, absent, by } => {
                let timer = NewTimer {
                    key: key(number),
                    when: WireWhen::In(FAR),
                    arming: arming(number, id),
                    payload: Bytes::new(),
                    trace: None,
                    by: by.map(|by| arming(number, by)),
                };
                let flags = OpFlags { only_if_absent: absent, repeat, ..OpFlags::default() };
                told(match self.produce(flags, Op::Arm(timer)).await {
                    OpReply::Armed(ArmResult::Armed(_)) => Told::Armed,
                    OpReply::Armed(ArmResult::Replaced(_)) => Told::Replaced,
                    OpReply::Armed(ArmResult::AfterRunning(_)) => Told::AfterRunning,
                    OpReply::Armed(ArmResult::Exists) => Told::Exists,
                    OpReply::Armed(ArmResult::Superseded) => Told::Superseded,
                    other => panic!("nobody expects {other:?}"),
                })
            }
            Deed::Cancel { id: cancel } => {
                let id = CancelId::from_bytes(&id(b'C', number, cancel)).expect("it has 8 bytes");
                let reply = self.produce(OpFlags::default(), Op::Cancel { key: key(number), id }).await;
                let OpReply::Cancelled(reply) = reply else { panic!("nobody expects {reply:?}") };
                told(match reply.result {
                    Cancelled::NotArmed => Told::NotArmed,
                    Cancelled::Cancelled => Told::Cancelled,
                    Cancelled::InFlight | Cancelled::Claimed => Told::InFlight,
                    other => panic!("nobody expects {other:?}"),
                })
            }
            Deed::Replay { id, place } => self.replay(number, (id, place), repeat).await,
        }
    }

    pub(super) async fn replay(
        &self,
        number: usize,
        (replay, place): (u8, u8),
        repeat: bool,
    ) -> Option<Answer> {
        let id = ReplayId::from_bytes(&id(b'R', number, replay)).expect("it has 8 bytes");
        let letter = self.letters[number][usize::from(place)].clone();
        let call = ReplayCall { letter, id, anew: None, repeat };
        told(match self.store.replay(&self.at, &call).await.expect("it answers") {
            Replayed::Replayed => Told::Replayed,
            Replayed::Exists => Told::Occupied,
            Replayed::Gone => Told::Gone,
            other => panic!("nobody expects {other:?}"),
        })
    }

    pub(super) async fn claim(
        &self,
        worker: usize,
        (index, token, repeat): (Index, u8, bool),
        (before, after): (&World, &World),
    ) -> Option<Answer> {
        let alone = index == Index::Quarantine;
        let beside = before.workers[worker].attempts.iter().flatten();
        let call = Claim {
            index: if alone { keylapse_wire::Index::Quarantine } else { keylapse_wire::Index::Due },
            slot: self.slots[worker],
            token: self.tokens[usize::from(token)],
            repeat,
            limit: 1000,
            bytes: 1 << 20,
            lookahead_ms: if alone { 0 } else { LOOKAHEAD },
            lease_ms: FAR,
            letters: LETTERS,
            group: QuarantineGroup {
                running: beside.filter(|one| one.quarantined.is_some()).count(),
                sizes: [9, 9, 1],
            },
        };
        let claimed = self.store.claim(&self.at, call).await.expect("it can be claimed");
        Some(Answer::Took(told_of(&claimed, call.token, after)))
    }

    pub(super) async fn settle(
        &self,
        before: &World,
        (worker, number): (usize, usize),
        end: End,
        after: &World,
    ) -> Option<Answer> {
        let attempt = before.workers[worker].attempts[number]?;
        let held = LeaseRef { key: key(number), token: self.tokens[usize::from(attempt.token)] };
        let history = Bytes::new();
        let (snoozes, now) = (0, u32::from(attempt.attempt));
        let end = match end {
            End::Ack => {
                let reply = self.store.ack(&self.at, false, &[held]).await.expect("it can be acked");
                return Some(Answer::Settled(reply.gone.is_empty()));
            }
            End::Retry => keylapse_wire::AttemptEnd::Retry { delay: FAR, attempt: now + 1, snoozes, history },
            End::Snooze => keylapse_wire::AttemptEnd::Snooze { delay: FAR, attempt: now, snoozes, history },
            End::Again(id) => keylapse_wire::AttemptEnd::Again { delay: FAR, arming: arming(number, id) },
            End::Dead => keylapse_wire::AttemptEnd::Dead { reason: DeadReason::Permanent, history },
            End::Release => keylapse_wire::AttemptEnd::Release,
        };
        let released = end == keylapse_wire::AttemptEnd::Release;
        let replies = self.store.settle(&self.at, LETTERS, false, &[Settle { held, end }]).await;
        let done = replies.expect("it can be settled").each[0] != SettleReply::Gone;
        if released && done && after.timers[number].score == Phase::Past {
            // Its deadline came while it was held; the store's is still near.
            self.reschedule(number, 0).await;
        }
        Some(Answer::Settled(done))
    }
}

/// The keys that a claim says it took, with the attempt that the model knows.
fn told_of(claimed: &Claimed, token: Token, after: &World) -> Few {
    let mut taken = Few::default();
    for timer in &claimed.timers {
        let number = (0..KEYS).find(|number| key(*number) == timer.key).expect("it is one of the two");
        let state = timer
            .state
            .clone()
            .map_or(State::first(token), |state| State::decode(state).expect("it can be read"));
        let record = Record::decode(timer.record.clone()).expect("it can be read");
        let known = &after.timers[number];
        assert_eq!(Some(record.arming), known.rec.map(|id| arming(number, id)));
        assert_eq!(
            (state.claimed, state.token, Some(state.attempt)),
            (true, token, known.run.map(|run| run.attempt.into()))
        );
        taken.add(u8::try_from(number).expect("there are two"));
    }
    taken
}
