//! The counts of a topic, and the rate of attempts, computed from counts that listeners report every five seconds.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::TopicHandle;
use crate::error::Result;
use crate::time::system_time;
use crate::wire::{self, PartitionNames, Store};

/// The spans from now for which an overview counts due timers.
const AHEAD: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

/// The counts of a topic, over all partitions. Reading them costs the server some microseconds per partition, however many
/// timers exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// The reason of the pause, if the topic is paused.
    pub paused: Option<String>,
    /// The reason why the topic is closed: `destroying`, `repartitioning`, or `wire version N` if this program cannot read
    /// it.
    pub closed: Option<String>,
    /// Timers that wait or run, including those in quarantine. In an attached topic, its lapses.
    pub timers: u64,
    /// Timers in quarantine.
    pub quarantined: u64,
    /// Dead letters.
    pub dead: u64,
    /// Dead letters that were trimmed since the topic was created.
    pub trimmed: u64,
    /// The time of the last trim, in ms since 1970.
    pub trimmed_ms: Option<u64>,
    /// Tracked keys of an attached topic.
    pub tracked: u64,
    /// Timers that are due and that no listener has claimed.
    pub overdue: u64,
    /// The time since the deadline of the oldest overdue timer, in ms, or 0 without overdue timers.
    pub oldest_overdue_ms: u64,
    /// Timers whose first deadline has passed and that have not ended. They may wait for a retry, a snooze, a host that does
    /// not answer or the end of a pause. Timers that run for the first time do not count.
    pub undelivered: u64,
    /// The time since the first deadline of the oldest undelivered timer, in ms, or 0 without undelivered timers.
    pub oldest_undelivered_ms: u64,
    /// Timers that need attention within a minute, because they become due or because their lease would end.
    pub due_in_1m: u64,
    /// Timers that need attention within an hour, because they become due or because their lease would end.
    pub due_in_1h: u64,
    /// The time at which the next timer needs attention, in ms since 1970.
    pub next_ms: Option<u64>,
    /// The server's time, in ms since 1970. With several servers, the latest.
    pub now_ms: u64,
    /// For how long the earliest timer has needed attention, in ms, including timers in quarantine.
    #[serde(skip)]
    pub(super) first_late_ms: u64,
    /// The wire version of another program, if this program cannot read it.
    #[serde(skip)]
    pub(super) other_version: Option<u32>,
}

impl Overview {
    /// Returns the server's time.
    pub fn now(&self) -> SystemTime {
        system_time(self.now_ms)
    }

    /// Returns the time since the deadline of the oldest overdue timer.
    pub fn oldest_overdue(&self) -> Duration {
        Duration::from_millis(self.oldest_overdue_ms)
    }

    /// Returns the time since the first deadline of the oldest undelivered timer.
    pub fn oldest_undelivered(&self) -> Duration {
        Duration::from_millis(self.oldest_undelivered_ms)
    }

    /// Returns the time since the last dead letter was trimmed.
    pub fn since_trimmed(&self) -> Option<Duration> {
        self.trimmed_ms.map(|at| Duration::from_millis(self.now_ms.saturating_sub(at)))
    }

    fn add(&mut self, part: wire::PartitionOverview) {
        let now = part.stamp.ms();
        self.paused = self.paused.take().or(part.paused);
        let number = part.version.as_ref().and_then(|version| version.parse().ok());
        self.other_version = self.other_version.or(number.filter(|number| *number != wire::WIRE_VERSION));
        self.closed = self.closed.take().or_else(|| closed(part.version.as_deref()));
        self.timers += part.due + part.quarantined;
        self.quarantined += part.quarantined;
        self.dead += part.dead;
        self.trimmed += part.trimmed;
        self.trimmed_ms = self.trimmed_ms.max(part.trimmed_at);
        self.undelivered += part.undelivered;
        let oldest = part.oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        self.oldest_undelivered_ms = self.oldest_undelivered_ms.max(oldest);
        self.tracked += part.tracked;
        self.overdue += part.overdue;
        let late = now.saturating_sub(part.first.unwrap_or(now));
        self.first_late_ms = self.first_late_ms.max(late);
        if part.overdue > 0 {
            self.oldest_overdue_ms = self.oldest_overdue_ms.max(late);
        }
        self.due_in_1m += part.within[0];
        self.due_in_1h += part.within[1];
        self.next_ms = self.next_ms.into_iter().chain(part.first).min();
        self.now_ms = self.now_ms.max(now);
    }
}

/// Returns the reason why a partition is closed, given the version field of its `meta`.
fn closed(version: Option<&str>) -> Option<String> {
    match version {
        None => None,
        Some(version) if version == wire::WIRE_VERSION.to_string() => None,
        Some(version) if version.parse::<u32>().is_ok() => Some(format!("wire version {version}")),
        Some(state) => Some(crate::escape::escape_line(state, 40)),
    }
}

impl TopicHandle {
    /// Returns the counts of the topic.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn overview(&self) -> Result<Overview> {
        overviews(self.console.store(), &[self.partition_names()]).await.remove(0)
    }
}

/// Returns an overview of each topic, given its partitions. Sends one request per server.
pub(super) async fn overviews(store: &Store, topics: &[&[PartitionNames]]) -> Vec<Result<Overview>> {
    let mut parts = store.overviews(&topics.concat(), AHEAD).await.into_iter();
    let sum = |topic: &&[PartitionNames]| {
        let mut sum = Overview::default();
        let mut first = Ok(());
        for part in parts.by_ref().take(topic.len()) {
            match part {
                Ok(part) => sum.add(part),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first.map(|()| sum)
    };
    topics.iter().map(sum).collect()
}

/// The rate is an average over this time. A shorter one would make it jump with each report.
const WINDOW_MS: u64 = 30_000;
/// The interval of listeners' reports. A change of a count can have happened at any time of the interval.
const REPORT_MS: u64 = 5000;
/// The rate is zero after this long without a change.
const STILL_MS: u64 = 2 * REPORT_MS + 1000;

/// The rates at which attempts of topics end, computed from counts of a [`TopicStatus`](super::TopicStatus) at different
/// times.
#[derive(Debug, Default)]
pub struct Rates {
    topics: HashMap<String, CountHistory>,
}

#[derive(Debug, Default)]
struct CountHistory {
    /// The times at which the count had changed, in ms, and the new counts.
    changes: VecDeque<(u64, u64)>,
    first_ms: u64,
}

impl Rates {
    /// Records that `ended` attempts had ended at the server's time `now_ms`, and returns the rate per second. Returns
    /// `None` until two reports have arrived.
    pub fn of(&mut self, topic: &str, now_ms: u64, ended: u64) -> Option<f64> {
        let numbers = self.topics.entry(topic.to_owned()).or_default();
        numbers.add(now_ms, ended);
        numbers.rate(now_ms)
    }

    /// Forgets all topics for which `is_kept` returns false.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.topics.retain(|topic, _| is_kept(topic));
    }
}

impl CountHistory {
    fn add(&mut self, now_ms: u64, ended: u64) {
        match self.changes.back() {
            Some((at, last)) if *last == ended => {
                let still = if self.changes.len() == 1 { REPORT_MS } else { STILL_MS };
                if now_ms.saturating_sub(*at) > still {
                    // The next attempts must not be averaged over the quiet time before them.
                    self.changes = [(now_ms - REPORT_MS, ended)].into();
                }
            }
            // The count falls when a listener ends, because its report goes with it.
            Some((_, last)) if *last > ended => *self = Self::begun(now_ms, ended),
            None => *self = Self::begun(now_ms, ended),
            Some(_) => self.changes.push_back((now_ms, ended)),
        }
        while self.changes.len() > 2 && self.changes[0].0.saturating_add(WINDOW_MS) < now_ms {
            self.changes.pop_front();
        }
    }

    fn begun(now_ms: u64, ended: u64) -> Self {
        Self { changes: [(now_ms, ended)].into(), first_ms: now_ms }
    }

    fn rate(&self, now_ms: u64) -> Option<f64> {
        let ((from, before), (to, after)) = (*self.changes.front()?, *self.changes.back()?);
        if self.changes.len() < 2 {
            return (now_ms.saturating_sub(self.first_ms) > STILL_MS).then_some(0.0);
        }
        let ms = to.saturating_sub(from).max(REPORT_MS);
        Some((after - before) as f64 * 1000.0 / ms as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads counts every two seconds that change every five seconds.
    fn looked(rates: &mut Rates, ms: std::ops::Range<u64>, ended: impl Fn(u64) -> u64) -> Option<f64> {
        ms.step_by(2000).map(|at| rates.of("a", at, ended(at / 5000 * 5))).last().flatten()
    }

    #[test]
    fn a_steady_rate_is_known_after_two_reports() {
        let mut rates = Rates::default();
        assert_eq!(rates.of("a", 0, 70), None, "one report gives no rate");
        let rate = looked(&mut rates, 0..60_000, |second| 70 + second * 100).unwrap();
        assert!((90.0..110.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_constant_count_is_a_rate_of_zero_and_does_not_lower_later_rates() {
        let mut rates = Rates::default();
        assert_eq!(looked(&mut rates, 0..14_000, |_| 70), Some(0.0));
        looked(&mut rates, 14_000..600_000, |_| 70);
        let rate = rates.of("a", 600_000, 570).unwrap();
        assert!((60.0..=100.0).contains(&rate), "{rate}: one report had 500 attempts in five seconds");
        assert_eq!(looked(&mut rates, 602_000..620_000, |_| 570), Some(0.0));
    }

    #[test]
    fn the_rate_starts_again_after_a_listener_ended() {
        let mut rates = Rates::default();
        looked(&mut rates, 0..60_000, |second| second * 100);
        assert_eq!(rates.of("a", 60_000, 10), None);
    }
}
