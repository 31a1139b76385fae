//! What can happen next.

use super::rules::Rule;
use super::server::Server;
use super::world::{End, Index, KEYS, Phase, Stage, WORKERS, World};
use super::{Protocol, Rules, Scope};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is executed and answered.
    Answered,
    /// It is executed, and nobody hears of it.
    ReplyLost,
    /// It is never executed, and nobody knows.
    RequestLost,
}

/// One step. Nothing else happens meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields say who, and what becomes of it")]
pub enum Step {
    /// A producer arms a key.
    Arm { key: usize, absent: bool, by: Option<u8>, fate: Fate },
    /// A producer cancels a key.
    Cancel { key: usize, fate: Fate },
    /// An operator replays a dead letter, which may be there no more.
    Replay { key: usize, place: u8, fate: Fate },
    /// A producer repeats what was not answered.
    RepeatDeed { key: usize, fate: Fate },
    /// A deadline comes nearer, or the end of a lease does.
    Pass { key: usize },
    /// A worker claims.
    Claim { worker: usize, index: Index, foremost: usize, fate: Fate },
    /// A worker repeats a claim that was not answered, perhaps with room for one key alone.
    RepeatClaim { worker: usize, only: Option<usize>, fate: Fate },
    /// A worker starts what it has held until its deadline.
    Start { worker: usize, key: usize },
    /// A handler returns, and its worker says so.
    Settle { worker: usize, key: usize, end: End, fate: Fate },
    /// A worker repeats an end that was not answered.
    RepeatSettle { worker: usize, key: usize, fate: Fate },
    /// A worker is gone; another takes its place, and knows nothing.
    Crash { worker: usize },
}

/// Collects what can happen in one world.
pub(super) struct Choices<'a> {
    model: &'a Protocol,
    world: &'a World,
    steps: &'a mut Vec<Step>,
}

impl<'a> Choices<'a> {
    pub(super) fn new(model: &'a Protocol, world: &'a World, steps: &'a mut Vec<Step>) -> Self {
        Self { model, world, steps }
    }

    pub(super) fn collect(&mut self) {
        for key in 0..self.model.scope.keys {
            self.producer(key);
            if may_pass(self.model, self.world, key) {
                self.steps.push(Step::Pass { key });
            }
        }
        for worker in 0..self.model.scope.workers {
            self.claims(worker);
            (0..self.model.scope.keys).for_each(|key| self.attempt(worker, key));
            if self.may_crash(worker) {
                self.steps.push(Step::Crash { worker });
            }
        }
    }

    /// Offers a call with all its fates.
    fn call(&mut self, may_be_lost: bool, step: impl Fn(Fate) -> Step) {
        self.steps.push(step(Fate::Answered));
        if may_be_lost && self.world.purse.losses > 0 {
            self.steps.extend([step(Fate::ReplyLost), step(Fate::RequestLost)]);
        }
    }

    /// One call of a key's producers may be unanswered; others come in between.
    fn producer(&mut self, key: usize) {
        // A repeat may arm a dead letter anew, which would make a second pill.
        let free = self.world.pending[key].is_none() && self.model.scope.pill.is_none();
        let purse = self.world.purse;
        if purse.arms > 0 {
            self.call(free, |fate| Step::Arm { key, absent: false, by: None, fate });
            if self.model.scope.absent {
                self.call(free, |fate| Step::Arm { key, absent: true, by: None, fate });
            }
            if let Some(by) = self.running(key).filter(|_| self.model.scope.own) {
                self.call(free, |fate| Step::Arm { key, absent: false, by: Some(by), fate });
            }
        }
        if purse.cancels > 0 {
            self.call(free, |fate| Step::Cancel { key, fate });
        }
        if self.world.replays > 0 {
            for place in 0..self.world.timers[key].grave.count {
                self.call(free, |fate| Step::Replay { key, place, fate });
            }
        }
        if self.world.pending[key].is_some() {
            self.call(true, |fate| Step::RepeatDeed { key, fate });
        }
    }

    /// The arming of an attempt of this key that runs somewhere, perhaps without its lease.
    fn running(&self, key: usize) -> Option<u8> {
        let attempts = self.world.workers.iter().filter_map(|worker| worker.attempts[key]);
        attempts.filter(|attempt| attempt.stage == Stage::Running).map(|attempt| attempt.arming).max()
    }

    fn claims(&mut self, worker: usize) {
        if let Some(asking) = self.world.workers[worker].asking {
            self.call(true, |fate| Step::RepeatClaim { worker, only: None, fate });
            if asking.first.is_some_and(|first| first.count() > 1) {
                for only in 0..self.model.scope.keys {
                    self.call(true, |fate| Step::RepeatClaim { worker, only: Some(only), fate });
                }
            }
            return;
        }
        for index in [Index::Due, Index::Quarantine] {
            let orders = if index == Index::Quarantine { self.model.scope.keys } else { 1 };
            if may_claim(self.model, self.world, worker, index) {
                (0..orders).for_each(|foremost| {
                    self.call(true, |fate| Step::Claim { worker, index, foremost, fate });
                });
            }
        }
    }

    fn attempt(&mut self, worker: usize, key: usize) {
        let Some(attempt) = self.world.workers[worker].attempts[key] else { return };
        match attempt.stage {
            Stage::Held => {
                if may_start(self.model.rules, self.world, worker, key) {
                    self.steps.push(Step::Start { worker, key });
                }
                if self.world.purse.releases > 0 {
                    self.settle(worker, key, End::Release);
                }
            }
            // A pill never returns.
            Stage::Running if self.model.scope.pill == Some(key) => {}
            Stage::Running => self.ends(worker, key),
            Stage::Settling(..) => self.call(true, |fate| Step::RepeatSettle { worker, key, fate }),
        }
    }

    fn ends(&mut self, worker: usize, key: usize) {
        let purse = self.world.purse;
        self.settle(worker, key, End::Ack);
        let others = [
            (purse.retries, End::Retry),
            (purse.snoozes, End::Snooze),
            (purse.deaths, End::Dead),
            (purse.releases, End::Release),
            (purse.agains, End::Again(self.world.fresh[key])),
        ];
        for (_, end) in others.into_iter().filter(|(left, _)| *left > 0) {
            self.settle(worker, key, end);
        }
    }

    fn settle(&mut self, worker: usize, key: usize, end: End) {
        self.call(true, |fate| Step::Settle { worker, key, end, fate });
    }

    fn may_crash(&self, worker: usize) -> bool {
        let one = &self.world.workers[worker];
        let pill = self.model.scope.pill.and_then(|pill| one.attempts[pill]);
        let pill = pill.is_some_and(|attempt| attempt.stage == Stage::Running);
        let busy = one.asking.is_some() || one.attempts.iter().any(Option::is_some);
        pill || self.model.scope.crashes && busy
    }
}

/// Whether a claim would find anything within its reach.
pub(super) fn may_claim(model: &Protocol, world: &World, worker: usize, index: Index) -> bool {
    let (scope, rules) = (&model.scope, model.rules);
    let mut timers = world.timers;
    let server = Server { timers: &mut timers, lane: &mut None, scope, rules, buried: [None; KEYS] };
    let alone = |lost: u8| lost + 1 >= scope.poison && rules.has(Rule::AloneAtLast);
    let place = index == Index::Due || !members(rules, world, worker).into_iter().flatten().any(alone);
    place && !server.ready(index).is_empty()
}

/// What a worker runs of the quarantine: lost leases of each. The place of one is free once its end is settled, not
/// once it has returned.
pub(super) fn members(rules: Rules, world: &World, worker: usize) -> [Option<u8>; KEYS] {
    let kept = rules.has(Rule::QuarantinePlace);
    world.workers[worker]
        .attempts
        .map(|attempt| attempt.filter(|one| kept || !matches!(one.stage, Stage::Settling(..)))?.quarantined)
}

/// Whether the deadline of a held attempt has come. That of one that has been
/// fenced meanwhile is nobody's business any more.
pub(super) fn may_start(rules: Rules, world: &World, worker: usize, key: usize) -> bool {
    let Some(attempt) = world.workers[worker].attempts[key] else { return false };
    let timer = &world.timers[key];
    timer.passed || !timer.is_held_by(attempt.token) || !rules.has(Rule::HeldUntilDeadline)
}

/// Whether time has anything to bring to a key.
pub(super) fn may_pass(model: &Protocol, world: &World, key: usize) -> bool {
    let timer = &world.timers[key];
    let waits = timer.place.is_some() && timer.score < Phase::Past;
    let live = timer.is_claimed() && timer.passed && is_kept(world, key);
    waits && (model.scope.pauses || !live)
}

/// Whether a worker lives that keeps the lease of a key, or will once it is
/// told of it.
fn is_kept(world: &World, key: usize) -> bool {
    (0..WORKERS).any(|worker| {
        let worker = &world.workers[worker];
        let held = worker.attempts[key].map(|attempt| attempt.token);
        let asked = worker.asking.map(|asking| asking.token);
        [held, asked].into_iter().flatten().any(|token| world.timers[key].is_held_by(token))
    })
}

/// One step of time for a key: first the deadline, then the lease.
pub(super) fn pass(scope: &Scope, world: &mut World, key: usize) {
    let timer = &mut world.timers[key];
    if timer.is_claimed() && !timer.passed {
        timer.passed = true;
        return;
    }
    timer.score = if scope.lookahead && timer.score == Phase::Far { Phase::Near } else { Phase::Past };
}
