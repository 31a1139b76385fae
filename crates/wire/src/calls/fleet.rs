//! Reports of listeners: their topics, statistics and event modes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::figures::{Destination, Distribution, is_zero};
use crate::time::system_time;
use crate::{PartitionNames, Reply, Store, scripts};

/// A listener without a report for this long counts as gone: it has missed three.
const PRESENT_TIMEOUT: Duration = Duration::from_secs(15);
/// A listener without a report for this long is overdue: the next report is two seconds late.
const REPORT_OVERDUE_AFTER: Duration = Duration::from_secs(7);
/// The last report of a listener is removed after this time. Until then operators see a listener that has crashed.
pub const FORGOTTEN_MS: u64 = 600_000;
/// The rough number of reports that are read in one call.
const REPORTS_PER_PAGE: usize = 100;
/// The maximum length of a report. A longer one leaves out details of its topics, but never their names.
const MAX_REPORT_BYTES: usize = 64 << 10;

/// The last report of a listener, which sends one every five seconds. See `Schedule::listeners`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ListenerReport {
    /// The ID of the listener, which is new each time that a listener is built.
    pub id: String,
    /// The name of the machine.
    pub host: String,
    /// The process ID on that machine.
    pub pid: u32,
    /// The version of keylapse.
    pub version: String,
    /// When the listener was started, in ms since 1970, by the clock of its machine.
    #[serde(rename = "since")]
    #[doc(hidden)]
    pub since_ms: u64,
    /// The number of timers that it holds: before their deadlines, while they run, and until they are settled.
    pub running: usize,
    /// The maximum number of concurrent attempts.
    pub limit: usize,
    /// How long the runtime of its handlers has polled nothing, in ms; `None` while it polls. A stalled listener claims
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handlers_stalled_ms: Option<u64>,
    /// The servers whose events it receives.
    pub nodes: Vec<NodeReport>,
    /// The topics by their names.
    pub topics: BTreeMap<String, TopicReport>,
    /// When the report was written, in ms since 1970, by the server's clock.
    #[serde(rename = "at", skip_serializing)]
    #[doc(hidden)]
    pub at_ms: u64,
    /// How long the listener had been running, in ms.
    pub uptime_ms: u64,
    /// The age of the report when it was read, in ms.
    pub age_ms: u64,
}

/// The event mode and the gaps of one server of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeReport {
    /// The host and port that the listener uses.
    pub node: String,
    /// The `EventMode` as a word.
    pub mode: String,
    /// Why events may be missed at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// How often events may have been missed.
    pub gaps: u64,
}

/// The statistics of a topic in a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TopicReport {
    /// The number of timers of the topic that the listener holds.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: usize,
    /// The maximum number of concurrent attempts of the topic.
    #[serde(skip_serializing_if = "is_zero")]
    pub limit: usize,
    /// The counters that are not 0, by their names in `TopicStats`.
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
    /// The text that identifies what the handlers do. See `Destinations::identity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The destinations that the handlers call, the worst first: up to 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Destination>,
}

/// The attempts in a span of time that ends now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecentAttempts {
    /// The number of attempts that succeeded.
    pub handled: u64,
    /// The number of attempts that failed.
    pub failed: u64,
    /// How late attempts were started.
    #[serde(skip_serializing_if = "Distribution::is_empty")]
    pub lateness: Distribution,
}

impl ListenerReport {
    /// Returns when the report was written, by the server's clock.
    pub fn at(&self) -> SystemTime {
        system_time(self.at_ms)
    }

    /// Returns whether the listener is present: it has reported within 15 s.
    #[doc(hidden)]
    pub fn is_present(&self) -> bool {
        u128::from(self.age_ms) <= PRESENT_TIMEOUT.as_millis()
    }

    /// Returns whether the last report is older than 7 s. The listener has crashed, is stalled, or cannot reach the server.
    pub fn is_silent(&self) -> bool {
        u128::from(self.age_ms) > REPORT_OVERDUE_AFTER.as_millis()
    }

    /// Returns whether this listener has replaced the other one. It was started on the same machine, after the other's last
    /// report, and serves each topic that the other one served.
    #[doc(hidden)]
    pub fn replaces(&self, other: &Self) -> bool {
        // All times are of the server's clock, because the machine's clock may differ.
        let is_later = self.at_ms.saturating_sub(self.uptime_ms) >= other.at_ms;
        is_later
            && self.host == other.host
            && !self.is_silent()
            && other.topics.keys().all(|topic| self.serves(topic))
    }

    /// Returns when the listener was started, by the clock of its machine.
    pub fn since(&self) -> SystemTime {
        system_time(self.since_ms)
    }

    /// Returns a text for people: the number of timers that it holds, the maximum, and whether its handlers are stalled.
    pub fn capacity(&self) -> String {
        let stalled = if self.handlers_stalled_ms.is_some() { ", stalled" } else { "" };
        format!("{}/{}{stalled}", self.running, self.limit)
    }

    /// Returns whether the listener serves the topic with this name.
    pub fn serves(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// Encodes the report as it is sent.
    fn encode(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        if json.len() <= MAX_REPORT_BYTES {
            return json;
        }
        let shortened = |topic: fn(&TopicReport) -> TopicReport| {
            let topics = self.topics.iter().map(|(name, report)| (name.clone(), topic(report))).collect();
            serde_json::to_string(&Self { topics, ..self.clone() }).unwrap_or_default()
        };
        // Destinations that delay timers are left out last.
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

/// The result of saving a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// When the report was written, in ms, by the server's clock.
    pub at_ms: u64,
    /// The cursor at which the search for old reports has ended.
    pub looked: u64,
    /// When the listener's previous report was written, in ms, if Redis still had it.
    pub before_ms: Option<u64>,
}

impl Store {
    /// Publishes a request to the listeners of a topic to call a destination now. The request may get lost.
    pub async fn try_now(&self, at: &PartitionNames, destination: &str) -> Result<()> {
        let publish =
            keylapse_connection::cmd("SPUBLISH").arg(&at.wake).arg(format!("o{destination}")).take();
        self.send("asking for a call", at.wake.as_bytes(), &publish).await.map(drop)
    }

    /// Saves a report, or removes the last one. Also removes some old reports, beginning at the cursor `from`.
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

    /// Returns the reports of all present listeners.
    pub async fn listeners(&self, listeners: &str) -> Result<Vec<ListenerReport>> {
        let mut all = self.reports(listeners).await?;
        all.retain(ListenerReport::is_present);
        Ok(all)
    }

    /// Returns all reports that have not been removed.
    pub async fn reports(&self, listeners: &str) -> Result<Vec<ListenerReport>> {
        let (mut found, mut cursor) = (BTreeMap::new(), 0_u64);
        loop {
            let mut call = self.call_with(&scripts::LIST_REPORTS, &[listeners]);
            let mut reply = call.arg(cursor).arg(REPORTS_PER_PAGE).reply().await?;
            cursor = reply.int()?;
            let now = reply.stamp.ms();
            // Reports of other versions or programs may be unreadable, and are left out.
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
            // It ran at the same time as the other one.
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
