//! Which faults on record allow an attempt to run again.
//!
//! An attempt may be repeated for one reason only: whoever ran it could not keep its lease, or could not
//! say that it had ended. So its process died before it could, or it was kept from the server for so long
//! that a lease, renewed at a third, may have run out.

use std::collections::HashMap;

use super::book::Run;
use crate::clock::{Micros, SECOND};
use crate::ledger::Entry;

/// From the end of an outage until everybody has found the server again: waits between attempts to connect
/// are capped at about this.
const TO_RECONNECT: Micros = SECOND;
/// How long an ack may be on its way: it waits up to 15 ms for company.
const TO_SETTLE: Micros = 300_000;

/// What is on record of processes and lines.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    lease: Micros,
    actors: HashMap<u32, String>,
    died: HashMap<u32, Micros>,
    /// By actor; those of everybody have no name.
    outages: HashMap<Option<String>, Vec<(Micros, Micros)>>,
    /// Outages of each process, merged where one begins before the last is got over.
    merged: HashMap<u32, Vec<(Micros, Micros)>>,
}

impl Troubles {
    pub(super) fn new(lease: Micros) -> Self {
        Self { lease, ..Self::default() }
    }

    pub(super) fn enter(&mut self, at: Micros, pid: u32, entry: &Entry) {
        match entry {
            Entry::Born { child, actor } => {
                self.actors.insert(*child, actor.clone());
            }
            Entry::Died { child, .. } => {
                self.died.insert(*child, at);
            }
            Entry::Fault { since, actor, is_outage: true, .. } => self.outage(actor.clone(), *since, at),
            // The run itself, which hosts all lines, has no actor: then everybody was cut off.
            Entry::Stalled { since } => self.outage(self.actors.get(&pid).cloned(), *since, at),
            _ => {}
        }
    }

    fn outage(&mut self, actor: Option<String>, since: Micros, until: Micros) {
        self.outages.entry(actor).or_default().push((since, until + TO_RECONNECT));
    }

    /// After the last entry: merges what each process met with.
    pub(super) fn close(&mut self) {
        let everybodys = self.outages.get(&None).cloned().unwrap_or_default();
        for (pid, actor) in &self.actors {
            let own = self.outages.get(&Some(actor.clone())).cloned().unwrap_or_default();
            self.merged.insert(*pid, merge([everybodys.clone(), own].concat()));
        }
    }

    /// Whether this run may have lost its lease, or its end may never have been heard.
    pub(super) fn excuse(&self, run: &Run) -> bool {
        let until = self.unsettled_until(run);
        let died = self.died.get(&run.pid).is_some_and(|died| run.started <= *died && *died <= until);
        died || self
            .outages_of(run)
            .any(|outage| overlaps(outage, (run.started.saturating_sub(self.lease), until)))
    }

    /// Whose process died in this time.
    pub(super) fn deaths_between(&self, since: Micros, until: Micros) -> impl Iterator<Item = u32> {
        let died = self.died.iter().filter(move |(_, at)| (since..=until).contains(*at));
        died.map(|(pid, _)| *pid)
    }

    /// Whether anything kept this process from the server in this time, however briefly.
    pub(super) fn had_outage(&self, pid: u32, time: (Micros, Micros)) -> bool {
        self.merged.get(&pid).is_some_and(|all| all.iter().any(|outage| overlaps(*outage, time)))
    }

    /// Outages in which a lease may run out: it has at least two thirds of its time left when it begins.
    fn outages_of(&self, run: &Run) -> impl Iterator<Item = (Micros, Micros)> {
        let all = self.merged.get(&run.pid).map(Vec::as_slice).unwrap_or_default();
        all.iter().copied().filter(|(since, until)| until - since >= self.lease * 2 / 3)
    }

    /// When its end was heard at the latest, if its process lived.
    fn unsettled_until(&self, run: &Run) -> Micros {
        let Some((ended, _)) = run.ended else { return Micros::MAX };
        let settled = ended + TO_SETTLE;
        let all = self.merged.get(&run.pid).map(Vec::as_slice).unwrap_or_default();
        let kept = all.iter().filter(|outage| overlaps(**outage, (ended, settled)));
        kept.map(|(_, until)| until + TO_SETTLE).max().unwrap_or(settled)
    }
}

fn overlaps((a, b): (Micros, Micros), (c, d): (Micros, Micros)) -> bool {
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
