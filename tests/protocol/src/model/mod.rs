//! Claims, leases, settlements, cancels, armings over running attempts and
//! timers in quarantine, as a model that is explored completely.
//!
//! `server` mirrors the scripts. `play` is everybody else: producers and
//! workers that call, hear an answer or none, repeat, crash, or fall asleep.
//! `judge` is the specification and shares no decision with either.
//!
//! Time is abstract. A deadline or a lease of one key comes to its end when the
//! checker says so, whatever the others do: all the clocks, pauses and delays
//! that there could be are among these orders.

mod calm;
mod canon;
mod judge;
mod play;
mod promises;
mod rules;
mod scope;
mod seen;
mod server;
mod step;
mod world;

use stateright::{Model, Property};

pub use play::Answer;
pub use rules::{Rule, Rules};
pub use scope::Scope;
pub use seen::Seen;
pub use step::{Fate, Step};
pub use world::{
    Asking, Attempt, DEATHS, Deed, End, Few, Grave, Index, KEYS, Pending, Phase, Purse, Run, Slot, Stage,
    Timer, Told, WORKERS, Worker, World,
};

/// The model: how much is explored, and by which rules.
#[derive(Debug)]
pub struct Protocol {
    scope: Scope,
    rules: Rules,
    log: seen::Log,
}

impl Protocol {
    /// All rules are in force.
    pub fn new(scope: Scope) -> Self {
        Self::with_rules(scope, Rules::default())
    }

    /// With a rule switched off, perhaps.
    pub fn with_rules(scope: Scope, rules: Rules) -> Self {
        Self { scope, rules, log: seen::Log::default() }
    }

    /// How often something was met with so far.
    pub fn seen(&self, what: Seen) -> u64 {
        self.log.count(what)
    }

    /// The world in which nothing has happened yet.
    pub fn dawn(&self) -> World {
        World { purse: self.scope.purse, replays: self.scope.replays, ..World::default() }
    }

    /// What can happen next.
    pub fn choices(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        self.actions(world, &mut steps);
        steps
    }

    fn see(&self, what: Seen) {
        self.log.note(what);
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.dawn()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        step::Choices::new(self, world, steps).collect();
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        Some(canon::canonical(&self.scope, &self.play(world, step)))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all()
    }
}
