//! Times, counted in buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of [`Distribution`]'s buckets, in microseconds: three for each power of ten, from 0.1 ms to 10 min.
const BOUNDS: [u64; 21] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    600_000_000,
];

/// Times, counted in buckets.
#[derive(Debug, Default)]
pub struct Times {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Times {
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> Distribution {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Distribution { counts, sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)) }
    }
}

/// How times are distributed, in buckets of 1, 2 and 5 tenths of a millisecond, and so on, up to ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub struct Distribution {
    /// How many fell into each bucket; the last has no upper bound.
    #[doc(hidden)]
    pub counts: Vec<u64>,
    #[doc(hidden)]
    pub sum: Duration,
}

/// In reports: their sum in µs, then how many are in each bucket, up to the last that has any.
impl From<Distribution> for Vec<u64> {
    fn from(Distribution { counts, sum }: Distribution) -> Self {
        let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let sum = u64::try_from(sum.as_micros()).unwrap_or(u64::MAX);
        [sum].into_iter().chain(counts.into_iter().take(used)).collect()
    }
}

impl From<Vec<u64>> for Distribution {
    fn from(numbers: Vec<u64>) -> Self {
        let mut numbers = numbers.into_iter();
        let sum = Duration::from_micros(numbers.next().unwrap_or(0));
        let counts = numbers.chain(std::iter::repeat(0)).take(BOUNDS.len() + 1).collect();
        Self { counts, sum }
    }
}

impl Distribution {
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// With those of another listener.
    #[doc(hidden)]
    pub fn add(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns those that came after an earlier look at the same times.
    #[doc(hidden)]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts =
            self.counts.iter().zip(earlier).map(|(count, before)| count.saturating_sub(before)).collect();
        Self { counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The upper bound of each bucket, and how many are in it; none: without a bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS.iter().map(|bound| Some(Duration::from_micros(*bound))).chain([None]);
        bounds.zip(self.counts.iter().copied().chain(std::iter::repeat(0)))
    }

    /// A time that this share of them does not exceed, such as `0.99`: the upper bound of a bucket. None where
    /// there are none, or it is beyond all bounds.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let mut left = (self.count() as f64 * share).ceil().max(1.0);
        self.buckets().find_map(|(bound, count)| {
            left -= count as f64;
            (left <= 0.0).then_some(bound)
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_buckets_and_quantiles_are_their_bounds() {
        let times = Times::default();
        for (micros, count) in [(0, 1), (100, 1), (101, 1), (900, 6), (u64::MAX, 1)] {
            (0..count).for_each(|_| times.add(Duration::from_micros(micros)));
        }
        let seen = times.snapshot();
        assert_eq!(seen.counts[..4], [2, 1, 0, 6]);
        assert_eq!((seen.count(), seen.counts.last()), (10, Some(&1)));
        let quantile = |share| seen.quantile(share).map(|bound| bound.as_micros());
        assert_eq!(
            [0.0, 0.2, 0.3, 0.9, 0.91].map(quantile),
            [Some(100), Some(100), Some(200), Some(1000), None]
        );
        assert_eq!(Distribution::default().quantile(0.5), None);
        let sent = Vec::from(seen.clone());
        assert_eq!((sent.len(), Distribution::from(sent)), (23, seen));
    }
}
