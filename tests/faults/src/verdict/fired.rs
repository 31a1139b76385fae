//! The runs of handlers for one key of other programs.

use std::collections::{BTreeMap, BTreeSet};

use super::excuse::Troubles;
use super::oracle::Run;
use super::report::{Report, Wrong};
use crate::clock::Micros;
use crate::ledger::{End, Entry};

/// All runs for a key.
#[derive(Debug, Default)]
pub(super) struct Fires(Vec<Fired>);

/// A run of a handler.
#[derive(Clone, Debug)]
pub(super) struct Fired {
    id: String,
    pub(super) expiry: String,
    pub(super) run: Run,
}

impl Fires {
    /// A run that begins, or ends.
    pub(super) fn enter(&mut self, at: Micros, pid: u32, entry: &Entry) {
        match entry {
            Entry::Fired { key, id, attempt, deadline, expiry } => {
                let (key, attempt, deadline) = (key.clone(), *attempt, *deadline);
                let run = Run { key, pid, attempt, deadline, started: at, ended: None };
                self.0.push(Fired { id: id.clone(), expiry: expiry.clone(), run });
            }
            Entry::FiredEnded { id, attempt, end, .. } => {
                let of = |fired: &&mut Fired| {
                    fired.id == *id && fired.run.attempt == *attempt && fired.run.pid == pid
                };
                let last = self.0.iter_mut().rev().find(of);
                last.into_iter().for_each(|fired| fired.run.ended = Some((at, *end)));
            }
            _ => {}
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Fired> {
        self.0.iter()
    }

    /// Whether one succeeded.
    pub(super) fn is_done(&self) -> bool {
        self.0.iter().any(|fired| fired.run.has_ended(End::Done))
    }

    /// Whether one was told that the key may have fired before.
    pub(super) fn was_said(&self) -> bool {
        self.0.iter().any(|fired| fired.expiry != "Announced")
    }

    /// An attempt that ran again, unless all such are `excused`, and more lapses than the key can have had lives, which
    /// are told by their deadlines.
    pub(super) fn repetitions(
        &self,
        lives: &[Micros],
        excused: bool,
        troubles: &Troubles,
        report: &mut Report,
        find: &mut impl FnMut(Wrong, &str),
    ) {
        let mut attempts: BTreeMap<(&str, u32), Vec<&Run>> = BTreeMap::new();
        for fired in &self.0 {
            attempts.entry((&fired.id, fired.run.attempt)).or_default().push(&fired.run);
        }
        for runs in attempts.values() {
            for before in &runs[..runs.len() - 1] {
                report.duplicated += 1;
                if excused || troubles.excuse(before) {
                    report.explained += 1;
                } else {
                    find(Wrong::Unexplained, "an attempt ran again, and nothing on record explains why");
                }
            }
        }
        self.extra(lives, troubles, report, find);
    }

    /// What another server has not kept of a run cannot tell its successor that the key has fired.
    fn extra(
        &self,
        lives: &[Micros],
        troubles: &Troubles,
        report: &mut Report,
        find: &mut impl FnMut(Wrong, &str),
    ) {
        // What began too soon is found elsewhere.
        let ends = self.0.iter().filter(|fired| lives.iter().any(|since| *since <= fired.run.started));
        let ids: BTreeSet<_> = ends.map(|fired| &fired.id).collect();
        let extra = ids.len().saturating_sub(lives.len());
        let is_told = |fired: &&Fired| fired.expiry != "Announced" || troubles.may_be_forgotten(&fired.run);
        let told: BTreeSet<_> = self.0.iter().filter(is_told).map(|fired| &fired.id).collect();
        report.duplicated += extra;
        report.explained += extra.min(told.len());
        if extra > told.len() {
            find(Wrong::Unexplained, "it fired more often than it can have expired, and was not said to");
        }
    }
}
