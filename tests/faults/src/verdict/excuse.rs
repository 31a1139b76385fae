//! Which faults on record allow an attempt to run again.
//!
//! An attempt may be repeated for one reason only: whoever ran it could not keep its lease, or could not
//! say that it had ended. So its process died before it could, or it was kept from the server for so long
//! that a lease, renewed at a third, may have run out.

use std::collections::{BTreeSet, HashMap};

use super::oracle::Run;
use super::shards::Shards;
use crate::clock::{Micros, SECOND};
use crate::ledger::Entry;

/// From the end of an outage, or from when a server is seen in another's place, until everybody has found it: waits between
/// attempts to connect are capped at about this.
pub(super) const TO_RECONNECT: Micros = SECOND;
/// How long an ack may be on its way: it waits up to 20 ms for company.
const TO_SETTLE: Micros = 300_000;

/// How long it takes to start what is due, and to note that a process goes on.
const AT_ONCE: Micros = 50_000;

/// From when a process says that it drops its listener until it has.
const TO_LET_GO: Micros = 100_000;

/// What is on record of processes and lines.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    lease: Micros,
    /// By pid: in a long run the kernel gives a pid out again.
    lives: HashMap<u32, Vec<Life>>,
    /// By actor; those of everybody have no name.
    outages: HashMap<Option<String>, Vec<(Micros, Micros)>>,
    /// Outages of each actor and of everybody, merged where one begins before the last is got over.
    merged: HashMap<String, Vec<(Micros, Micros)>>,
    pub(super) shards: Shards,
}

/// One process.
#[derive(Debug)]
struct Life {
    actor: String,
    born: Micros,
    killed: Option<Micros>,
    died: Option<Micros>,
    /// When it dropped its listener.
    let_go: Vec<Micros>,
}

impl Life {
    /// From when it may have been dead until it certainly was.
    fn death(&self) -> Option<(Micros, Micros)> {
        self.died.map(|died| (self.killed.unwrap_or(died), died))
    }
}

impl Troubles {
    pub(super) fn new(lease: Micros) -> Self {
        Self { lease, ..Self::default() }
    }

    /// How many listeners died in this time, or were kept from the servers.
    pub(super) fn listeners_in_trouble(&self, time: (Micros, Micros)) -> usize {
        let is_listener = |actor: &&str| actor.starts_with("listener");
        let died = |life: &&Life| life.death().is_some_and(|death| overlaps(death, time));
        let dead = self.lives.values().flatten().filter(died).map(|life| life.actor.as_str());
        let cut_off = self.outages.iter().filter(|(_, all)| all.iter().any(|one| overlaps(*one, time)));
        let cut_off = cut_off.filter_map(|(actor, _)| actor.as_deref());
        dead.chain(cut_off).filter(is_listener).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn enter(&mut self, at: Micros, pid: u32, entry: &Entry) {
        match entry {
            Entry::Born { child, actor } => {
                let (killed, died, let_go) = Default::default();
                let life = Life { actor: actor.clone(), born: at, killed, died, let_go };
                self.lives.entry(*child).or_default().push(life);
            }
            Entry::Killed { child } => self.last_life(*child).for_each(|life| life.killed = Some(at)),
            Entry::LetGo => self.last_life(pid).for_each(|life| life.let_go.push(at)),
            Entry::Died { child, .. } => self.last_life(*child).for_each(|life| life.died = Some(at)),
            Entry::Fault { since, is_outage: true, partitions: Some(partitions), node, .. } => {
                self.shards.outage(partitions, *node, (*since, at + TO_RECONNECT));
            }
            Entry::Fault { since, actor, is_outage: true, .. } => self.outage(actor.clone(), *since, at),
            Entry::Succession(one) => self.shards.succession(at, one),
            Entry::Subscribed { node, listeners } => self.shards.subscribed(at, *node, *listeners),
            Entry::Moved { since, .. } => self.shards.moved((*since, at)),
            // The run itself, which hosts all lines, has no actor: then everybody was cut off.
            Entry::Stalled { since } => self.outage(self.actor(pid, at).map(str::to_owned), *since, at),
            _ => {}
        }
    }

    fn outage(&mut self, actor: Option<String>, since: Micros, until: Micros) {
        self.outages.entry(actor).or_default().push((since, until + TO_RECONNECT));
    }

    /// After the last entry: merges what each actor met with.
    pub(super) fn close(&mut self) {
        let everybodys = self.outages.get(&None).cloned().unwrap_or_default();
        for actor in self.lives.values().flatten().map(|life| life.actor.clone()) {
            let own = self.outages.get(&Some(actor.clone())).cloned().unwrap_or_default();
            self.merged.entry(actor).or_insert_with(|| merge([everybodys.clone(), own].concat()));
        }
    }

    fn last_life(&mut self, pid: u32) -> impl Iterator<Item = &mut Life> {
        self.lives.get_mut(&pid).and_then(|lives| lives.last_mut()).into_iter()
    }

    /// The process that had this pid at that time.
    fn life(&self, pid: u32, at: Micros) -> Option<&Life> {
        self.lives.get(&pid)?.iter().rfind(|life| life.born <= at)
    }

    fn actor(&self, pid: u32, at: Micros) -> Option<&str> {
        self.life(pid, at).map(|life| life.actor.as_str())
    }

    /// Whether this run may have lost its lease, or its end may never have been heard.
    pub(super) fn excuse(&self, run: &Run) -> bool {
        let until = self.unsettled_until(run);
        let life = self.life(run.pid, run.started);
        let died = life.and_then(Life::death);
        let mut let_go = life.into_iter().flat_map(|life| &life.let_go);
        died.is_some_and(|death| overlaps(death, (run.started, until)))
            || self.shards.excuse(&run.key, (run.started, until))
            || let_go.any(|at| overlaps((*at, at + TO_LET_GO), (run.started, until)))
            || self
                .outages_of(run)
                .iter()
                .any(|outage| self.ends_leases(*outage) && overlaps(*outage, self.held(run)))
    }

    /// Whether its process was stopped between its last look at the lease and the handler's first line, and went on there: the
    /// moment is short, and docs/internals/reliability.md says that it is there.
    pub(super) fn stood_still_at_its_start(&self, run: &Run) -> bool {
        let outages =
            self.actor(run.pid, run.started).and_then(|actor| self.outages.get(&Some(actor.to_owned())));
        let at_its_start = |(since, until): &(Micros, Micros)| {
            let (due, went_on) =
                (run.deadline.abs_diff(*since) <= AT_ONCE, until.saturating_sub(TO_RECONNECT));
            due && run.started.abs_diff(went_on) <= AT_ONCE
        };
        outages.into_iter().flatten().any(at_its_start)
    }

    /// Whether what was written of this run, from its deadline on, may not have reached the server that was promoted.
    pub(super) fn may_be_forgotten(&self, run: &Run) -> bool {
        self.shards.excuse(&run.key, (run.deadline.min(run.started), self.unsettled_until(run)))
    }

    /// Whose process died in this time.
    pub(super) fn deaths_between(&self, since: Micros, until: Micros) -> impl Iterator<Item = u32> {
        let died = move |life: &Life| life.died.is_some_and(|at| (since..=until).contains(&at));
        self.lives.iter().filter(move |(_, lives)| lives.iter().any(died)).map(|(pid, _)| *pid)
    }

    /// Who dropped a listener in this time, and when.
    pub(super) fn let_go_between(&self, since: Micros, until: Micros) -> impl Iterator<Item = (u32, Micros)> {
        let of = |(pid, lives): (&u32, &Vec<Life>)| {
            let pid = *pid;
            lives.iter().flat_map(|life| life.let_go.clone()).map(move |at| (pid, at)).collect::<Vec<_>>()
        };
        self.lives.iter().flat_map(of).filter(move |(_, at)| (since..=until).contains(at))
    }

    /// Counts the leases of a timer that listeners may have lost in this time without a start, because a claim was answered too
    /// late or never. An outage explains one of them for each lease that it lasts, less the runs of that listener in it.
    pub(super) fn unanswered_claims(&self, runs: &[Run], time: (Micros, Micros)) -> usize {
        let of_listener = |(actor, outages): (&String, &Vec<(Micros, Micros)>)| {
            let long = outages.iter().filter(|one| self.ends_leases(**one) && overlaps(**one, time));
            long.map(|one| self.leases_in(*one).saturating_sub(self.runs_in(*one, actor, runs)))
                .sum::<usize>()
        };
        self.merged.iter().filter(|(actor, _)| actor.starts_with("listener")).map(of_listener).sum()
    }

    /// How many leases can run out one after the other in an outage: one at least.
    fn leases_in(&self, (since, until): (Micros, Micros)) -> usize {
        usize::try_from((until - since) / self.lease).map_or(usize::MAX, |leases| leases.max(1))
    }

    /// From a lease before it started, when it may have been claimed, until its end was heard at the latest.
    fn held(&self, run: &Run) -> (Micros, Micros) {
        (run.started.saturating_sub(self.lease), self.unsettled_until(run))
    }

    fn runs_in(&self, outage: (Micros, Micros), actor: &str, runs: &[Run]) -> usize {
        let is_in =
            |run: &&Run| self.actor(run.pid, run.started) == Some(actor) && overlaps(outage, self.held(run));
        runs.iter().filter(is_in).count()
    }

    /// Whether anything kept this process from the server in this time, however briefly.
    pub(super) fn had_outage(&self, pid: u32, time: (Micros, Micros)) -> bool {
        self.outages_at(pid, time.0).iter().any(|outage| overlaps(*outage, time))
    }

    /// Whether a lease may run out in it: there are at least two thirds of it left when it begins.
    fn ends_leases(&self, (since, until): (Micros, Micros)) -> bool {
        until - since >= self.lease * 2 / 3
    }

    /// Of its process, and of the server of its key: it could not be heard until both were over.
    fn outages_of(&self, run: &Run) -> Vec<(Micros, Micros)> {
        merge(
            [self.outages_at(run.pid, run.started).to_vec(), self.shards.outages(&run.key).collect()]
                .concat(),
        )
    }

    fn outages_at(&self, pid: u32, at: Micros) -> &[(Micros, Micros)] {
        let outages = self.actor(pid, at).and_then(|actor| self.merged.get(actor));
        outages.map(Vec::as_slice).unwrap_or_default()
    }

    /// When its end was heard at the latest, if its process lived.
    fn unsettled_until(&self, run: &Run) -> Micros {
        let Some((ended, _)) = run.ended else { return Micros::MAX };
        let settled = ended + TO_SETTLE;
        let kept = self.outages_of(run).into_iter().filter(|outage| overlaps(*outage, (ended, settled)));
        kept.map(|(_, until)| until + TO_SETTLE).max().unwrap_or(settled)
    }
}

pub(super) fn overlaps((a, b): (Micros, Micros), (c, d): (Micros, Micros)) -> bool {
    a <= d && c <= b
}

fn merge(mut outages: Vec<(Micros, Micros)>) -> Vec<(Micros, Micros)> {
    outages.sort_unstable();
    let mut merged: Vec<(Micros, Micros)> = Vec::new();
    for (since, until) in outages {
        match merged.last_mut() {
            Some(last) if since <= last.1 => last.1 = last.1.max(until),
            _ => merged.push((since, until)),
        }
    }
    merged
}
