//! Whether topics are as they should be: for cron, probes and alarms.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::console::{TopicStatus, UnreadableTopic, counted, show_span};

/// What is tolerated of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// For how long the oldest overdue timer may have been due. It counts by deadline: what is due in the far future is no
    /// backlog.
    pub max_overdue: Option<Duration>,
    /// How many undelivered timers there may be.
    pub max_undelivered: Option<u64>,
    /// How long ago the oldest undelivered timer may have been due, by its first deadline.
    pub max_undelivered_for: Option<Duration>,
    /// How many dead letters there may be.
    pub max_dead: Option<u64>,
    /// How many timers may be in quarantine.
    pub max_quarantined: Option<u64>,
    /// How many listeners there have to be.
    pub min_listeners: Option<usize>,
}

/// Something that is not tolerated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Breach {
    /// The topic.
    pub topic: String,
    /// What was looked at: `overdue_ms`, `undelivered`, `undelivered_ms`, `dead`, `quarantined`, `listeners`, or `problem` where
    /// it could not be read.
    pub what: &'static str,
    /// What it is.
    pub found: u64,
    /// What it may be; of listeners has to be.
    pub limit: u64,
    /// The same in words.
    pub says: String,
}

impl Limits {
    /// With this for [`max_overdue`](Self::max_overdue).
    #[must_use]
    pub fn overdue(self, most: Option<Duration>) -> Self {
        Self { max_overdue: most, ..self }
    }

    /// With this for [`max_undelivered`](Self::max_undelivered).
    #[must_use]
    pub fn undelivered(self, most: Option<u64>) -> Self {
        Self { max_undelivered: most, ..self }
    }

    /// With this for [`max_undelivered_for`](Self::max_undelivered_for).
    #[must_use]
    pub fn undelivered_for(self, most: Option<Duration>) -> Self {
        Self { max_undelivered_for: most, ..self }
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

    /// What of a topic is beyond them.
    pub fn breaches(&self, topic: &TopicStatus) -> Vec<Breach> {
        let breach = |what, found: u64, limit: u64, says: String| Breach {
            topic: topic.topic.name().to_owned(),
            what,
            found,
            limit,
            says,
        };
        if let Some(problem) = &topic.problem {
            return vec![breach("problem", 1, 0, problem.clone())];
        }
        let overview = &topic.overview;
        let mut found = Vec::new();
        if let Some(most) = self.max_overdue.filter(|most| overview.oldest_overdue() > *most) {
            let (oldest, timers) =
                (show_span(overview.oldest_overdue()), counted(overview.overdue, "overdue timer"));
            let says = format!("{timers}, the oldest due for {oldest}");
            found.push(breach("overdue_ms", overview.oldest_overdue_ms, ms(most), says));
        }
        if let Some(most) = self.max_undelivered_for.filter(|most| overview.oldest_undelivered() > *most) {
            let (oldest, timers) = (
                show_span(overview.oldest_undelivered()),
                counted(overview.undelivered, "undelivered timer"),
            );
            let says = format!("{timers}, the oldest first due {oldest} ago");
            found.push(breach("undelivered_ms", overview.oldest_undelivered_ms, ms(most), says));
        }
        let counts = [
            ("undelivered", self.max_undelivered, overview.undelivered, "undelivered timer"),
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

impl From<&UnreadableTopic> for Breach {
    /// Whatever the limits are.
    fn from(topic: &UnreadableTopic) -> Self {
        let UnreadableTopic { name, problem, .. } = topic;
        let says = format!("it cannot be read: {problem}");
        Self { topic: name.clone(), what: "problem", found: 1, limit: 0, says }
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
