//! The runs of handlers, and the format of their figures.

use std::collections::HashMap;

use crate::role::Report;

/// The starts of handlers by key, and whether they had its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(HashMap<u32, Vec<(u64, bool)>>);

impl Runs {
    /// Adds the runs among the reports of a listener.
    pub(crate) fn take(&mut self, reports: &[Report]) {
        for one in reports {
            if let Report::Run { key, at, value, .. } = *one {
                self.0.entry(key).or_default().push((at, value));
            }
        }
    }

    pub(crate) fn of(&self, key: u32) -> &[(u64, bool)] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of runs.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|runs| runs.len() as u64).sum()
    }

    /// Returns the keys that handlers ran for.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }
}

/// Returns a percentile by nearest rank, in ms, of values in µs; `none` if there are none.
pub(crate) fn percentile(all: &mut [u64], percent: usize) -> String {
    all.sort_unstable();
    let rank = (all.len() * percent).div_ceil(100).max(1) - 1;
    all.get(rank).map_or_else(|| "none".to_owned(), |&micros| format!("{:.1}", micros as f64 / 1000.0))
}
