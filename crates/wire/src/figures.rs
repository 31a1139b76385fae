//! The figures of reports: durations in buckets, states of destinations, and numbers as people write them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::escape::cut;

/// The upper bounds of [`Distribution`]'s buckets, in microseconds: three for each power of ten, from 0.1 ms to 10 min.
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

/// Counts durations in buckets.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// The sum of all durations, in µs.
    sum_micros: AtomicU64,
}

impl DurationHistogram {
    /// Counts a duration.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub fn snapshot(&self) -> Distribution {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Distribution { counts, sum: Duration::from_micros(self.sum_micros.load(Ordering::Relaxed)) }
    }
}

/// A distribution of durations. Its buckets end at 0.1, 0.2, 0.5, 1, 2, 5 ms and so on, up to ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub struct Distribution {
    /// The count of each bucket. The last bucket has no upper bound.
    #[doc(hidden)]
    pub counts: Vec<u64>,
    /// The sum of all durations.
    #[doc(hidden)]
    pub sum: Duration,
}

/// A report has the sum in µs, then the count of each bucket up to the last that is not empty.
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
    /// Returns whether it counts no duration.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Adds the counts of another listener.
    #[doc(hidden)]
    pub fn add(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns the durations that were counted after the snapshot `before`.
    #[doc(hidden)]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts =
            self.counts.iter().zip(earlier).map(|(count, before)| count.saturating_sub(before)).collect();
        Self { counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the upper bound and the count of each bucket. The bound of the last bucket is `None`.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS.iter().map(|bound| Some(Duration::from_micros(*bound))).chain([None]);
        bounds.zip(self.counts.iter().copied().chain(std::iter::repeat(0)))
    }

    /// Returns the upper bound of the bucket that holds a quantile, such as `0.99`. Returns `None` if the distribution is
    /// empty, or if the quantile is in the last bucket.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let mut left = (self.count() as f64 * share).ceil().max(1.0);
        self.buckets().find_map(|(bound, count)| {
            left -= count as f64;
            (left <= 0.0).then_some(bound)
        })?
    }
}

/// The destinations that the handlers of a topic call, such as hosts. A listener reports their states every five seconds,
/// so that operators see which destination delays timers. See `Topic::destinations`.
///
/// ```
/// # mod keylapse { pub mod destinations { pub use keylapse_wire::figures::*; } }
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use keylapse::destinations::{Destination, DestinationState, Destinations};
///
/// #[derive(Debug, Default)]
/// struct Bank { last_call_failed: AtomicBool } // the handler sets it
/// impl Destinations for Bank {
///     fn states(&self) -> Vec<Destination> {
///         let failed = self.last_call_failed.load(Ordering::Relaxed);
///         let state = if failed { DestinationState::Failing } else { DestinationState::Ok };
///         vec![Destination::new("bank.example:443", state)]
///     }
///     fn try_now(&self, _name: &str) {} // calls to the bank are never delayed
/// }
/// # assert_eq!(Bank::default().states()[0].state, DestinationState::Ok);
/// ```
pub trait Destinations: Debug + Send + Sync {
    /// Returns the present state of each destination. A report has room for the 20 worst of a topic.
    fn states(&self) -> Vec<Destination>;

    /// Allows a call to the destination with this name now, because an operator requested it. Must ignore unknown names.
    fn try_now(&self, name: &str);

    /// Returns a short text that identifies what the handlers do, such as a hash, or `None` (the default). Operators see
    /// which listeners of one topic differ, for example after a URL was changed in one of two files. At most 64 bytes are
    /// reported.
    fn identity(&self) -> Option<String> {
        None
    }
}

/// The state of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Destination {
    /// The name, such as `shop.example:443`. At most 255 bytes are reported.
    pub name: String,
    /// The state of the calls to it.
    pub state: DestinationState,
    /// The number of calls in a row that have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The time until the next call, in ms, unless an operator requests an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// The last answer, such as `503 Service Unavailable`. At most 100 bytes are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
    /// The error of the last call that failed. At most 200 bytes are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The state of the calls to a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DestinationState {
    /// Calls are made, and the last one succeeded.
    #[default]
    Ok,
    /// Calls are made, and the last one failed.
    Failing,
    /// The destination asked for calls at a later time.
    Busy,
    /// No calls are made, because too many in a row have failed. The state stays while a trial call runs. States of later
    /// releases are read as this one.
    #[serde(other)]
    Open,
}

impl DestinationState {
    /// Returns the state as a word: `ok`, `failing`, `busy` or `open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Busy => "busy",
            Self::Open => "open",
        }
    }

    /// Returns whether timers wait because of this state.
    pub fn holds_back(self) -> bool {
        matches!(self, Self::Busy | Self::Open)
    }
}

/// The maximum length of a reported name, in bytes.
pub const MAX_DESTINATION: usize = 255;
/// The maximum number of destinations of a topic in a report.
const MAX_REPORTED: usize = 20;

impl Destination {
    /// Creates a destination with this name and state.
    pub fn new(name: impl Into<String>, state: DestinationState) -> Self {
        Self { name: name.into(), state, ..Self::default() }
    }

    /// Returns the worst destinations, cut to the limits of a report.
    #[doc(hidden)]
    pub fn reported(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by(|one, other| (other.state, &one.name).cmp(&(one.state, &other.name)));
        all.truncate(MAX_REPORTED);
        for one in &mut all {
            one.name = cut(&one.name, MAX_DESTINATION).to_owned();
            one.last_answer.iter_mut().for_each(|text| *text = cut(text, 100).to_owned());
            one.last_error.iter_mut().for_each(|text| *text = cut(text, 200).to_owned());
        }
        all
    }
}

/// Formats a number with commas: `12,345`.
pub fn show_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 timer`, `12,345 timers`. The plural of the noun must be the noun and an `s`.
pub fn counted(number: u64, name: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {name}{plural}", show_count(number))
}

/// Returns whether a count is 0, so that serde leaves it out.
pub fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_buckets_and_quantiles_are_their_bounds() {
        let times = DurationHistogram::default();
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

    #[test]
    fn buckets_are_three_for_each_power_of_ten_up_to_ten_minutes() {
        let powers = (2..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
        let bounds: Vec<_> = powers.take(20).chain([600_000_000]).collect();
        assert_eq!(BOUNDS[..], bounds);
    }

    #[test]
    fn the_worst_are_reported_in_bounded_texts() {
        let one = |state, n: usize| Destination {
            last_error: Some("é".repeat(500)),
            ..Destination::new(format!("{n:0300}"), state)
        };
        let states = [DestinationState::Ok, DestinationState::Open, DestinationState::Busy];
        let all = (0..60).map(|n| one(states[n % 3], n)).collect();
        let reported = Destination::reported(all);
        assert_eq!(reported.len(), MAX_REPORTED);
        assert!(reported.iter().all(|one| one.state == DestinationState::Open));
        let long = |one: &Destination| one.name.len() > 255 || one.last_error.as_ref().unwrap().len() > 200;
        assert!(!reported.iter().any(long));
    }

    #[test]
    fn a_state_of_a_later_release_is_read_as_open() {
        let read: Destination = serde_json::from_str(r#"{"name":"a","state":"melted"}"#).unwrap();
        assert_eq!(read, Destination::new("a", DestinationState::Open));
    }

    #[test]
    fn numbers_are_written_with_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(show_count(number), text);
        }
    }

    #[test]
    fn one_is_no_plural() {
        for (number, text) in [(0, "0 keys"), (1, "1 key"), (2, "2 keys"), (1001, "1,001 keys")] {
            assert_eq!(counted(number, "key"), text);
        }
    }
}
