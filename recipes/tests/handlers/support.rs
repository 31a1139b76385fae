//! A world to act in.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use recipes::stage::ledger::{Event, Ledger};
use recipes::stage::{World, choose_tls};
use tempfile::TempDir;

/// A ledger in a folder that goes with it.
pub(crate) struct Notes {
    ledger: Ledger,
    _folder: TempDir,
}

impl Notes {
    pub(crate) fn new() -> Self {
        choose_tls();
        let folder = tempfile::tempdir().expect("a folder");
        Self { ledger: Ledger::new(folder.path().join("ledger")), _folder: folder }
    }

    /// A world whose jobs take no time; each of `failures` fails so many times first.
    pub(crate) fn world(&self, failures: &[(&str, usize)]) -> World {
        let failures = failures.iter().map(|(job, times)| ((*job).to_owned(), *times)).collect();
        World::new(self.ledger.clone(), Duration::ZERO, failures)
    }

    /// A world whose jobs take so long.
    pub(crate) fn world_where_jobs_take(&self, time: Duration) -> World {
        World::new(self.ledger.clone(), time, BTreeMap::new())
    }

    /// The jobs that ended so, in the order in which they did.
    pub(crate) fn jobs(&self, end: Event) -> Vec<String> {
        let entries = self.ledger.read().expect("a ledger");
        entries.into_iter().filter(|entry| entry.event == end).map(|entry| entry.job).collect()
    }

    /// The ids under which jobs began.
    pub(crate) fn ids(&self) -> Vec<String> {
        let entries = self.ledger.read().expect("a ledger");
        entries.into_iter().filter(|entry| entry.event == Event::Began).map(|entry| entry.id).collect()
    }

    /// The jobs that began, and when.
    pub(crate) fn times(&self) -> Vec<(String, SystemTime)> {
        let entries = self.ledger.read().expect("a ledger");
        let began = entries.into_iter().filter(|entry| entry.event == Event::Began);
        began.map(|entry| (entry.job, entry.at)).collect()
    }
}
