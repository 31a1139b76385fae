//! What keylapse keeps of the key: the deadline it remembers, the lapses that
//! wait, and the memory of what was noted. Each method is one script.

use super::rules::{Rule, Rules};
use super::world::{Place, Watch};

/// Lapses that may wait.
const WAITING: usize = 6;

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
    /// Identities that were noted, a bit each.
    noted: u64,
    /// The latest place from which anything was done: what was read before is stale.
    latest: Place,
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
        if self.watch.is_some_and(|watch| watch.at < id || !rules.has(Rule::Stamped)) {
            self.watch = None;
        }
        self.latest = self.latest.max(id);
        let higher = !rules.has(Rule::EachIdentity) && self.noted >> bit(id) > 1;
        if higher || self.noted >> bit(id) & 1 == 1 {
            return Noted::Known;
        }
        self.noted |= 1 << bit(id);
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
        self.latest = self.latest.max(upto);
        self.push(rules, life);
    }

    /// Forgets a deadline, by what was read there.
    pub(super) fn forget(&mut self, at: Place) {
        self.watch = None;
        self.latest = self.latest.max(at);
    }

    /// Remembers a deadline, unless something that came after it was read is
    /// known already.
    pub(super) fn enrol(&mut self, rules: Rules, watch: Watch) -> bool {
        let stale = watch.at < self.latest && rules.has(Rule::StaleRefused);
        if !stale {
            self.watch = Some(watch);
        }
        !stale
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

fn bit(place: Place) -> u32 {
    u32::from(place.canary) * 8 + u32::from(place.count)
}
