//! The figures of reports: times in buckets, how the places are that handlers call, and numbers as people write them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::escape::cut;

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
pub struct DurationHistogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl DurationHistogram {
    /// Counts one.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns those that were counted so far.
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
    /// Their sum.
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
    /// Returns whether there are none.
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

/// The places that the handlers of a topic call, such as hosts. A listener reports them every five seconds, so that
/// operators see by whom work is held back. See `Topic::destinations`.
pub trait Destinations: Debug + Send + Sync {
    /// Returns how they are now. A report has room for the twenty worst of a topic.
    fn states(&self) -> Vec<Destination>;

    /// An operator asks for a call to the one with this name now, although it is held back. Names of others are to be ignored.
    fn try_now(&self, name: &str);

    /// Returns a short text by which what the handlers do is compared: operators are told of listeners of one topic that
    /// differ, as after a URL was changed in one of two files. At most 64 bytes are reported; it may be a hash. By default
    /// nothing is compared.
    fn identity(&self) -> Option<String> {
        None
    }
}

/// How one of them is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Destination {
    /// Its name, such as `shop.example:443`. At most 255 bytes are reported.
    pub name: String,
    /// The state of calls to it.
    pub state: DestinationState,
    /// How many calls in a row have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// After how long it is called again, in ms, where nobody calls it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// The last answer, such as `503 Service Unavailable`. At most 100 bytes are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
    /// Why the last call that failed did so. At most 200 bytes are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The states of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DestinationState {
    /// It is, and the last call went well.
    #[default]
    Ok,
    /// It is, and the last call failed.
    Failing,
    /// It asked to be called later.
    Busy,
    /// It is not: too many calls in a row have failed. One that is under way tries whether it answers again.
    /// States of later releases are read as this.
    #[serde(other)]
    Open,
}

impl DestinationState {
    /// Returns a word for it: `ok`, `failing`, `busy` or `open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Busy => "busy",
            Self::Open => "open",
        }
    }

    /// Returns whether timers wait because of it.
    pub fn holds_back(self) -> bool {
        matches!(self, Self::Busy | Self::Open)
    }
}

/// The longest name that is reported, in bytes.
pub const MAX_DESTINATION: usize = 255;
/// What a report has room for, of a topic.
const REPORTED: usize = 20;

impl Destination {
    /// Returns one with this name, in this state.
    pub fn new(name: impl Into<String>, state: DestinationState) -> Self {
        Self { name: name.into(), state, ..Self::default() }
    }

    /// Keeps the worst, within the limits of a report.
    #[doc(hidden)]
    pub fn reported(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by(|one, other| (other.state, &one.name).cmp(&(one.state, &other.name)));
        all.truncate(REPORTED);
        for one in &mut all {
            one.name = cut(&one.name, MAX_DESTINATION).to_owned();
            one.last_answer.iter_mut().for_each(|text| *text = cut(text, 100).to_owned());
            one.last_error.iter_mut().for_each(|text| *text = cut(text, 200).to_owned());
        }
        all
    }
}

/// A number with commas: `12,345`.
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

/// How many there are of what has this name: `1 timer`, `12,345 timers`. For names whose plural ends in a mere `s`.
pub fn counted(number: u64, name: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {name}{plural}", show_count(number))
}

/// Returns whether it is 0: what serde leaves out.
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
        assert_eq!(reported.len(), REPORTED);
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
