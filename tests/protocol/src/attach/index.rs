//! What keylapse keeps of the key: the deadline it remembers, the lapses that
//! wait, and the memory of what was noted. Each method is one script.

use super::rules::{Rule, Rules};
use super::world::{Moment, NODES, Place, Watch};

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
/// Where its ends are of two servers: one after the first of them, up to `old`
/// if that is known, or one before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trace {
    pub(super) after: Place,
    pub(super) old: Option<Place>,
    pub(super) upto: Place,
}

/// The record of one key. What is of a server is kept for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index {
    /// What is remembered of its deadline.
    pub watch: Option<Watch>,
    /// Lapses in the order in which they run; 0 is one of no expiry.
    pub lapses: [Option<u8>; WAITING],
    /// Who runs the first.
    pub running: Option<usize>,
    /// The servers on which something of it was read or heard.
    pub(super) seen: [bool; NODES],
    /// What was noted, in order and apart: who is anchored hears, and notes,
    /// all in its order.
    noted: [[Option<Range>; RANGES]; NODES],
    /// The latest place from which anything was done, and the latest touch that has ended an enrolment. What was read
    /// before either is stale.
    pub(super) latest: [Moment; NODES],
    traces: [Option<Trace>; 3],
    /// How many of the expiries before each canary were fired for who had no anchor.
    agreed: [[u8; CANARIES]; NODES],
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

/// Where what is kept of a server lies; without the rule, servers are not told apart.
fn drawer(rules: Rules, node: usize) -> usize {
    if rules.has(Rule::NodeNamed) { node } else { 0 }
}

impl Index {
    /// What is known of the key, without the lapses: who writes by what it knew
    /// before, compares this.
    pub(super) fn known(&self) -> Self {
        Self { lapses: Self::default().lapses, running: None, ..*self }
    }

    /// Notes an expiry by its identity. `since`: the anchor of who has heard it;
    /// `kept`: how many ranges are.
    pub(super) fn note(&mut self, rules: Rules, since: u8, id: Place, life: u8, kept: usize) -> Noted {
        let drawer = drawer(rules, id.node);
        let foreign = self.watch.is_some_and(|watch| watch.read.at.is_apart(rules, id));
        if !foreign
            && self.watch.is_some_and(|watch| watch.read.at.is_before(rules, id) || !rules.has(Rule::Stamped))
        {
            self.watch = None;
        }
        self.advance(rules, Moment { at: id, stamp: 0 });
        let upto = |range: &Range| (range.upto.canary, range.upto.count);
        let known = |range: &Range| range.from <= id.canary && (id.canary, id.count) <= upto(range);
        if self.noted[drawer].iter().flatten().any(known) {
            return Noted::Known;
        }
        self.extend(if rules.has(Rule::SinceAnchor) { since } else { 0 }, Place { node: drawer, ..id }, kept);
        self.seen[id.node] = true;
        if self.takes_up(rules, id) {
            return Noted::Recovered;
        }
        self.answer(rules, id.node);
        self.push(rules, life);
        Noted::Lapse
    }

    /// What another server has announced was that which is remembered, or it was not: nothing can tell. So it
    /// stays until the key is looked at, and ends if it is gone.
    pub(super) fn answer(&mut self, rules: Rules, node: usize) {
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.read.at.node != node) else { return };
        if rules.has(Rule::AnsweredElsewhere) {
            watch.answered = true;
        }
    }

    /// Whether this is the first to be heard of an expiry without an anchor: the `back`th before a canary.
    pub(super) fn agree(&mut self, rules: Rules, node: usize, canary: u8, back: u8) -> bool {
        let fired = &mut self.agreed[drawer(rules, node)][usize::from(canary)];
        let first = back > *fired;
        *fired = back.max(*fired);
        self.seen[node] = true;
        first
    }

    /// Whether anything has fired that this server has announced, or whose key was found gone there.
    pub(super) fn has_fired(&self, rules: Rules, node: usize) -> bool {
        let drawer = drawer(rules, node);
        let noted = self.noted[drawer].iter().any(Option::is_some);
        let found = self.traces.iter().flatten().any(|trace| trace.upto.node == node);
        noted || found || self.agreed[drawer].iter().any(|fired| *fired > 0)
    }

    /// Fires without an identity, and remembers where it may have been.
    pub(super) fn recover(&mut self, rules: Rules, life: u8, trace: Trace) {
        if rules.has(Rule::RecoveryRemembered)
            && let Some(free) = self.traces.iter_mut().find(|trace| trace.is_none())
        {
            *free = Some(trace);
        }
        self.advance(rules, Moment { at: trace.upto, stamp: 0 });
        self.seen[trace.upto.node] = true;
        self.push(rules, life);
    }

    /// Forgets a deadline, by what was read there.
    pub(super) fn forget(&mut self, rules: Rules, read: Moment) {
        self.watch = None;
        let stamp = if rules.has(Rule::ForgottenByStamp) { read.stamp } else { 0 };
        self.advance(rules, Moment { stamp, ..read });
        self.seen[read.at.node] = true;
    }

    fn advance(&mut self, rules: Rules, to: Moment) {
        let latest = &mut self.latest[drawer(rules, to.at.node)];
        if !to.at.is_before(rules, latest.at) {
            latest.at = to.at;
        }
        latest.stamp = latest.stamp.max(to.stamp);
    }

    /// Remembers a deadline, unless something that came after it was read is
    /// known already, such as another deadline. Of a key that was met with on
    /// another server, too, nothing is known to be later but what was asked for
    /// after all that is known was written.
    pub(super) fn enrol(&mut self, rules: Rules, watch: Watch, fresh: bool) -> bool {
        let node = watch.read.at.node;
        let elsewhere = (0..NODES).any(|other| other != node && self.seen[other]);
        let overtaken = elsewhere && !fresh && rules.has(Rule::AskedAfter);
        let Moment { at, stamp } = watch.read;
        let later = |latest: &Moment| {
            at.is_before(rules, latest.at) || !at.is_apart(rules, latest.at) && stamp < latest.stamp
        };
        let stale = self.latest.iter().any(later) && rules.has(Rule::StaleRefused);
        let newer = self.watch.is_some_and(|standing| watch.read.is_before(rules, standing.read));
        let refused = overtaken || stale || (newer && rules.has(Rule::EnrolmentsOrdered));
        if !refused {
            self.watch = Some(watch);
            self.seen[node] = true;
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
        let noted = &mut self.noted[upto.node];
        let mut all: Vec<Range> = noted.iter().flatten().copied().collect();
        let met = |range: &Range| since <= range.upto.canary && range.from <= upto.canary;
        let from = all.iter().filter(|range| met(range)).map(|range| range.from).min();
        all.retain(|range| !met(range));
        all.push(Range { from: from.map_or(since, |from| from.min(since)), upto });
        all.sort_unstable();
        while all.len() > kept {
            let oldest = all.remove(0);
            all[0].from = oldest.from;
        }
        *noted = std::array::from_fn(|place| all.get(place).copied());
    }

    fn takes_up(&mut self, rules: Rules, id: Place) -> bool {
        let one = rules.has(Rule::OneForOne);
        let found = self.traces.iter_mut().find(|trace| trace.is_some_and(|trace| trace.reaches(rules, id)));
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

impl Trace {
    /// Whether this expiry may have been it.
    fn reaches(&self, rules: Rules, id: Place) -> bool {
        let within = |upto: Place| id.node == upto.node && !upto.is_before(rules, id);
        let begun = !rules.has(Rule::OneForOne) || self.after.is_before(rules, id);
        if self.after.node == self.upto.node {
            return begun && within(self.upto);
        }
        let before_it_moved = id.node == self.after.node && begun && self.old.is_none_or(within);
        within(self.upto) || before_it_moved && rules.has(Rule::TraceOnBoth)
    }
}
