//! What is left to happen once nothing goes wrong any more.
//!
//! "In the end" cannot be told from a finite path that may go round for ever: a
//! worker may crash at every step. So each world is asked whether from *there*,
//! without another fault, everything ends: no state is a trap.

use super::Protocol;
use super::step::{self, Fate, Step};
use super::world::{End, Index, Phase, Stage, WORKERS, World};

/// More steps than it takes.
const ENOUGH: usize = 80;

impl Protocol {
    /// Whether everything ends if nothing goes wrong from now on.
    pub(super) fn comes_to_rest(&self, world: &World) -> bool {
        let mut world = *world;
        for _ in 0..ENOUGH {
            match self.unfinished(&world) {
                Some(step) => world = self.play(&world, step),
                None => return world.timers.iter().all(|timer| timer.rec.is_none() && timer.next.is_none()),
            }
        }
        false
    }

    /// The next thing that somebody will do, or time will bring.
    fn unfinished(&self, world: &World) -> Option<Step> {
        let keys = 0..self.scope.keys;
        let told = |key: &usize| world.pending[*key].is_some();
        let asked = (0..WORKERS).find(|worker| world.workers[*worker].asking.is_some());
        let attempt =
            || (0..WORKERS).find_map(|worker| keys.clone().find_map(|key| finish(world, worker, key)));
        let passing =
            || keys.clone().find(|key| step::may_pass(self, world, *key)).map(|key| Step::Pass { key });
        let fate = Fate::Answered;
        None.or_else(|| keys.clone().find(told).map(|key| Step::RepeatDeed { key, fate }))
            .or_else(|| asked.map(|worker| Step::RepeatClaim { worker, only: None, fate }))
            .or_else(attempt)
            .or_else(|| self.claim_of_the_first(world))
            .or_else(passing)
    }

    fn claim_of_the_first(&self, world: &World) -> Option<Step> {
        let indexes = [Index::Due, Index::Quarantine].into_iter();
        let mut claimable = indexes.filter(|index| {
            let mut placed = world.timers.iter().filter(|timer| timer.place == Some(*index));
            placed.any(|timer| timer.score == Phase::Past)
        });
        claimable.next().map(|index| Step::Claim { worker: 0, index, foremost: 0, fate: Fate::Answered })
    }
}

/// What a worker has yet to do about an attempt.
fn finish(world: &World, worker: usize, key: usize) -> Option<Step> {
    let attempt = world.workers[worker].attempts[key]?;
    let fate = Fate::Answered;
    Some(match attempt.stage {
        Stage::Held if world.timers[key].passed || !world.timers[key].is_held_by(attempt.token) => {
            Step::Start { worker, key }
        }
        Stage::Held => Step::Pass { key },
        Stage::Running => Step::Settle { worker, key, end: End::Ack, fate },
        Stage::Settling(..) => Step::RepeatSettle { worker, key, fate },
    })
}
