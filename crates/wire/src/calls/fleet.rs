//! Reports of listeners: who serves what, and how it goes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::figures::{Destination, Distribution, is_zero};
use crate::time::system_time;
use crate::{PartitionNames, Reply, Store, scripts};

/// One that has not reported for this long counts as gone: three reports.
const PRESENT_TIMEOUT: Duration = Duration::from_secs(15);
/// One that has not reported for this long is worth a look: its next report is two seconds late.
const REPORT_OVERDUE_AFTER: Duration = Duration::from_secs(7);
/// After this long without one, its last report is forgotten. Until then operators see that it has ended without a word.
pub const FORGOTTEN_MS: u64 = 600_000;
/// Reports that are read at a time, roughly.
const REPORTS_PER_PAGE: usize = 100;
/// A report that would be longer leaves out the details of its topics, never their names.
const MAX_REPORT_BYTES: usize = 64 << 10;

/// What a listener said of itself last: every five seconds it does. See
/// `Schedule::listeners`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ListenerReport {
    /// Another each time that a listener is built.
    pub id: String,
    /// The machine.
    pub host: String,
    /// The process there.
    pub pid: u32,
    /// Of keylapse.
    pub version: String,
    /// When it was started, in ms since 1970, by the clock of its machine.
    #[serde(rename = "since")]
    #[doc(hidden)]
    pub since_ms: u64,
    /// How many timers it holds: until their deadlines, while they run, and until their ends are settled.
    pub running: usize,
    /// How many attempts it may run.
    pub limit: usize,
    /// For how long the runtime of its handlers had polled nothing, in ms; none while that polls. It claims nothing then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handlers_stalled_ms: Option<u64>,
    /// The servers that it listens to.
    pub nodes: Vec<NodeReport>,
    /// Its topics, by their names.
    pub topics: BTreeMap<String, TopicReport>,
    /// When it reported, in ms since 1970, by the server's clock.
    #[serde(rename = "at", skip_serializing)]
    #[doc(hidden)]
    pub at_ms: u64,
    /// For how long it had been running, in ms.
    pub uptime_ms: u64,
    /// How long ago that was, in ms, when it was read.
    pub age_ms: u64,
}

/// What a listener hears of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeReport {
    /// Host and port, as the listener knows them.
    pub node: String,
    /// A word for its `EventMode`.
    pub mode: String,
    /// Why something may be missed at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// How often something may have been missed.
    pub gaps: u64,
}

/// How it goes with a topic of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TopicReport {
    /// How many timers are held, in the same way.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: usize,
    /// How many may.
    #[serde(skip_serializing_if = "is_zero")]
    pub limit: usize,
    /// What was counted, by the names of `TopicStats`, unless it is nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// How late attempts were started.
    #[serde(skip_serializing_if = "Distribution::is_empty")]
    pub lateness: Distribution,
    /// How long handlers took.
    #[serde(skip_serializing_if = "Distribution::is_empty")]
    pub handler: Distribution,
    /// Attempts of the last five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_5m: Option<RecentAttempts>,
    /// Attempts of the last hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_1h: Option<RecentAttempts>,
    /// By what its handlers are compared with those of other listeners: see `Destinations::identity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The places that its handlers call, the worst first: up to twenty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Destination>,
}

/// Attempts of a span of time that ends now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecentAttempts {
    /// Those that ended well.
    pub handled: u64,
    /// Those that failed.
    pub failed: u64,
    /// How late attempts were started.
    #[serde(skip_serializing_if = "Distribution::is_empty")]
    pub lateness: Distribution,
}

impl ListenerReport {
    /// When it reported, by the server's clock.
    pub fn at(&self) -> SystemTime {
        system_time(self.at_ms)
    }

    /// Whether it counts as one that listens: it has reported within 15 s.
    #[doc(hidden)]
    pub fn is_present(&self) -> bool {
        u128::from(self.age_ms) <= PRESENT_TIMEOUT.as_millis()
    }

    /// Returns whether its next report is overdue: it has ended without a word, stands still, or cannot reach the server.
    /// So it is after seven seconds.
    pub fn is_silent(&self) -> bool {
        u128::from(self.age_ms) > REPORT_OVERDUE_AFTER.as_millis()
    }

    /// Returns whether this listener was started on the machine of the other one, after the last report of the other one, and
    /// serves each topic that the other one served.
    #[doc(hidden)]
    pub fn replaces(&self, other: &Self) -> bool {
        // By the server's clock: that of the machine may be another.
        let is_later = self.at_ms.saturating_sub(self.uptime_ms) >= other.at_ms;
        is_later
            && self.host == other.host
            && !self.is_silent()
            && other.topics.keys().all(|topic| self.serves(topic))
    }

    /// When it was started, by the clock of its machine.
    pub fn since(&self) -> SystemTime {
        system_time(self.since_ms)
    }

    /// Returns how many timers it holds, of how many, and whether its handlers are stalled, for people.
    pub fn capacity(&self) -> String {
        let stalled = if self.handlers_stalled_ms.is_some() { ", stalled" } else { "" };
        format!("{}/{}{stalled}", self.running, self.limit)
    }

    /// Whether it serves the topic with this name.
    pub fn serves(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// As it is sent.
    fn encode(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        if json.len() <= MAX_REPORT_BYTES {
            return json;
        }
        let shortened = |topic: fn(&TopicReport) -> TopicReport| {
            let topics = self.topics.iter().map(|(name, report)| (name.clone(), topic(report))).collect();
            serde_json::to_string(&Self { topics, ..self.clone() }).unwrap_or_default()
        };
        // What is held back goes last.
        let shorter = shortened(TopicReport::without_times);
        if shorter.len() <= MAX_REPORT_BYTES { shorter } else { shortened(|_| TopicReport::default()) }
    }
}

impl TopicReport {
    fn without_times(&self) -> Self {
        let counts =
            self.counts.iter().filter(|(name, _)| matches!(name.as_str(), "handled" | "failed" | "dead"));
        Self {
            running: self.running,
            limit: self.limit,
            counts: counts.map(|(name, count)| (name.clone(), *count)).collect(),
            destinations: self
                .destinations
                .iter()
                .filter(|one| one.state.holds_back())
                .take(3)
                .cloned()
                .collect(),
            ..Self::default()
        }
    }
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// When it was written, by the server's clock.
    pub at_ms: u64,
    /// Where the look for reports to forget has ended.
    pub looked: u64,
    /// When the same listener's report before it was written, if that was there.
    pub before_ms: Option<u64>,
}

impl Store {
    /// Asks the listeners of a topic to call a destination now; nothing depends on it.
    pub async fn try_now(&self, at: &PartitionNames, destination: &str) -> Result<()> {
        let publish =
            keylapse_connection::cmd("SPUBLISH").arg(&at.wake).arg(format!("o{destination}")).take();
        self.send("asking for a call", at.wake.as_bytes(), &publish).await.map(drop)
    }

    /// Leaves a report, or takes the last one away; and looks whether others are to be forgotten, from where the
    /// last look ended.
    pub async fn report(
        &self,
        listeners: &str,
        id: &str,
        report: Option<&ListenerReport>,
        from: u64,
    ) -> Result<Reported> {
        let report = report.map(ListenerReport::encode).unwrap_or_default();
        let mut call = self.call_with(&scripts::SAVE_REPORT, &[listeners]);
        call.arg(id).arg(report).arg(FORGOTTEN_MS).arg(from);
        let mut reply = call.reply().await?;
        Ok(Reported { at_ms: reply.stamp.ms(), looked: reply.int()?, before_ms: reply.maybe_int()? })
    }

    /// Everybody who has reported lately.
    pub async fn listeners(&self, listeners: &str) -> Result<Vec<ListenerReport>> {
        let mut all = self.reports(listeners).await?;
        all.retain(ListenerReport::is_present);
        Ok(all)
    }

    /// All reports that are not forgotten yet.
    pub async fn reports(&self, listeners: &str) -> Result<Vec<ListenerReport>> {
        let (mut found, mut cursor) = (BTreeMap::new(), 0_u64);
        loop {
            let mut call = self.call_with(&scripts::LIST_REPORTS, &[listeners]);
            let mut reply = call.arg(cursor).arg(REPORTS_PER_PAGE).reply().await?;
            cursor = reply.int()?;
            let now = reply.stamp.ms();
            // What cannot be read is of another version, or of somebody else.
            let read = |report: Bytes| serde_json::from_slice::<ListenerReport>(&report).ok();
            for mut report in reply.each(Reply::bytes)?.into_iter().filter_map(read) {
                report.age_ms = now.abs_diff(report.at_ms);
                found.insert(report.id.clone(), report);
            }
            if cursor == 0 {
                return Ok(found.into_values().collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_would_be_too_long_still_names_its_topics() {
        let topic = |n: usize| {
            let counts = [("handled".to_owned(), 7)].into();
            (format!("topic.{n}"), TopicReport { counts, limit: 100, ..TopicReport::default() })
        };
        let report =
            |topics: usize| ListenerReport { topics: (0..topics).map(topic).collect(), ..Default::default() };
        let read =
            |report: &ListenerReport| serde_json::from_str::<ListenerReport>(&report.encode()).unwrap();
        assert_eq!(read(&report(10)), report(10));
        let (long, read) = (report(2000), read(&report(2000)));
        assert!(long.encode().len() < MAX_REPORT_BYTES && long.topics.keys().eq(read.topics.keys()));
        assert_eq!(read.topics["topic.7"], TopicReport::default());
    }

    #[test]
    fn one_that_was_started_again_replaces_the_one_that_is_silent() {
        let report = |host: &str, started: u64, age_ms, topics: &[&str]| {
            let topics = topics.iter().map(|topic| ((*topic).to_owned(), TopicReport::default())).collect();
            let (host, at_ms) = (host.to_owned(), 100_000 - age_ms);
            let uptime_ms = at_ms - started;
            ListenerReport { host, at_ms, uptime_ms, age_ms, topics, ..ListenerReport::default() }
        };
        let gone = report("a", 100, 60_000, &["t", "u"]);
        assert!(report("a", 41_000, 0, &["t", "u", "v"]).replaces(&gone));
        for other in [
            report("b", 41_000, 0, &["t", "u"]),
            // It ran beside the other one.
            report("a", 39_000, 0, &["t", "u"]),
            report("a", 41_000, 9_000, &["t", "u"]),
            report("a", 41_000, 0, &["t"]),
        ] {
            assert!(!other.replaces(&gone), "{other:?}");
        }
    }

    #[test]
    fn what_a_later_version_adds_is_no_trouble() {
        let json = r#"{"at":7,"id":"a","new":[1],"topics":{"t":{"new":1}},"nodes":[{}]}"#;
        let report: ListenerReport = serde_json::from_str(json).unwrap();
        assert!(report.serves("t") && !report.serves("u"));
        assert_eq!((report.at_ms, report.nodes.len()), (7, 1));
    }
}
