//! How a topic is, in numbers.

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
