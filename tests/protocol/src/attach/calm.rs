//! What is left to happen once nothing goes wrong any more, and nobody writes.
//!
//! From each world, without another fault, all that fires has to fire: no
//! state is a trap.

use super::Attached;
use super::judge::Judge;
use super::step::Step;
use super::world::{Key, World};

/// More steps than it takes.
const ENOUGH: usize = 60;

impl Attached {
    /// Whether nothing is lost if nothing goes wrong from now on.
    pub(super) fn loses_nothing(&self, world: &World) -> bool {
        let mut world = *world;
        for _ in 0..ENOUGH {
            match self.unfinished(&world) {
                Some(step) => world = self.play(&world, step),
                None => return Judge::none_lost(&world) && world.judge.open == 0,
            }
        }
        false
    }

    /// The next thing that somebody will do, or time will bring.
    fn unfinished(&self, world: &World) -> Option<Step> {
        let each = |may: &dyn Fn(usize) -> bool| (0..world.crowd).find(|who| may(*who));
        let runs = world.index.lapses[0].is_some();
        let unheard = each(&|who| !world.unread(who).is_empty()).map(Step::Hear);
        let ending = world.index.running.map(Step::End);
        let running = runs.then_some(Step::Run(0));
        let due = matches!(world.key, Key::Mortal { .. })
            || world.index.watch.is_some_and(|watch| watch.deadline > world.now);
        let time = due.then_some(if world.is_due() { Step::Reap } else { Step::Tick });
        let needs = each(&|who| self.needs_canary(world, who));
        let canary = if world.canary.1.is_some() { Step::EndCanary } else { Step::MakeCanary };
        let judged = each(&|who| world.listeners[who].look.is_some()).map(Step::Judge);
        let reason = |who: usize| {
            let watched = world.index.watch.is_some();
            (watched || !world.listeners[who].unsure.is_empty()) && self.may_touch(world, who)
        };
        let unmuted = (world.mute == Some(true)).then_some(Step::Unmute);
        let unheard = unmuted.or(unheard);
        let mute = world.mute.is_some();
        unheard
            .or(ending)
            .or(running)
            .or((mute || needs.is_some()).then_some(canary))
            .or(judged)
            .or(time)
            .or_else(|| each(&reason).map(Step::Touch))
    }

    fn needs_canary(&self, world: &World, who: usize) -> bool {
        let unproven = self.verdict(world, who) == Some(super::decision::Verdict::Unproven);
        world.listeners[who].anchor.is_none() || unproven
    }
}
