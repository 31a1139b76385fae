//! A real server beside the model, taken through the same steps.

mod calls;
mod kept;

use bytes::Bytes;
use keylapse::Rescheduled;
use keylapse::timers::ArmingId;
use keylapse_connection::id::{SlotId, Token};
use keylapse_protocol::model::{Answer, Deed, Fate, KEYS, Phase, Stage, Step, Timer, WORKERS, World};
use keylapse_support::Server;
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{DeadLetterLimits, LeaseRef, Op, OpFlags, OpReply, Store};
use redis::aio::MultiplexedConnection;
use redis::cmd;

/// Far beyond a walk, which takes a millisecond a step; and a lookahead that
/// reaches beyond what is near, but not that far.
const FAR: u64 = 1_000_000_000;
const NEAR: u64 = 500_000;
const LOOKAHEAD: i64 = 1_000_000;
const LETTERS: DeadLetterLimits = DeadLetterLimits { count: 1000, age_ms: FAR, pause_when_full: false };

/// What differs, in words.
type Difference = String;

/// When a walk begins, in ms since 1970, and the key from which the scripts read what time it is.
const DAWN: u64 = 1_700_000_000_000;
const CLOCK: &str = "clock";

/// The server, and what the model's small numbers stand for in it.
pub(crate) struct Twin {
    store: Store,
    line: MultiplexedConnection,
    /// In ms since 1970.
    now: u64,
    _server: Server,
    at: PartitionNames,
    slots: [SlotId; WORKERS],
    tokens: [Token; 16],
    ids: u64,
    /// The names of each key's dead letters, in the order of their deaths.
    letters: [Vec<Bytes>; KEYS],
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

impl Twin {
    pub(crate) async fn start() -> Self {
        let server = Server::start().await;
        let slot = |number: u8| SlotId::from_bytes(&id(b'L', 0, number)).expect("it has 8 bytes");
        Self {
            store: Store::at(&server.url()).expect("a store").with_clock_key(CLOCK),
            line: server.conn().await,
            now: DAWN,
            _server: server,
            at: PartitionNames::new(DEFAULT_NAMESPACE, "twin", 0, 1, false),
            slots: [0, 1, 2].map(slot),
            tokens: [Token::from_bytes(&[0; 8]).expect("it has 8 bytes"); 16],
            ids: 0,
            letters: Default::default(),
        }
    }

    /// Forgets all of the walk before.
    pub(crate) async fn begin(&mut self) {
        cmd("DEL").arg(self.at.all()).exec_async(&mut self.line).await.expect("DEL");
        self.set_clock(DAWN).await;
        self.letters = Default::default();
    }

    async fn set_clock(&mut self, now: u64) {
        self.now = now;
        cmd("SET").arg(CLOCK).arg(now * 1000).exec_async(&mut self.line).await.expect("SET");
    }

    /// Takes the step too, and compares answers and what is kept.
    pub(crate) async fn follow(
        &mut self,
        before: &World,
        step: Step,
        expected: Option<Answer>,
        after: &World,
    ) -> Result<(), Difference> {
        self.set_clock(self.now + 1).await;
        if expected.is_some() {
            let answer = self.call(before, step, after).await;
            if answer != expected {
                return Err(format!("the scripts answered {answer:?}, the model {expected:?}"));
            }
        } else {
            self.happen(before, step, after).await;
        }
        self.name_token(before, step, after);
        self.name_letters(before, after);
        self.compare(after).await
    }

    /// Which key is the first in quarantine.
    pub(crate) async fn first_in_quarantine(&self) -> Option<usize> {
        let mut line = self.line.clone();
        let first = cmd("ZRANGE").arg(self.at.key("quarantine")).arg(0).arg(0).query_async(&mut line).await;
        let first: Vec<Vec<u8>> = first.expect("ZRANGE");
        (0..KEYS).find(|number| first.first().is_some_and(|first| *first == key(*number)))
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

    /// Who has died has died now.
    fn name_letters(&mut self, before: &World, after: &World) {
        for (number, (before, after)) in before.timers.iter().zip(&after.timers).enumerate() {
            for place in before.grave.count..after.grave.count {
                let arming = arming(number, after.grave.died[usize::from(place)]);
                let name = [&arming.as_bytes()[..], &self.now.to_be_bytes(), &key(number)].concat();
                self.letters[number].push(name.into());
            }
        }
    }

    async fn call(&mut self, before: &World, step: Step, after: &World) -> Option<Answer> {
        match step {
            Step::Arm { key, absent, by, .. } => {
                let id = before.fresh[key];
                self.deed(key, Deed::Arm { id, absent, by }, false).await
            }
            Step::Cancel { key, .. } => self.deed(key, Deed::Cancel { id: after.purse.cancels }, false).await,
            Step::Replay { key, place, .. } => {
                self.deed(key, Deed::Replay { id: after.replays, place }, false).await
            }
            Step::RepeatDeed { key, .. } => self.deed(key, before.pending[key]?.deed, true).await,
            Step::Claim { worker, index, .. } => {
                let token = before.unused_token();
                self.tokens[usize::from(token)] = self.new_token();
                self.claim(worker, (index, token, false), (before, after)).await
            }
            Step::RepeatClaim { worker, .. } => {
                let asking = before.workers[worker].asking?;
                self.claim(worker, (asking.index, asking.token, true), (before, after)).await
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
                self.slots[worker] = SlotId::from_bytes(&self.ids.to_be_bytes()).expect("it has 8 bytes");
            }
            _ => {}
        }
    }

    /// The server's clock is one for all keys, the model's time is not. So a
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
                let held = LeaseRef { key: key(number), token: self.tokens[usize::from(run.token)] };
                let lost = self.store.renew(&self.at, left, &[held]).await.expect("it can be renewed");
                assert!(lost.is_empty(), "the model's holder holds nothing in the store");
            }
            None => self.reschedule(number, left).await,
        }
    }

    async fn reschedule(&self, number: usize, left: u64) {
        let op = Op::Reschedule { key: key(number), when: WireWhen::In(left) };
        let reply = self.produce(OpFlags::default(), op).await;
        assert!(matches!(reply, OpReply::Rescheduled(Rescheduled::Rescheduled(_))), "{reply:?}");
    }
}
