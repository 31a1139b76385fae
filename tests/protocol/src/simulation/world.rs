//! Events in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::chance::Chance;
use super::listener::Listener;
use super::server::{Claimed, Server};
use super::tally::Tally;

const SECOND: u64 = 1_000_000;
/// What happens before this is not counted: everybody begins as a leader.
const WARM: u64 = 5 * SECOND;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many listeners there are.
    pub listeners: usize,
    /// Timers a second.
    pub rate: f64,
    /// How long it goes on, in seconds.
    pub seconds: u64,
    /// Where chance begins.
    pub seed: u64,
    /// Whether the leader of the moment dies in the middle, and is not mourned
    /// for what it had taken: that comes back with its leases.
    pub leader_dies: bool,
}

#[derive(Debug)]
enum Event {
    Arm,
    News { listener: usize, ms: u64 },
    Wake { listener: usize, round: u64 },
    Ask { listener: usize },
    Answer { listener: usize, claimed: Claimed },
    Death,
}

/// Events of one moment come in the order in which they were planned.
type Queue = BinaryHeap<Reverse<(u64, usize)>>;

struct World {
    setup: Setup,
    now: u64,
    queue: Queue,
    events: Vec<Option<Event>>,
    server: Server,
    listeners: Vec<Listener>,
    chance: Chance,
    tally: Tally,
}

/// Runs it; the same setup runs the same way.
pub fn simulate(setup: Setup) -> Tally {
    let mut world = World {
        setup,
        now: 0,
        queue: Queue::new(),
        events: Vec::new(),
        server: Server::default(),
        listeners: (0..setup.listeners).map(|_| Listener::new(0)).collect(),
        chance: Chance::new(setup.seed),
        tally: Tally::default(),
    };
    world.plan(0, Event::Arm);
    (0..setup.listeners).for_each(|listener| world.sleep(listener));
    if setup.leader_dies {
        world.plan(setup.seconds * SECOND / 2, Event::Death);
    }
    world.run();
    world.tally.leaders = world.listeners.iter().filter(|one| one.alive && one.leads()).count();
    world.tally.finish()
}

impl World {
    fn plan(&mut self, at: u64, event: Event) {
        self.queue.push(Reverse((at, self.events.len())));
        self.events.push(Some(event));
    }

    fn run(&mut self) {
        while let Some(Reverse((at, place))) = self.queue.pop() {
            if at > self.setup.seconds * SECOND {
                return;
            }
            self.now = at;
            if let Some(event) = self.events[place].take() {
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arm => self.arm(),
            Event::News { listener, ms } => {
                self.listeners[listener].hear(ms);
                self.sleep(listener);
            }
            Event::Wake { listener, round } if self.listeners[listener].round == round => self.ask(listener),
            Event::Wake { .. } => {}
            Event::Ask { listener } => {
                let reach = self.listeners[listener].reach();
                let (claimed, done) = self.server.claim(self.now, listener, reach);
                let arrives = done + self.chance.network();
                self.plan(arrives, Event::Answer { listener, claimed });
            }
            Event::Answer { listener, claimed } => self.answer(listener, &claimed),
            Event::Death => {
                let leader = self.server.leader().unwrap_or_default();
                self.listeners[leader].alive = false;
            }
        }
    }

    fn arm(&mut self) {
        let deadline = self.now.div_ceil(1000) + self.chance.delay();
        if let Some(known) = self.server.arm(self.now, deadline) {
            for listener in 0..self.setup.listeners {
                let arrives = known + self.chance.network();
                self.plan(arrives, Event::News { listener, ms: deadline });
            }
        }
        let next = self.now + self.chance.gap(self.setup.rate);
        self.plan(next, Event::Arm);
    }

    /// Sleeps until it is time to look; a wake-up planned before is void.
    fn sleep(&mut self, listener: usize) {
        let one = &mut self.listeners[listener];
        if one.asking || !one.alive {
            return;
        }
        one.round += 1;
        let round = one.round;
        match one.next_time(self.now) {
            Some(at) if at <= self.now => self.ask(listener),
            Some(at) => {
                let wakes = at + self.chance.tick();
                self.plan(wakes, Event::Wake { listener, round });
            }
            None => {}
        }
    }

    fn ask(&mut self, listener: usize) {
        if !self.listeners[listener].alive {
            return;
        }
        self.listeners[listener].ask();
        let arrives = self.now + self.chance.network();
        self.plan(arrives, Event::Ask { listener });
    }

    fn answer(&mut self, listener: usize, claimed: &Claimed) {
        let one = &mut self.listeners[listener];
        if !one.alive {
            return;
        }
        one.learn(self.now, claimed);
        if self.now > WARM {
            self.tally.claims += 1;
            self.tally.empty += u64::from(claimed.taken.is_empty());
        }
        self.tally.demotions = self.listeners.iter().map(|one| one.demotions).sum();
        for deadline in &claimed.taken {
            let starts = self.listeners[listener].when(*deadline).max(self.now) + self.chance.starter();
            if self.now > WARM {
                self.tally.lateness.push(starts.cast_signed() - (deadline * 1000).cast_signed());
            }
        }
        self.sleep(listener);
    }
}
