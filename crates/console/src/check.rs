//! Checks of topics against alarms and limits: for cron, probes and requests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::{Alarm, AlarmKind, Status, TopicStatus, counted, parse_span, show_span};

/// The alarms and figures that a check tolerates. By default it tolerates no alarm, and any figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The alarms that are tolerated.
    pub allowed: Vec<AlarmKind>,
    /// For how long the oldest overdue timer may have been due. It counts by deadline: what is due in the far future is no
    /// backlog.
    pub max_overdue: Option<Duration>,
    /// The undelivered timers that a topic may have.
    pub max_undelivered: Option<MaxUndelivered>,
    /// How many dead letters there may be.
    pub max_dead: Option<u64>,
    /// How many timers may be in quarantine.
    pub max_quarantined: Option<u64>,
    /// How many listeners there have to be.
    pub min_listeners: Option<usize>,
}

/// A limit of undelivered timers. As text it is a number, or [a span of time](parse_span).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxUndelivered {
    /// How many there may be.
    Count(u64),
    /// How long ago the oldest of them may have been due, by its first deadline.
    Age(Duration),
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The alarms that are not tolerated.
    pub alarms: Vec<Alarm>,
    /// The figures beyond their limits.
    pub breaches: Vec<Breach>,
}

/// A figure of a topic that is beyond its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Breach {
    /// The topic.
    pub topic: String,
    /// The figure: `overdue_ms`, `undelivered`, `undelivered_ms`, `dead`, `quarantined` or `listeners`.
    pub what: &'static str,
    /// Its value.
    pub found: u64,
    /// The limit: the most that is tolerated, and of listeners the least.
    pub limit: u64,
    /// The text for people.
    pub says: String,
}

impl FromStr for MaxUndelivered {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(count) = text.parse() {
            return Ok(Self::Count(count));
        }
        parse_span(text)
            .map(Self::Age)
            .map_err(|error| Error::invalid(format!("{error}, or a number of timers")))
    }
}

impl Limits {
    /// With these for [`allowed`](Self::allowed).
    #[must_use]
    pub fn allow(self, alarms: Vec<AlarmKind>) -> Self {
        Self { allowed: alarms, ..self }
    }

    /// With this for [`max_overdue`](Self::max_overdue).
    #[must_use]
    pub fn overdue(self, most: Option<Duration>) -> Self {
        Self { max_overdue: most, ..self }
    }

    /// With this for [`max_undelivered`](Self::max_undelivered).
    #[must_use]
    pub fn undelivered(self, most: Option<MaxUndelivered>) -> Self {
        Self { max_undelivered: most, ..self }
    }

    /// With this for [`max_dead`](Self::max_dead).
    #[must_use]
    pub fn dead(self, most: Option<u64>) -> Self {
        Self { max_dead: most, ..self }
    }

    /// With this for [`max_quarantined`](Self::max_quarantined).
    #[must_use]
    pub fn quarantined(self, most: Option<u64>) -> Self {
        Self { max_quarantined: most, ..self }
    }

    /// With this for [`min_listeners`](Self::min_listeners).
    #[must_use]
    pub fn listeners(self, least: Option<usize>) -> Self {
        Self { min_listeners: least, ..self }
    }

    /// Returns what is not tolerated of these topics and their listeners.
    pub fn check(&self, status: &Status) -> Checked {
        let mut alarms = status.alarms();
        alarms.retain(|alarm| !self.allowed.contains(&alarm.kind));
        // A topic that cannot be read has an alarm, and no figures.
        let readable = status.topics.iter().filter(|topic| topic.problem.is_none());
        Checked { alarms, breaches: readable.flat_map(|topic| self.breaches(topic)).collect() }
    }

    fn breaches(&self, topic: &TopicStatus) -> Vec<Breach> {
        let breach = |what, found: u64, limit: u64, says: String| Breach {
            topic: topic.topic.name().to_owned(),
            what,
            found,
            limit,
            says,
        };
        let overview = &topic.overview;
        let mut found = Vec::new();
        if let Some(most) = self.max_overdue.filter(|most| overview.oldest_overdue() > *most) {
            let (oldest, timers) =
                (show_span(overview.oldest_overdue()), counted(overview.overdue, "overdue timer"));
            let says = format!("{timers}, the oldest due for {oldest}");
            found.push(breach("overdue_ms", overview.oldest_overdue_ms, ms(most), says));
        }
        let oldest = overview.oldest_undelivered();
        let undelivered = counted(overview.undelivered, "undelivered timer");
        match self.max_undelivered {
            Some(MaxUndelivered::Count(most)) if overview.undelivered > most => {
                found.push(breach("undelivered", overview.undelivered, most, undelivered));
            }
            Some(MaxUndelivered::Age(most)) if oldest > most => {
                let says = format!("{undelivered}, the oldest first due {} ago", show_span(oldest));
                found.push(breach("undelivered_ms", overview.oldest_undelivered_ms, ms(most), says));
            }
            _ => {}
        }
        let counts = [
            ("dead", self.max_dead, overview.dead, "dead letter"),
            ("quarantined", self.max_quarantined, overview.quarantined, "quarantined timer"),
        ];
        for (what, most, count, name) in counts {
            if let Some(most) = most.filter(|most| count > *most) {
                found.push(breach(what, count, most, counted(count, name)));
            }
        }
        if let Some(least) = self.min_listeners.filter(|least| topic.listeners < *least) {
            let there = topic.listeners as u64;
            let says = format!("served by {}", counted(there, "listener"));
            found.push(breach("listeners", there, least as u64, says));
        }
        found
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.topic, self.says)
    }
}
