//! What keylapse keeps of the key: the deadline it remembers, the lapses that
//! wait, and the memory of what was noted. Each method is one script.

use super::rules::{Rule, Rules};
use super::world::{Moment, Place, Watch};

/// Lapses that may wait.
const WAITING: usize = 6;
/// Canaries' numbers, from zero.
const CANARIES: usize = 8;
/// Ranges of one key that there may be.
const RANGES: usize = 4;

/// A reach of the stream all of whose expiries were noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// The canary with which it begins: the anchor of who has noted.
    from: u8,
    /// Its last expiry.
    upto: Place,
}

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
    /// What was noted, in order and apart: who is anchored hears, and notes,
    /// all in its order.
    noted: [Option<Range>; RANGES],
    /// The latest moment from which anything was done: what was read before is stale.
    pub(super) latest: Moment,
    traces: [Option<Trace>; 3],
    /// How many of the expiries before each canary were fired for who had no anchor.
    agreed: [u8; CANARIES],
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
    /// Notes an expiry by its identity. `since`: the anchor of who has heard it;
    /// `kept`: how many ranges are.
    pub(super) fn note(&mut self, rules: Rules, since: u8, id: Place, life: u8, kept: usize) -> Noted {
        if self.watch.is_some_and(|watch| watch.read.at < id || !rules.has(Rule::Stamped)) {
            self.watch = None;
        }
        self.latest = self.latest.max(Moment { at: id, stamp: 0 });
        if self.noted.iter().flatten().any(|range| range.from <= id.canary && id <= range.upto) {
            return Noted::Known;
        }
        self.extend(if rules.has(Rule::SinceAnchor) { since } else { 0 }, id, kept);
        if self.takes_up(rules, id) {
            return Noted::Recovered;
        }
        self.push(rules, life);
        Noted::Lapse
    }

    /// Whether this is the first to be heard of an expiry without an anchor: the `back`th before a canary.
    pub(super) fn agree(&mut self, canary: u8, back: u8) -> bool {
        let fired = &mut self.agreed[usize::from(canary)];
        let first = back > *fired;
        *fired = back.max(*fired);
        first
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

    /// All from a canary up to this expiry was noted. Ranges that meet are one;
    /// if there are too many, the two oldest, with what lies between.
    fn extend(&mut self, since: u8, upto: Place, kept: usize) {
        let mut all: Vec<Range> = self.noted.into_iter().flatten().collect();
        let met = |range: &Range| since <= range.upto.canary && range.from <= upto.canary;
        let from = all.iter().filter(|range| met(range)).map(|range| range.from).min();
        all.retain(|range| !met(range));
        all.push(Range { from: from.map_or(since, |from| from.min(since)), upto });
        all.sort_unstable();
        while all.len() > kept {
            let oldest = all.remove(0);
            all[0].from = oldest.from;
        }
        self.noted = std::array::from_fn(|place| all.get(place).copied());
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
