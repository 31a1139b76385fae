//! What handlers did, beside what the writer knows; and how such figures are written.

use std::collections::HashMap;

use crate::role::Told;

/// When handlers have started for a key, and whether they had its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(HashMap<u32, Vec<(u64, bool)>>);

impl Runs {
    /// Takes what a listener told, and leaves the rest.
    pub(crate) fn take(&mut self, told: &[Told]) {
        for one in told {
            if let Told::Run { key, at, value, .. } = *one {
                self.0.entry(key).or_default().push((at, value));
            }
        }
    }

    pub(crate) fn of(&self, key: u32) -> &[(u64, bool)] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|runs| runs.len() as u64).sum()
    }

    /// The keys that handlers ran for.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }
}

/// The value that so many percent of these do not exceed: by nearest rank, in ms of µs; `none` of none.
pub(crate) fn percentile(all: &mut [u64], percent: usize) -> String {
    all.sort_unstable();
    let rank = (all.len() * percent).div_ceil(100).max(1) - 1;
    all.get(rank).map_or_else(|| "none".to_owned(), |&micros| format!("{:.1}", micros as f64 / 1000.0))
}
