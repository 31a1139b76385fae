//! How a topic is, in numbers; and how many attempts end in a second, out of numbers that listeners report every five
//! seconds.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::KnownTopic;
use crate::error::Result;
use crate::time::system_time;
use crate::wire::{self, PartitionNames, Store};

/// How far ahead it is counted what is due.
const AHEAD: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

/// What a topic holds now, over all partitions. It costs the server some microseconds for each partition, however much
/// there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// Why nothing is given out, if the topic is paused.
    pub paused: Option<String>,
    /// What is being done to it, `destroying` or `repartitioning`; or `wire version N` where this program cannot read it.
    pub closed: Option<String>,
    /// Timers that wait or run, those in quarantine among them. Of an attached topic its lapses.
    pub timers: u64,
    /// Timers in quarantine.
    pub quarantined: u64,
    /// Dead letters.
    pub dead: u64,
    /// Dead letters that were trimmed since the topic was created.
    pub trimmed: u64,
    /// When the last of them was, in ms since 1970.
    pub trimmed_ms: Option<u64>,
    /// Keys of other programs that are enrolled.
    pub enrolled: u64,
    /// Timers whose time has come and which nobody has taken yet.
    pub overdue: u64,
    /// For how long the oldest of these has been due, in ms; 0 if there is none.
    pub oldest_overdue_ms: u64,
    /// Timers whose first deadline has passed and which have not ended, whatever they wait for: a retry, a snooze, a host that
    /// does not answer, the end of a pause. Those that run for the first time are not counted.
    pub undelivered: u64,
    /// For how long the oldest of these should have run, by its first deadline, in ms; 0 if there is none.
    pub oldest_undelivered_ms: u64,
    /// Timers that need attention within a minute: those that are due then, and running ones whose leases would end.
    pub due_in_1m: u64,
    /// The same within an hour.
    pub due_in_1h: u64,
    /// When the next timer needs attention, in ms since 1970.
    pub next_ms: Option<u64>,
    /// The server's time, in ms since 1970; of several servers the latest.
    pub now_ms: u64,
    /// For how long the first of all has needed attention, in quarantine or not, in ms.
    #[serde(skip)]
    pub(super) first_late_ms: u64,
    /// The wire version of another program, that this one cannot read.
    #[serde(skip)]
    pub(super) other_version: Option<u32>,
}

impl Overview {
    /// The server's time.
    pub fn now(&self) -> SystemTime {
        system_time(self.now_ms)
    }

    /// For how long the oldest overdue timer has been due.
    pub fn oldest_overdue(&self) -> Duration {
        Duration::from_millis(self.oldest_overdue_ms)
    }

    /// For how long the oldest undelivered timer should have run.
    pub fn oldest_undelivered(&self) -> Duration {
        Duration::from_millis(self.oldest_undelivered_ms)
    }

    /// How long ago the last dead letter was trimmed.
    pub fn since_trimmed(&self) -> Option<Duration> {
        self.trimmed_ms.map(|at| Duration::from_millis(self.now_ms.saturating_sub(at)))
    }

    fn add(&mut self, part: wire::Overview) {
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
        self.enrolled += part.enrolled;
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

/// What stands in the place of the wire version, unless it is ours or none.
fn closed(version: Option<&str>) -> Option<String> {
    match version {
        None => None,
        Some(version) if version == wire::WIRE_VERSION.to_string() => None,
        Some(version) if version.parse::<u32>().is_ok() => Some(format!("wire version {version}")),
        Some(state) => Some(crate::escape::plain(state, 40)),
    }
}

impl KnownTopic {
    /// How the topic is.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn overview(&self) -> Result<Overview> {
        overviews(self.console.store(), &[self.parts()]).await.remove(0)
    }
}

/// How topics are, by their partitions, in as few requests as there are servers; each with its own result.
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

/// Numbers of the last half minute are compared: fewer would jump with each report.
const WINDOW_MS: u64 = 30_000;
/// Listeners report so often. A number that has changed can be of all of that time.
const REPORT_MS: u64 = 5000;
/// After this long without a change nothing runs.
const STILL_MS: u64 = 2 * REPORT_MS + 1000;

/// The numbers of all topics that were looked at: tell it of a [`TopicStatus`](super::TopicStatus) now and then, and it
/// knows how many attempts end in a second.
#[derive(Debug, Default)]
pub struct Rates {
    topics: HashMap<String, Numbers>,
}

/// How often what was counted, each time that it had changed.
#[derive(Debug, Default)]
struct Numbers {
    changes: VecDeque<(u64, u64)>,
    first_ms: u64,
}

impl Rates {
    /// Takes down how many attempts have ended at this time of the server, and says how many do in a second: nothing
    /// before two reports have been seen.
    pub fn of(&mut self, topic: &str, now_ms: u64, ended: u64) -> Option<f64> {
        let numbers = self.topics.entry(topic.to_owned()).or_default();
        numbers.add(now_ms, ended);
        numbers.rate(now_ms)
    }

    /// Forgets all topics but these.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.topics.retain(|topic, _| is_kept(topic));
    }
}

impl Numbers {
    fn add(&mut self, now_ms: u64, ended: u64) {
        match self.changes.back() {
            Some((at, last)) if *last == ended => {
                let still = if self.changes.len() == 1 { REPORT_MS } else { STILL_MS };
                if now_ms.saturating_sub(*at) > still {
                    // What comes after a pause is not spread over the pause.
                    self.changes = [(now_ms - REPORT_MS, ended)].into();
                }
            }
            // Fewer than before: a listener has gone, and its numbers with it.
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

    /// Looks every two seconds, at numbers that change every five.
    fn looked(rates: &mut Rates, ms: std::ops::Range<u64>, ended: impl Fn(u64) -> u64) -> Option<f64> {
        ms.step_by(2000).map(|at| rates.of("a", at, ended(at / 5000 * 5))).last().flatten()
    }

    #[test]
    fn a_steady_rate_is_found_out_within_two_reports() {
        let mut rates = Rates::default();
        assert_eq!(rates.of("a", 0, 70), None, "one report says nothing");
        let rate = looked(&mut rates, 0..60_000, |second| 70 + second * 100).unwrap();
        assert!((90.0..110.0).contains(&rate), "{rate}");
    }

    #[test]
    fn nothing_is_a_rate_of_zero_and_a_pause_dilutes_nothing() {
        let mut rates = Rates::default();
        assert_eq!(looked(&mut rates, 0..14_000, |_| 70), Some(0.0));
        looked(&mut rates, 14_000..600_000, |_| 70);
        let rate = rates.of("a", 600_000, 570).unwrap();
        assert!(
            (60.0..=100.0).contains(&rate),
            "{rate}: 500 in the five seconds of one report, seen a look later"
        );
        assert_eq!(looked(&mut rates, 602_000..620_000, |_| 570), Some(0.0));
    }

    #[test]
    fn a_listener_that_goes_takes_its_numbers_along() {
        let mut rates = Rates::default();
        looked(&mut rates, 0..60_000, |second| second * 100);
        assert_eq!(rates.of("a", 60_000, 10), None);
    }
}
