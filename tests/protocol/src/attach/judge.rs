//! The specification: knows each life, and counts what fires for it.

use super::world::{Few, Key, World};

/// A promise that is broken by one firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Breach {
    Early,
    Unprovoked,
    Double,
}

/// What the specification remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Judge {
    /// Lives that the server ended because they had expired.
    pub(super) expired: Few,
    /// Those whose deadline was remembered at that moment.
    pub(super) enrolled: Few,
    /// Those after which the key was written before anything had fired.
    rewritten: Few,
    /// Those that somebody has heard without an anchor.
    pub(super) unsure: Few,
    /// How many have heard each so, and then lost something before the next canary.
    pub(super) torn: [u8; 5],
    /// How often each fired.
    fired: [u8; 5],
    /// Those that fired without an identity.
    recovered: Few,
    /// Those whose identity was taken for that of a recovery.
    taken: Few,
    /// Lapses that began and did not end.
    pub(super) open: u8,
    /// Recoveries of what had not expired.
    stray: u8,
    /// Whether anything went wrong.
    pub(super) faulty: bool,
    broken: Few,
}

impl Judge {
    pub(super) fn kept(&self, promise: Breach) -> bool {
        !self.broken.has(promise as u8)
    }

    fn demand(&mut self, promise: Breach, kept: bool) {
        if !kept {
            self.broken.add(promise as u8);
        }
    }

    /// The key is written, whatever it was before.
    pub(super) fn write(&mut self) {
        let unfired = (1..5).filter(|life| self.expired.has(*life) && self.fired[usize::from(*life)] == 0);
        let mut rewritten = self.rewritten;
        unfired.for_each(|life| rewritten.add(life));
        self.rewritten = rewritten;
    }

    /// A lapse of a life begins.
    pub(super) fn fire(&mut self, life: u8) {
        self.open += 1;
        let count = &mut self.fired[usize::from(life)];
        *count += 1;
        // That a server is replaced is no excuse: all have heard the same of its successor.
        let unsure = self.faulty && self.unsure.has(life);
        let excused = *count <= 1 + u8::from(unsure) + self.torn[usize::from(life)];
        self.demand(Breach::Double, excused);
        // A server that was replaced announces what has not happened.
        let happened = life == 0 || self.expired.has(life);
        self.demand(Breach::Early, happened);
    }

    /// A lapse begins for an enrolment whose key is gone.
    fn recover(&mut self, key: Key, life: u8, in_time: bool, provoked: bool) {
        self.demand(Breach::Unprovoked, self.faulty || provoked);
        self.demand(Breach::Early, in_time && !lives(key, life));
        if self.expired.has(life) {
            self.recovered.add(life);
            return self.fire(life);
        }
        self.open += 1;
        self.stray = (self.stray + 1).min(2);
    }

    /// An expiry is taken to be that of a recovery.
    pub(super) fn take(&mut self, life: u8) {
        self.taken.add(life);
    }

    /// Whether each expiry fired that anybody could have known of. A recovery
    /// has no name: it stands for any one expiry that was taken to be it.
    pub(super) fn none_lost(world: &World) -> bool {
        let judge = &world.judge;
        let fired = |life: &u8| judge.fired[usize::from(*life)];
        let known = (1..5).filter(|life| judge.expired.has(*life) && !judge.unknowable(world, *life));
        let unfired: Vec<u8> = known.filter(|life| fired(life) == 0).collect();
        let spare = (1..5).filter(|life| judge.recovered.has(*life));
        let spare = spare.filter(|life| fired(life) > 1 || judge.unknowable(world, *life)).count();
        unfired.iter().all(|life| judge.taken.has(*life)) && unfired.len() <= spare + usize::from(judge.stray)
    }

    /// Whether nobody heard it, and nothing was to be found afterwards: it was
    /// not enrolled, or the key had been written anew.
    fn unknowable(&self, world: &World, life: u8) -> bool {
        let unheard = world.present().iter().all(|listener| listener.missed.has(life));
        unheard && (!self.enrolled.has(life) || self.rewritten.has(life))
    }
}

impl World {
    /// A lapse begins for an enrolment whose key is gone. A server that was replaced is reason enough.
    pub(super) fn judge_recovery(&mut self, life: u8, in_time: bool, by_policy: bool) {
        let provoked = by_policy || self.servers.iter().any(|server| server.stale);
        let key = self.key();
        self.judge.recover(key, life, in_time, provoked);
    }
}

fn lives(key: Key, of: u8) -> bool {
    match key {
        Key::Absent => false,
        Key::Mortal { life, .. } | Key::Lasting { life } => life == of,
    }
}
