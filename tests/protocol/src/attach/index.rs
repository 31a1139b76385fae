//! What keylapse keeps of the key: the deadline it remembers, the lapses that
//! wait, and the memory of what was noted. Each method is one script.

use super::rules::{Rule, Rules};
use super::world::{Moment, Place, Watch};

/// Lapses that may wait.
const WAITING: usize = 6;
/// Canaries' numbers, from zero.
const CANARIES: usize = 8;

/// A firing without an identity: one of the identities in this reach was it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trace {
    after: Place,
    upto: Place,
}

/// The record of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index {
    /// What is remembered of its deadline.
    pub watch: Option<Watch>,
    /// Lapses in the order in which they run; 0 is one of no expiry.
    pub lapses: [Option<u8>; WAITING],
    /// Who runs the first.
    pub running: Option<usize>,
    /// How many expiries were noted of each canary's window: who is anchored
    /// hears, and notes, them all in their order.
    noted: [u8; CANARIES],
    /// The latest moment from which anything was done: what was read before is stale.
    pub(super) latest: Moment,
    traces: [Option<Trace>; 3],
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// A new lapse.
    Lapse,
    /// Another listener was first.
    Known,
    /// A recovery was first.
    Recovered,
}

impl Index {
    /// Notes an expiry by its identity.
    pub(super) fn note(&mut self, rules: Rules, id: Place, life: u8) -> Noted {
        if self.watch.is_some_and(|watch| watch.read.at < id || !rules.has(Rule::Stamped)) {
            self.watch = None;
        }
        self.latest = self.latest.max(Moment { at: id, stamp: 0 });
        let canary = usize::from(id.canary);
        let higher = self.noted[canary + 1..].iter().any(|count| *count > 0);
        if id.count <= self.noted[canary] || (higher && !rules.has(Rule::EachIdentity)) {
            return Noted::Known;
        }
        self.noted[canary] = id.count;
        if self.takes_up(rules, id) {
            return Noted::Recovered;
        }
        self.push(rules, life);
        Noted::Lapse
    }

    /// Fires without an identity, and remembers where it may have been.
    pub(super) fn recover(&mut self, rules: Rules, life: u8, after: Place, upto: Place) {
        if rules.has(Rule::RecoveryRemembered)
            && let Some(free) = self.traces.iter_mut().find(|trace| trace.is_none())
        {
            *free = Some(Trace { after, upto });
        }
        self.latest = self.latest.max(Moment { at: upto, stamp: 0 });
        self.push(rules, life);
    }

    /// Forgets a deadline, by what was read there.
    pub(super) fn forget(&mut self, rules: Rules, read: Moment) {
        self.watch = None;
        let stamp = if rules.has(Rule::ForgottenByStamp) { read.stamp } else { 0 };
        self.latest = self.latest.max(Moment { stamp, ..read });
    }

    /// Remembers a deadline, unless something that came after it was read is
    /// known already, such as another deadline.
    pub(super) fn enrol(&mut self, rules: Rules, watch: Watch) -> bool {
        let stale = watch.read < self.latest && rules.has(Rule::StaleRefused);
        let newer = self.watch.is_some_and(|standing| watch.read < standing.read);
        let refused = stale || (newer && rules.has(Rule::EnrolmentsOrdered));
        if !refused {
            self.watch = Some(watch);
        }
        !refused
    }

    /// The first lapse has ended.
    pub(super) fn end(&mut self) {
        self.lapses.rotate_left(1);
        self.lapses[WAITING - 1] = None;
        self.running = None;
    }

    fn takes_up(&mut self, rules: Rules, id: Place) -> bool {
        let one = rules.has(Rule::OneForOne);
        let found = self
            .traces
            .iter_mut()
            .find(|trace| trace.is_some_and(|trace| (!one || trace.after < id) && id <= trace.upto));
        match found {
            Some(trace) => {
                *trace = trace.filter(|_| !one);
                true
            }
            None => false,
        }
    }

    /// A lapse waits.
    pub(super) fn push(&mut self, rules: Rules, life: u8) {
        let place = if rules.has(Rule::LivesBeside) {
            self.lapses.iter().position(Option::is_none)
        } else {
            self.running = None;
            Some(0)
        };
        self.lapses[place.expect("as many places as lives")] = Some(life);
    }
}
