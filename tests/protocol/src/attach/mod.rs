//! Attached topics: which expiry is this, and did it happen at all?
//!
//! One key that others write, the stream of its server, or of two between which
//! it moves, and listeners that hear it each at its own pace. `server` does what
//! servers do, `listener`, `nodes` and `look` are keylapse's part, [`decision`] is the table of its decisions, and
//! `judge` knows what really happened. Time is a few ticks, and everything may
//! take any number of them.

mod calm;
#[path = "../../../../src/attached/decision.rs"]
pub mod decision;
mod index;
mod judge;
mod listener;
mod look;
mod nodes;
mod rules;
mod scope;
mod seen;
mod server;
mod step;
mod world;

use stateright::{Model, Property};

pub use index::{Index, Range, Trace};
pub use judge::Judge;
pub use rules::{Rule, Rules};
pub use scope::{Purse, Scope, Second};
pub use seen::Seen;
pub use step::{Deed, Step};
pub use world::{
    Anchor, Event, Key, LISTENERS, Listener, Look, Moment, NODES, Name, Place, Server, Stream, Watch, World,
};

use judge::Breach;

/// The model: how much is explored, and by which rules.
#[derive(Debug)]
pub struct Attached {
    scope: Scope,
    rules: Rules,
    log: seen::Log,
}

impl Attached {
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

    fn see(&self, what: Seen) {
        self.log.note(what);
    }
}

/// A promise that is broken by a single firing.
macro_rules! never {
    ($name:literal, $breach:ident) => {
        Property::always($name, |_, world: &World| world.judge.kept(Breach::$breach))
    };
}

impl Model for Attached {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let Scope { purse, replica: replicated, listeners: crowd, flags, ahead, .. } = self.scope;
        let (nodes, servers) = (self.scope.nodes(), self.scope.servers());
        let listener = Listener { streams: self.begin(), ..Listener::default() };
        let begin = |hear: usize| {
            let mut listeners = [Listener::default(); LISTENERS];
            listeners[..crowd].fill(listener);
            listeners[..hear].iter_mut().for_each(|listener| listener.flags = true);
            let world = World { purse, replicated, crowd, listeners, ..World::default() };
            World { nodes, servers, ahead, ..world }.canonical()
        };
        // Of what is granted, not everybody need make use.
        if flags { (1..=crowd).map(begin).collect() } else { vec![begin(0)] }
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        self.collect(world, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        Some(self.play(world, step)).filter(|after| after != world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no expiry is lost", Attached::loses_nothing),
            never!("none fires twice, and once more at most what was heard without an anchor", Double),
            never!("nothing fires early, or for a deadline that was changed", Early),
            never!("nothing fires without an expiry while nothing goes wrong", Unprovoked),
        ]
    }
}
