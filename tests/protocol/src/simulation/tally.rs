//! What is counted.

use std::fmt;

/// How a run went.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) lateness: Vec<i64>,
    pub(super) claims: u64,
    pub(super) empty: u64,
    /// How often a listener was beaten.
    pub demotions: u64,
    /// Listeners that nobody has beaten, at the end.
    pub leaders: usize,
}

impl Tally {
    pub(super) fn finish(mut self) -> Self {
        self.lateness.sort_unstable();
        self
    }

    /// How many timers were started.
    pub fn started(&self) -> usize {
        self.lateness.len()
    }

    /// The lateness that so many in a hundred do not exceed, in ms.
    pub fn percentile(&self, percent: usize) -> f64 {
        let last = self.lateness.len().saturating_sub(1);
        self.lateness.get(last * percent / 100).map_or(0.0, |micros| *micros as f64 / 1000.0)
    }

    /// The share of claims that took nothing.
    pub fn empty_share(&self) -> f64 {
        self.empty as f64 / self.claims.max(1) as f64
    }

    /// Claims for each timer.
    pub fn claims_per_timer(&self) -> f64 {
        self.claims as f64 / self.lateness.len().max(1) as f64
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.percentile(percent));
        let (empty, claims) = (self.empty_share() * 100.0, self.claims_per_timer());
        write!(f, "{:>8} {p50:>8.2} {p99:>8.2} {max:>8.2} {claims:>8.2} {empty:>8.1}", self.started())
    }
}
