//! Suspects in groups: how long it takes until all have run, and who dies of it.
//!
//! Ordinary work, a quarantine and listeners that are taken down. What is not here: the network, retries, and several
//! partitions, none of which decide who runs beside whom.

use std::fmt;

/// Lost leases that make a suspect.
const QUARANTINE_AT: usize = 2;

/// How suspects are tried.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// How many run at a time that have lost two leases, three, and so on; who has lost one more dies.
    pub groups: &'static [usize],
    /// How long a listener has to have lived before it takes each of these; nothing where it is not said.
    pub calm: &'static [u64],
    /// Whether a group has to end before the next begins.
    pub whole: bool,
}

/// Two alone: what there was before.
pub const ALONE: Scheme = Scheme { groups: &[1, 1], calm: &[], whole: false };
/// Half of what was held, half of that, and so on.
pub const HALVES: Scheme = Scheme { groups: &[50, 25, 12, 6, 3, 1], ..ALONE };
/// Half, and then alone, twice.
pub const HALF: Scheme = Scheme { groups: &[50, 1, 1], ..ALONE };
/// Half, the root of that, alone.
pub const ROOT: Scheme = Scheme { groups: &[50, 7, 1], ..ALONE };
/// The same, and a listener that has just been started takes none for a while: what the library does.
pub const CHOSEN: Scheme = Scheme { calm: &[2_000, 2_000, 10_000], ..ROOT };

/// A timer to be. All times are in ms.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// When it is due.
    pub due: u64,
    /// How long its handler takes.
    pub takes: u64,
    /// Whether it then takes its listener down.
    pub pill: bool,
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Scene {
    /// All timers.
    pub work: Vec<Work>,
    /// How many listeners there are, each with so many places.
    pub listeners: usize,
    /// Places of each.
    pub places: usize,
    /// The lease.
    pub lease: u64,
    /// How long a listener that was taken down is away.
    pub restart: u64,
    /// When the first listener is taken down by something else.
    pub kills: Vec<u64>,
    /// When to stop looking.
    pub until: u64,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When the last timer had run or was dead; none if that never came.
    pub ended: Option<u64>,
    /// When the last healthy one had.
    pub healthy: Option<u64>,
    /// How often a pill took a listener down.
    pub crashes: usize,
    /// Healthy timers that became dead letters.
    pub wronged: usize,
    /// The most leases that a healthy timer has lost.
    pub lost: usize,
    /// Timers that wait as suspects at the end.
    pub suspects: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds =
            |at: Option<u64>| at.map_or("never".to_owned(), |at| format!("{:.0}", at as f64 / 1000.0));
        let Self { ended, healthy, crashes, wronged, lost, suspects } = *self;
        let (ended, healthy) = (seconds(ended), seconds(healthy));
        write!(f, "{ended:>7} {healthy:>7} {crashes:>7} {wronged:>7} {lost:>7} {suspects:>8}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In an index, with this score; whether a claim was lost.
    Waits {
        score: u64,
        claimed: bool,
    },
    Runs {
        listener: usize,
        since: u64,
    },
    Done,
    Dead,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    work: Work,
    state: State,
    lost: usize,
    suspect: bool,
}

/// Runs a scene.
pub fn play(scene: &Scene, scheme: Scheme) -> Outcome {
    let waits = |work: &Work| State::Waits { score: work.due, claimed: false };
    let timer = |work: &Work| Timer { work: *work, state: waits(work), lost: 0, suspect: false };
    let mut world = World {
        scene,
        scheme,
        now: 0,
        timers: scene.work.iter().map(timer).collect(),
        up: vec![0; scene.listeners],
        outcome: Outcome::default(),
    };
    while world.now < scene.until && world.outcome.ended.is_none() {
        world.step();
        world.now = world.next();
    }
    world.outcome.suspects = world.timers.iter().filter(|timer| timer.suspect && !timer.is_over()).count();
    world.outcome
}

struct World<'a> {
    scene: &'a Scene,
    scheme: Scheme,
    now: u64,
    timers: Vec<Timer>,
    /// Since when each listener lives, or from when on.
    up: Vec<u64>,
    outcome: Outcome,
}

impl Timer {
    fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Dead)
    }

    fn runs_at(&self, at: usize) -> bool {
        matches!(self.state, State::Runs { listener, .. } if listener == at)
    }

    fn score(&self) -> u64 {
        match self.state {
            State::Waits { score, .. } => score,
            _ => u64::MAX,
        }
    }
}

impl World<'_> {
    /// When something may happen next.
    fn next(&self) -> u64 {
        let timers = self.timers.iter().filter_map(|timer| match timer.state {
            State::Waits { score, .. } => Some(score),
            State::Runs { since, .. } => Some(since + timer.work.takes),
            State::Done | State::Dead => None,
        });
        let calm = |up: u64| self.scheme.calm.iter().map(move |calm| up + calm);
        let listeners = self.up.iter().copied().chain(self.up.iter().copied().flat_map(calm));
        let all = timers.chain(listeners).chain(self.scene.kills.iter().copied());
        all.filter(|at| *at > self.now).min().unwrap_or(self.scene.until)
    }

    fn step(&mut self) {
        for place in 0..self.timers.len() {
            self.return_or_crash(place);
        }
        if self.scene.kills.contains(&self.now) {
            self.take_down(0);
        }
        for listener in 0..self.up.len() {
            if self.up[listener] <= self.now {
                self.claim(listener);
                self.claim_suspects(listener);
            }
        }
        let over = |pill| self.timers.iter().filter(|timer| pill || !timer.work.pill).all(Timer::is_over);
        self.outcome.ended = over(true).then_some(self.now);
        if self.outcome.healthy.is_none() {
            self.outcome.healthy = over(false).then_some(self.now);
        }
    }

    fn return_or_crash(&mut self, place: usize) {
        let timer = &mut self.timers[place];
        let State::Runs { listener, since } = timer.state else { return };
        if since + timer.work.takes > self.now {
            return;
        }
        if timer.work.pill {
            self.outcome.crashes += 1;
            self.take_down(listener);
        } else {
            timer.state = State::Done;
        }
    }

    /// What it held comes back with its leases, which were renewed at a third.
    fn take_down(&mut self, listener: usize) {
        self.up[listener] = self.now + self.scene.restart;
        let lease = self.scene.lease;
        for timer in self.timers.iter_mut().filter(|timer| timer.runs_at(listener)) {
            let State::Runs { since, .. } = timer.state else { continue };
            let renewed = self.now - (self.now - since) % (lease / 3);
            timer.state = State::Waits { score: renewed + lease, claimed: true };
        }
    }

    /// What is due in an index, in order.
    fn ready(&self, suspect: bool) -> Vec<usize> {
        let due = |place: &usize| {
            let timer = &self.timers[*place];
            timer.suspect == suspect && timer.score() <= self.now
        };
        let mut ready: Vec<_> = (0..self.timers.len()).filter(due).collect();
        ready.sort_by_key(|place| self.timers[*place].score());
        ready
    }

    fn running(&self, at: usize, suspect: bool) -> impl Iterator<Item = &Timer> {
        self.timers.iter().filter(move |timer| timer.runs_at(at) && timer.suspect == suspect)
    }

    /// Leases lost, that of the last claim included.
    fn lost(&self, place: usize) -> usize {
        let timer = &self.timers[place];
        timer.lost + usize::from(matches!(timer.state, State::Waits { claimed: true, .. }))
    }

    fn start(&mut self, listener: usize, place: usize) {
        let lost = self.lost(place);
        let timer = &mut self.timers[place];
        timer.lost = lost;
        if !timer.work.pill {
            self.outcome.lost = self.outcome.lost.max(lost);
        }
        timer.state = State::Runs { listener, since: self.now };
    }

    fn claim(&mut self, listener: usize) {
        let busy = self.running(listener, false).chain(self.running(listener, true)).count();
        let mut free = self.scene.places.saturating_sub(busy);
        for place in self.ready(false) {
            let lost = self.lost(place);
            if lost >= QUARANTINE_AT {
                let timer = &mut self.timers[place];
                (timer.lost, timer.suspect) = (lost, true);
                timer.state = State::Waits { score: self.now, claimed: false };
            } else if free > 0 {
                free -= 1;
                self.start(listener, place);
            }
        }
    }

    fn group(&self, lost: usize) -> usize {
        self.scheme.groups.get(lost - QUARANTINE_AT).copied().unwrap_or_default()
    }

    /// A group is as large as the worst of it allows, and whoever does not fit waits at the head.
    fn claim_suspects(&mut self, listener: usize) {
        let mut running = self.running(listener, true).count();
        if running > 0 && self.scheme.whole {
            return;
        }
        let size = self.running(listener, true).map(|timer| self.group(timer.lost)).min();
        let mut size = size.unwrap_or(usize::MAX);
        for place in self.ready(true) {
            let lost = self.lost(place);
            if lost >= QUARANTINE_AT + self.scheme.groups.len() {
                let timer = &mut self.timers[place];
                timer.state = State::Dead;
                self.outcome.wronged += usize::from(!timer.work.pill);
                continue;
            }
            size = size.min(self.group(lost));
            let calm = self.scheme.calm.get(lost - QUARANTINE_AT).copied().unwrap_or_default();
            if running >= size || self.now < self.up[listener] + calm {
                return;
            }
            running += 1;
            self.start(listener, place);
        }
    }
}
