//! Keys of other programs: which of their ends had to fire, which might, and which could not.
//!
//! Each key has a number of its own and a few commands in a known order. A command that gave it a deadline has
//! made a *life*; what was answered says whether it was done, and the next command that was done says by when
//! it was over. So a handler may run for a life whose deadline has passed, and must for the last one.

use std::collections::{BTreeMap, BTreeSet};

use super::excuse::Troubles;
use super::fired::Fires;
use super::report::{Finding, Report, Wrong, digits, story};
use crate::clock::{Micros, SECOND};
use crate::ledger::{Entry, Life, Line, Wrote};

/// Flags that are cleared and restored between two canaries are not noticed, nor is what has expired meanwhile
/// (docs/attach.md): a canary and the time to hear it.
const CANARY: Micros = 2 * SECOND;
/// From its start, or from the end of what kept it away, until a listener hears, and is sure of it.
const TO_HEAR: Micros = 4 * SECOND;

/// All that is known of keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: BTreeMap<String, Key>,
    /// When notifications were off.
    mutes: Vec<(Micros, Micros)>,
    /// When anything befell the server, a line or a process, and whom; nobody's name is everybody.
    faults: Vec<(Option<String>, Micros, Micros)>,
    listeners: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Key {
    steps: Vec<Step>,
    heard: Vec<Micros>,
    enrolled: Vec<Micros>,
    runs: Fires,
    is_buried: bool,
}

/// A command.
#[derive(Clone, Copy, Debug)]
struct Step {
    asked: Micros,
    life: Life,
    told: Option<(Micros, Wrote)>,
}

impl Step {
    fn wrote(&self) -> Wrote {
        self.told.map_or(Wrote::Unknown, |(_, wrote)| wrote)
    }

    fn may_be_done(&self) -> bool {
        self.wrote() != Wrote::Nothing
    }

    /// The earliest and the latest deadline that it can have given.
    fn deadlines(&self) -> Option<(Micros, Micros)> {
        match self.life {
            Life::Until(at) => Some((at, at)),
            // The server counts from a whole millisecond, which may have begun before it was asked.
            Life::For(ms) => {
                let until =
                    self.told.filter(|_| self.wrote() == Wrote::Done).map_or(Micros::MAX / 2, |(at, _)| at);
                Some((self.asked + ms * 1000 - 1000, until + ms * 1000))
            }
            Life::Expired => Some((self.asked, self.told.map_or(Micros::MAX, |(at, _)| at))),
            Life::Endless | Life::Gone => None,
        }
    }
}

impl Keys {
    /// Whether the line is about them.
    pub(super) fn enter(&mut self, at: Micros, pid: u32, entry: &Entry) -> bool {
        match entry {
            Entry::WriteAsked { key, life, .. } => {
                self.of(key).steps.push(Step { asked: at, life: *life, told: None });
            }
            Entry::WriteTold { key, wrote, .. } => {
                let step = self.of(key).steps.last_mut();
                step.into_iter().for_each(|step| step.told = Some((at, *wrote)));
            }
            Entry::Buried { key } => self.of(key).is_buried = true,
            Entry::Heard { key, .. } => self.of(key).heard.push(at),
            Entry::Enrolled { key } => self.of(key).enrolled.push(at),
            Entry::Fired { key, .. } | Entry::FiredEnded { key, .. } => {
                self.of(key).runs.enter(at, pid, entry);
            }
            Entry::Born { actor, .. } => {
                if actor.starts_with("listener") {
                    self.listeners.insert(actor.clone());
                    // Until it hears, it is as if it were cut off.
                    self.faults.push((Some(actor.clone()), at, at));
                }
                return false;
            }
            Entry::Fault { since, actor, fault, .. } => {
                if fault.starts_with("Mute") {
                    self.mutes.push((*since, at));
                }
                self.faults.push((actor.clone(), *since, at));
                return false;
            }
            _ => return false,
        }
        true
    }

    fn of(&mut self, key: &str) -> &mut Key {
        self.all.entry(key.to_owned()).or_default()
    }

    /// Adds to the report what became of them.
    pub(super) fn judge(&self, lines: &[Line], troubles: &Troubles, report: &mut Report) {
        let mut findings = Vec::new();
        for (name, key) in &self.all {
            let mut find = |wrong, what: &str| findings.push((name, wrong, what.to_owned()));
            report.armed += 1;
            report.dead += usize::from(key.is_buried);
            report.handled += usize::from(key.runs.is_done());
            if let Some((must_by, last)) = key.must_fire() {
                report.acknowledged += 1;
                let fired = key.is_buried || key.runs.iter().any(|fired| fired.run.started >= must_by);
                match fired {
                    true => {}
                    false if self.is_unknowable(key, last) => report.unknowable += 1,
                    false => find(Wrong::Lost, "it has expired and did not fire"),
                }
            }
            self.too_soon(key, &mut find);
            let lives: Vec<_> = key.lives().map(|(since, _)| since).collect();
            key.runs.repetitions(&lives, false, troubles, report, &mut find);
            key.lateness(report);
        }
        for (name, wrong, what) in findings {
            let (n, what) = (digits(name), format!("{name}: {what}"));
            report.findings.push(Finding { n, wrong, what, story: story(name, lines) });
        }
    }

    /// What began before the key's deadline, or had no deadline to wait for.
    fn too_soon(&self, key: &Key, find: &mut impl FnMut(Wrong, &str)) {
        for fired in key.runs.iter() {
            let at = fired.run.started;
            let passed = |(since, _): &(Micros, Micros)| *since <= at;
            if key.lives().any(|life| passed(&life)) {
                continue;
            }
            // A key that nobody heard being taken away may have expired, as far as anybody knows.
            let was_to_end = key.deadlines().any(|(since, _)| since <= at);
            let unheard = key.steps.first().is_some_and(|first| self.is_troubled(first.asked, at));
            if was_to_end && unheard && fired.expiry == "Recovered" {
                continue;
            }
            match key.deadlines().any(|(since, _)| since > at) {
                true => find(Wrong::Early, "a handler began before any deadline that it had"),
                false => find(Wrong::Unexpected, "a handler began, and it cannot have expired"),
            }
        }
    }

    /// Whether docs/attach.md says of this end that it cannot be known.
    fn is_unknowable(&self, key: &Key, (earliest, latest): (Micros, Micros)) -> bool {
        let overlaps =
            |(since, until): &(Micros, Micros)| *since <= latest + CANARY && earliest <= *until + CANARY;
        if self.mutes.iter().any(overlaps) {
            return true;
        }
        // Never enrolled, or ended before a deadline that was enrolled, and no listener may have heard it, as far as is on
        // record: "a deadline that was brought forward unheard" of docs/attach.md.
        let end = key.heard.iter().copied().filter(|at| *at >= earliest).min();
        let written = key.chain_began();
        let enrolled = key.enrolled.iter().any(|at| *at >= written);
        (!enrolled || key.was_brought_forward())
            && end.is_none_or(|end| self.listeners.iter().all(|who| self.is_deaf(who, end)))
    }

    /// Whether anything on record may keep this listener from hearing what happens at this time.
    fn is_deaf(&self, listener: &str, at: Micros) -> bool {
        self.faults.iter().any(|(actor, since, until)| {
            let concerns = actor.as_deref().is_none_or(|actor| actor == listener);
            concerns && *since <= at + SECOND && at <= *until + TO_HEAR
        })
    }

    /// Whether any listener, or the server, was in trouble in this time.
    fn is_troubled(&self, since: Micros, until: Micros) -> bool {
        self.faults.iter().any(|(_, from, to)| *from <= until && since <= *to + TO_HEAR)
    }
}

impl Key {
    /// All deadlines that it may have had.
    fn deadlines(&self) -> impl Iterator<Item = (Micros, Micros)> {
        self.steps.iter().filter(|step| step.may_be_done()).filter_map(Step::deadlines)
    }

    /// Those that may have passed: of which no later command says that it was in time.
    fn lives(&self) -> impl Iterator<Item = (Micros, Micros)> {
        self.steps.iter().enumerate().filter(|(_, step)| step.may_be_done()).filter_map(|(place, step)| {
            let (since, until) = step.deadlines()?;
            let next = self.steps[place + 1..].iter().find(|next| next.wrote() == Wrote::Done);
            let over = next.and_then(|next| next.told).map_or(Micros::MAX, |(at, _)| at);
            (since <= over).then_some((since, until))
        })
    }

    /// The last command that has changed it.
    fn last(&self) -> Option<&Step> {
        self.steps.iter().rfind(|step| step.wrote() == Wrote::Done)
    }

    /// Returns whether its last command gave it an earlier deadline than a command before did.
    fn was_brought_forward(&self) -> bool {
        let (began, Some(last)) = (self.chain_began(), self.last()) else { return false };
        let done = self.steps.iter().filter(|step| step.asked >= began && step.wrote() == Wrote::Done);
        let latest = done.filter_map(Step::deadlines).map(|(since, _)| since).max();
        last.life == Life::Expired || last.deadlines().is_some_and(|(_, until)| Some(until) < latest)
    }

    /// If its end is certain: from when a handler has to begin, and between when it ended.
    fn must_fire(&self) -> Option<(Micros, (Micros, Micros))> {
        if self.steps.iter().any(|step| step.wrote() == Wrote::Unknown) {
            return None;
        }
        let last = self.last()?;
        let (since, until) = last.deadlines()?;
        // One that has passed when it is given does not expire the key on all servers: some delete it.
        let was_in_time = last.life == Life::Expired || last.told.is_some_and(|(told, _)| told < since);
        was_in_time.then_some((since, (since, until)))
    }

    /// When the first of the commands was given since which it has lived, and had a deadline.
    fn chain_began(&self) -> Micros {
        let (mut began, mut over) = (Micros::MAX, 0);
        for step in self.steps.iter().rev().filter(|step| step.wrote() == Wrote::Done) {
            let lived_on = step.deadlines().is_some_and(|(since, _)| since > over);
            if !lived_on {
                break;
            }
            (began, over) = (step.asked, step.told.map_or(Micros::MAX, |(at, _)| at));
        }
        began
    }

    /// Of the first run for a life that was heard.
    fn lateness(&self, report: &mut Report) {
        let Some(first) = self.runs.iter().next() else { return };
        let deadline = self.lives().map(|(_, until)| until).filter(|until| *until <= first.run.started).max();
        report.late.extend(deadline.map(|deadline| first.run.started - deadline));
    }
}
