//! Takes a step: calls the server, loses answers, believes the others.

use super::judge::{Ended, Heard};
use super::seen::Seen;
use super::server::{Claim, Server, Taken};
use super::step::{self, Fate, Step};
use super::world::{Asking, Attempt, Deed, End, Index, KEYS, Pending, Stage, Timer, Told, Worker, World};
use super::{Few, Protocol};

/// What the server did, before anybody was told.
struct Done<T> {
    value: T,
    before: [Timer; KEYS],
    buried: [Option<u8>; KEYS],
}

/// What the server answered, whether or not anybody heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an arm or a cancel.
    Told(Told),
    /// To a claim: the keys that it holds.
    Took(Few),
    /// To an end: whether the token held anything.
    Settled(bool),
}

impl Protocol {
    /// The world after a step.
    pub fn play(&self, world: &World, step: Step) -> World {
        self.execute(world, step).0
    }

    /// The world after a step, and what the server answered if it was asked.
    pub fn execute(&self, world: &World, step: Step) -> (World, Option<Answer>) {
        let mut world = *world;
        let answer = self.step(&mut world, step);
        (world, answer)
    }

    fn step(&self, world: &mut World, step: Step) -> Option<Answer> {
        match step {
            Step::Arm { key, absent, by, fate } => return self.arm(world, key, (absent, by), fate),
            Step::Cancel { key, fate } => return self.cancel(world, key, fate),
            Step::Replay { key, place, fate } => return self.replay(world, key, place, fate),
            Step::RepeatDeed { key, fate } => {
                let pending = world.pending[key].take()?;
                return self.deed(world, key, pending, true, fate);
            }
            Step::Claim { worker, index, foremost, fate } => {
                let asking = Asking { index, token: world.unused_token(), foremost, first: None };
                return self.claim(world, worker, asking, (false, None), fate);
            }
            Step::RepeatClaim { worker, only, fate } => {
                let asking = world.workers[worker].asking?;
                return self.claim(world, worker, asking, (true, only), fate);
            }
            Step::Settle { worker, key, end, fate } => return self.returns(world, worker, key, end, fate),
            Step::RepeatSettle { worker, key, fate } => {
                let Stage::Settling(end, first) = world.workers[worker].attempts[key]?.stage else {
                    return None;
                };
                return self.settle(world, (worker, key), (end, first), true, fate);
            }
            Step::Pass { key } => step::pass(&self.scope, world, key),
            Step::Start { worker, key } => self.start(world, worker, key),
            Step::Crash { worker } => {
                world.workers[worker] = Worker::default();
                world.lanes[worker] = None;
            }
        }
        None
    }

    fn serve<T>(&self, world: &mut World, lane: usize, call: impl FnOnce(&mut Server<'_>) -> T) -> Done<T> {
        let before = world.timers;
        let mut server = Server {
            timers: &mut world.timers[..self.scope.keys],
            lane: &mut world.lanes[lane],
            scope: &self.scope,
            rules: self.rules,
            buried: [None; KEYS],
        };
        let value = call(&mut server);
        let buried = server.buried;
        Done { value, before, buried }
    }

    fn arm(
        &self,
        world: &mut World,
        key: usize,
        (absent, by): (bool, Option<u8>),
        fate: Fate,
    ) -> Option<Answer> {
        world.purse.arms -= 1;
        let id = world.fresh[key];
        world.fresh[key] += 1;
        self.deed(world, key, Pending { deed: Deed::Arm { id, absent, by }, told: None }, false, fate)
    }

    fn cancel(&self, world: &mut World, key: usize, fate: Fate) -> Option<Answer> {
        world.purse.cancels -= 1;
        let id = world.purse.cancels;
        self.deed(world, key, Pending { deed: Deed::Cancel { id }, told: None }, false, fate)
    }

    fn replay(&self, world: &mut World, key: usize, place: u8, fate: Fate) -> Option<Answer> {
        world.replays -= 1;
        let id = world.replays;
        self.deed(world, key, Pending { deed: Deed::Replay { id, place }, told: None }, false, fate)
    }

    fn deed(
        &self,
        world: &mut World,
        key: usize,
        mut pending: Pending,
        repeat: bool,
        fate: Fate,
    ) -> Option<Answer> {
        let mut answer = None;
        if fate != Fate::RequestLost {
            let done = self.serve(world, 0, |server| match pending.deed {
                Deed::Arm { id, absent, by } => server.arm(key, (id, absent, by), repeat),
                Deed::Cancel { id } => server.cancel(key, id, repeat),
                Deed::Replay { id, place } => server.replay(key, place, id, repeat),
            });
            let heard = Heard { deed: pending.deed, told: done.value, repeat, before: pending.told };
            self.see_deed(heard, &done.before[key]);
            world.judge.deed(key, &done.before[key], &world.timers[key], heard);
            pending.told = Some(done.value);
            answer = Some(Answer::Told(done.value));
        }
        if fate != Fate::Answered {
            world.purse.losses -= 1;
            world.pending[key] = Some(pending);
        }
        answer
    }

    fn claim(
        &self,
        world: &mut World,
        worker: usize,
        mut asking: Asking,
        (repeat, only): (bool, Option<usize>),
        fate: Fate,
    ) -> Option<Answer> {
        world.workers[worker].asking = None;
        let mut taken = Taken::default();
        if fate != Fate::RequestLost {
            let beside = step::members(self.rules, world, worker);
            let Asking { index, token, foremost, .. } = asking;
            let call = Claim { index, token, foremost, repeat, only, beside };
            let done = self.serve(world, worker, |server| server.claim(call));
            taken = done.value;
            self.see_claim(call, taken, &done.before, &world.timers);
            let World { judge, timers, .. } = world;
            judge.claim(&self.scope, (&done.before, timers), (call, asking.first), taken, done.buried);
            asking.first = asking.first.or(Some(taken));
        }
        if fate == Fate::Answered {
            self.take(world, worker, asking, taken);
        } else {
            world.purse.losses -= 1;
            world.workers[worker].asking = Some(asking);
        }
        (fate != Fate::RequestLost).then_some(Answer::Took(taken))
    }

    /// The worker learns what it holds.
    fn take(&self, world: &mut World, worker: usize, asking: Asking, taken: Taken) {
        for (key, _) in (0..KEYS).zip(0..).filter(|(_, number)| taken.has(*number)) {
            let timer = world.timers[key];
            let Some(arming) = timer.rec else { continue };
            let (token, quarantined) = (asking.token, asking.index == Index::Quarantine);
            let quarantined = quarantined.then_some(timer.state().lost);
            let stage = if timer.passed { Stage::Running } else { Stage::Held };
            let attempt = Attempt { token, arming, attempt: timer.state().attempt, quarantined, stage };
            world.workers[worker].attempts[key] = Some(attempt);
            if stage == Stage::Held {
                self.see(Seen::HeldAhead);
            }
        }
    }

    fn start(&self, world: &mut World, worker: usize, key: usize) {
        let timer = world.timers[key];
        if let Some(attempt) = &mut world.workers[worker].attempts[key] {
            attempt.stage = Stage::Running;
            world.judge.start(timer.passed || !timer.is_held_by(attempt.token));
        }
    }

    /// A handler has returned.
    fn returns(&self, world: &mut World, worker: usize, key: usize, end: End, fate: Fate) -> Option<Answer> {
        let attempt = world.workers[worker].attempts[key]?;
        let purse = &mut world.purse;
        match end {
            End::Ack => {}
            End::Retry => purse.retries -= 1,
            End::Snooze => purse.snoozes -= 1,
            End::Dead => purse.deaths -= 1,
            End::Release => purse.releases -= 1,
            End::Again(_) => {
                purse.agains -= 1;
                world.fresh[key] += 1;
            }
        }
        if matches!(end, End::Ack | End::Again(_)) {
            world.judge.handled(key, attempt.arming);
        }
        self.settle(world, (worker, key), (end, None), false, fate)
    }

    fn settle(
        &self,
        world: &mut World,
        (worker, key): (usize, usize),
        (end, mut first): (End, Option<bool>),
        repeat: bool,
        fate: Fate,
    ) -> Option<Answer> {
        let attempt = world.workers[worker].attempts[key].take()?;
        let mut answer = None;
        if fate != Fate::RequestLost {
            let (token, number) = (attempt.token, attempt.attempt);
            let done = self.serve(world, worker, |server| server.settle(key, token, number, end));
            let before = done.before[key];
            self.see_settle(&before, done.value, first.is_some());
            let ended = Ended { token, end, done: done.value, repeat, first, buried: done.buried[key] };
            world.judge.settle(key, &before, &world.timers[key], ended);
            first = first.or(Some(done.value));
            answer = Some(Answer::Settled(done.value));
        }
        if fate != Fate::Answered {
            world.purse.losses -= 1;
            let stage = Stage::Settling(end, first);
            world.workers[worker].attempts[key] = Some(Attempt { stage, ..attempt });
        }
        answer
    }
}
