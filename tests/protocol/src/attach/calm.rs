//! What is left to happen once nothing goes wrong any more, and nobody writes.
//!
//! From each world, without another fault, all that fires has to fire: no
//! state is a trap.

use super::Attached;
use super::decision::Verdict;
use super::judge::Judge;
use super::rules::Rule;
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
        let unheard = (0..world.nodes).find_map(|node| {
            each(&|who| !world.unread(who, node).is_empty()).map(|who| Step::Hear(who, node))
        });
        let ending = world.index.running.map(Step::End);
        let running = runs.then_some(Step::Run(0));
        let owner = world.owner;
        let due = matches!(world.key(), Key::Mortal { .. })
            || world.index.watch.is_some_and(|watch| watch.deadline > world.clock(owner));
        let time = due.then_some(if world.is_due(owner) { Step::Reap(owner) } else { Step::Tick });
        let unlearned = each(&|who| self.has_to_learn(world, who)).map(Step::Learn);
        let silent = (0..world.nodes).find(|node| self.needs_canary(world, *node));
        let waits = world.servers[silent.unwrap_or_default()].canary.1.is_some();
        let canary = |node| if waits { Step::EndCanary(node) } else { Step::MakeCanary(node) };
        let judged = each(&|who| world.listeners[who].look.is_some()).map(Step::Judge);
        let reason = |who: usize| {
            let listener = &world.listeners[who];
            let watched = world.index.watch.is_some() || !listener.dropped.is_empty();
            let unsure =
                listener.streams.iter().any(|stream| stream.anchor.is_some() && !stream.unsure.is_empty());
            (watched || unsure) && self.may_touch(world, who, world.index.watch)
        };
        let unmuted = (world.mute == Some(true)).then_some(Step::Unmute);
        unmuted
            .or(unheard)
            .or(ending)
            .or(running)
            .or(unlearned)
            .or(silent.or(world.mute.map(|_| 0)).map(canary))
            .or(judged)
            .or(time)
            .or_else(|| each(&reason).map(Step::Touch))
    }

    /// Whether a listener does not know the owner, or who is a primary.
    fn has_to_learn(&self, world: &World, who: usize) -> bool {
        let listener = &world.listeners[who];
        let unknown = |node: usize| {
            let stream = &listener.streams[node];
            let held =
                world.servers[node].stale && !stream.unsure.is_empty() && self.rules.has(Rule::HeldForOther);
            held || world.is_primary(node) && !stream.confirmed
        };
        world.nodes > 1 && (listener.owner != world.owner || (0..world.nodes).any(unknown))
    }

    fn needs_canary(&self, world: &World, node: usize) -> bool {
        let unproven = |who: usize| {
            let here = world.listeners[who].look.is_some_and(|look| look.read.at.node == node);
            here && self.verdict(world, who) == Some(Verdict::Unproven)
        };
        let needs = |who: usize| world.listeners[who].streams[node].anchor.is_none() || unproven(who);
        world.is_primary(node) && (0..world.crowd).any(needs)
    }
}
