//! A real store beside the model, taken through the same steps.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::store::keys::{DEFAULT_NAMESPACE, Partition};
use keylapse::store::record::{Reason, Record, State};
use keylapse::store::{
    self, Arm, Cancel, Claim, Claimed, Clock, Held, Letters, MemoryStore, NewTimer, Settle, SettleReply,
    Store,
};
use keylapse::{ArmingId, CancelId, Lane, Token, WireWhen};
use keylapse_protocol::model::{
    Answer, Deed, End, Fate, Few, Index, KEYS, Phase, Run, Stage, Step, Timer, Told, WORKERS, World,
};

/// Far beyond a walk, which takes a millisecond a step; and a lookahead that
/// reaches beyond what is near, but not that far.
const FAR: u64 = 1_000_000_000;
const NEAR: u64 = 500_000;
const LOOKAHEAD: u64 = 1_000_000;
const LETTERS: Letters = Letters { count: 1000, age_ms: FAR, pause_when_full: false };

/// What differs, in words.
type Difference = String;

/// The store, and what the model's small numbers stand for in it.
pub(crate) struct Twin {
    store: MemoryStore,
    clock: Clock,
    at: Partition,
    lanes: [Lane; WORKERS],
    tokens: [Token; 16],
    ids: u64,
    /// Keys and armings that have become dead letters. One that is armed again
    /// by a late repeat, and dies again, is the same letter.
    buried: HashSet<(usize, u8)>,
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("key:{number}"))
}

fn id(kind: u8, key: usize, number: u8) -> [u8; 8] {
    [kind, u8::try_from(key).expect("there are two"), number, 0, 0, 0, 0, 1]
}

fn arming(key: usize, number: u8) -> ArmingId {
    ArmingId::from_bytes(&id(b'A', key, number)).expect("it has 8 bytes")
}

fn told(answer: Told) -> Option<Answer> {
    Some(Answer::Told(answer))
}

impl Twin {
    pub(crate) fn new() -> Self {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let lane = |number: u8| Lane::from_bytes(&id(b'L', 0, number)).expect("it has 8 bytes");
        Self {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            at: Partition::new(DEFAULT_NAMESPACE, "twin", 0, 1),
            lanes: [lane(0), lane(1), lane(2)],
            tokens: [Token::from_bytes(&[0; 8]).expect("it has 8 bytes"); 16],
            ids: 0,
            buried: HashSet::new(),
        }
    }

    /// Takes the step too, and compares answers and what is kept.
    pub(crate) async fn follow(
        &mut self,
        before: &World,
        step: Step,
        expected: Option<Answer>,
        after: &World,
    ) -> Result<(), Difference> {
        self.clock.advance(Duration::from_millis(1));
        if expected.is_some() {
            let answer = self.call(before, step, after).await;
            if answer != expected {
                return Err(format!("the store answered {answer:?}, the model {expected:?}"));
            }
        } else {
            self.happen(before, step, after).await;
        }
        self.name_token(before, step, after);
        self.count_buried(before, step, after);
        self.compare(after).await
    }

    /// A token that is not asked for anew keeps its meaning.
    fn new_token(&mut self) -> Token {
        self.ids += 1;
        Token::from_bytes(&(self.ids | 1 << 60).to_be_bytes()).expect("it has 8 bytes")
    }

    /// A claim whose request was lost has a token, too.
    fn name_token(&mut self, before: &World, step: Step, after: &World) {
        if let Step::Claim { worker, fate: Fate::RequestLost, .. } = step
            && before.workers[worker].asking.is_none()
            && let Some(asking) = after.workers[worker].asking
        {
            self.tokens[usize::from(asking.token)] = self.new_token();
        }
    }

    fn count_buried(&mut self, before: &World, step: Step, after: &World) {
        if matches!(step, Step::Claim { .. } | Step::RepeatClaim { .. }) {
            let each = before.timers.iter().zip(&after.timers).enumerate();
            let gone = each.filter(|(_, (before, after))| before.rec != after.rec);
            self.buried.extend(gone.filter_map(|(key, (before, _))| Some((key, before.rec?))));
        }
    }

    async fn call(&mut self, before: &World, step: Step, after: &World) -> Option<Answer> {
        match step {
            Step::Arm { key, absent, .. } => {
                let id = before.fresh[key];
                self.deed(key, Deed::Arm { id, absent }, false).await
            }
            Step::Cancel { key, .. } => self.deed(key, Deed::Cancel { id: after.purse.cancels }, false).await,
            Step::RepeatDeed { key, .. } => self.deed(key, before.pending[key]?.deed, true).await,
            Step::Claim { worker, index, .. } => {
                let token = before.unused_token();
                self.tokens[usize::from(token)] = self.new_token();
                self.claim(worker, index, token, false, after).await
            }
            Step::RepeatClaim { worker, .. } => {
                let asking = before.workers[worker].asking?;
                self.claim(worker, asking.index, asking.token, true, after).await
            }
            Step::Settle { worker, key, end, .. } => self.settle(before, (worker, key), end, after).await,
            Step::RepeatSettle { worker, key, .. } => {
                let Stage::Settling(end, _) = before.workers[worker].attempts[key]?.stage else {
                    return None;
                };
                self.settle(before, (worker, key), end, after).await
            }
            Step::Pass { .. } | Step::Start { .. } | Step::Crash { .. } => None,
        }
    }

    /// What happens without a call of anybody's.
    async fn happen(&mut self, before: &World, step: Step, after: &World) {
        match step {
            Step::Pass { key } => self.pass(key, &before.timers[key], &after.timers[key]).await,
            Step::Crash { worker } => {
                self.ids += 1;
                self.lanes[worker] = Lane::from_bytes(&self.ids.to_be_bytes()).expect("it has 8 bytes");
            }
            _ => {}
        }
    }

    /// The store's clock is one for all keys, the model's time is not. So a
    /// deadline is brought near by moving it, and a lease by renewing it for
    /// less.
    async fn pass(&self, number: usize, before: &Timer, after: &Timer) {
        let left = match after.score {
            Phase::Far => return,
            Phase::Near => NEAR,
            Phase::Past => 0,
        };
        match before.run.filter(|run| run.claimed) {
            Some(run) => {
                let held = Held { key: key(number), token: self.tokens[usize::from(run.token)] };
                let lost = self.store.renew(&self.at, left, &[held]).await.expect("it can be renewed");
                assert!(lost.is_empty(), "the model's holder holds nothing in the store");
            }
            None => self.reschedule(number, left).await,
        }
    }

    async fn reschedule(&self, number: usize, left: u64) {
        let reply = self.store.reschedule(&self.at, &key(number), WireWhen::In(left)).await;
        let reply = reply.expect("it can be moved");
        assert!(matches!(reply, store::RescheduleReply::Rescheduled { .. }), "{reply:?}");
    }

    async fn deed(&self, number: usize, deed: Deed, repeat: bool) -> Option<Answer> {
        match deed {
            Deed::Arm { id, absent } => {
                let timer = NewTimer {
                    key: key(number),
                    when: WireWhen::In(FAR),
                    arming: arming(number, id),
                    payload: Bytes::new(),
                };
                let call = Arm { timers: &[timer], only_if_absent: absent, repeat };
                let reply = self.store.arm(&self.at, call).await.expect("it can be armed").value[0];
                told(match reply.code {
                    store::ArmCode::Armed => Told::Armed,
                    store::ArmCode::Replaced => Told::Replaced,
                    store::ArmCode::AfterRunning => Told::AfterRunning,
                    store::ArmCode::Exists => Told::Exists,
                    store::ArmCode::Superseded => Told::Superseded,
                })
            }
            Deed::Cancel { id: cancel } => {
                let id = CancelId::from_bytes(&id(b'C', number, cancel)).expect("it has 8 bytes");
                let cancel = Cancel { key: key(number), id };
                let reply =
                    self.store.cancel(&self.at, &[cancel], repeat).await.expect("it can be cancelled")[0];
                told(match reply.code {
                    store::CancelCode::NotArmed => Told::NotArmed,
                    store::CancelCode::Cancelled => Told::Cancelled,
                    store::CancelCode::InFlight => Told::InFlight,
                })
            }
        }
    }

    async fn claim(
        &self,
        worker: usize,
        index: Index,
        token: u8,
        repeat: bool,
        after: &World,
    ) -> Option<Answer> {
        let solo = index == Index::Solo;
        let call = Claim {
            index: if solo { store::Index::Solo } else { store::Index::Due },
            lane: self.lanes[worker],
            token: self.tokens[usize::from(token)],
            repeat,
            limit: if solo { 1 } else { 1000 },
            bytes: 1 << 20,
            lookahead_ms: if solo { 0 } else { LOOKAHEAD },
            lease_ms: FAR,
            letters: LETTERS,
        };
        let claimed = self.store.claim(&self.at, call).await.expect("it can be claimed");
        Some(Answer::Took(told_of(&claimed, call.token, after)))
    }

    async fn settle(
        &mut self,
        before: &World,
        (worker, number): (usize, usize),
        end: End,
        after: &World,
    ) -> Option<Answer> {
        let attempt = before.workers[worker].attempts[number]?;
        let held = Held { key: key(number), token: self.tokens[usize::from(attempt.token)] };
        let history = Bytes::new();
        let (snoozes, now) = (0, u32::from(attempt.attempt));
        let end = match end {
            End::Ack => {
                let reply = self.store.ack(&self.at, &[held]).await.expect("it can be acked");
                return Some(Answer::Settled(reply.gone.is_empty()));
            }
            End::Retry => store::End::Retry { delay: FAR, attempt: now + 1, snoozes, history },
            End::Snooze => store::End::Snooze { delay: FAR, attempt: now, snoozes, history },
            End::Again(id) => store::End::Again { delay: FAR, arming: arming(number, id) },
            End::Dead => store::End::Dead { reason: Reason::Permanent, history },
            End::Release => store::End::Release,
        };
        let (dies, released) = (matches!(end, store::End::Dead { .. }), end == store::End::Release);
        let replies = self.store.settle(&self.at, LETTERS, &[Settle { held, end }]).await;
        let done = replies.expect("it can be settled")[0] != SettleReply::Gone;
        if dies && done {
            self.buried.extend(before.timers[number].rec.map(|id| (number, id)));
        }
        if released && done && after.timers[number].score == Phase::Past {
            // Its deadline came while it was held; the store's is still near.
            self.reschedule(number, 0).await;
        }
        Some(Answer::Settled(done))
    }

    /// All that is kept of each key.
    async fn compare(&self, world: &World) -> Result<(), Difference> {
        for number in 0..KEYS {
            let look = self.store.look(&self.at, &key(number)).await.map_err(|error| error.to_string())?;
            let kept = look.map(|look| {
                let record = |bytes| Record::decode(bytes).expect("it can be read").arming;
                let state = look.state.map(|bytes| State::decode(bytes).expect("it can be read"));
                (
                    record(look.record),
                    state.as_ref().map_or((false, None, 1, 0), seen),
                    look.next.map(record),
                    look.suspect,
                )
            });
            let expected = self.expected(number, &world.timers[number]);
            if kept != expected {
                return Err(format!("key {number} is {kept:?} in the store, {expected:?} in the model"));
            }
        }
        let (letters, _) = self.store.letter_counts(&self.at).await.map_err(|error| error.to_string())?;
        if letters != self.buried.len() as u64 {
            return Err(format!("{letters} dead letters in the store, {} in the model", self.buried.len()));
        }
        Ok(())
    }

    fn expected(&self, key: usize, timer: &Timer) -> Option<(ArmingId, Kept, Option<ArmingId>, bool)> {
        let Run { claimed, token, attempt, lost } = timer.run.unwrap_or(Run::UNTOUCHED);
        let token = (token > 0).then(|| self.tokens[usize::from(token)]);
        let next = timer.next.map(|id| arming(key, id));
        let suspect = timer.place == Some(Index::Solo);
        Some((arming(key, timer.rec?), (claimed, token, attempt.into(), lost), next, suspect))
    }
}

/// Claimed, by whom, which attempt, lost leases.
type Kept = (bool, Option<Token>, u32, u8);

fn seen(state: &State) -> Kept {
    let token = Some(state.token).filter(|token| token.as_bytes() != &[0; 8]);
    (state.claimed, token, state.attempt, state.lost)
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
