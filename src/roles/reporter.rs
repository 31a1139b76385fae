//! Writes a report of this listener to Redis every five seconds.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::error::Result;
use crate::escape::cut;
use crate::figures::Destination;
use crate::log::{LogThrottle, debug, error, warn};
use crate::panics::catch_panic;
use crate::runtime::{EventMode, NodeState, RunningTopic, Runtime};
use crate::stats::{RecentWindow, Totals};
use crate::time::{ms_ceil, unix_ms};
use crate::wire::{FORGOTTEN_MS, ListenerReport, NodeReport, Reported, TopicReport, listeners};

/// The interval of reports. Readers treat a listener as gone after three missing reports.
const LISTENER_REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Writes the reports of one listener.
pub(crate) struct Reporter {
    runtime: Arc<Runtime>,
    /// When the listener started, by this machine's clock.
    since: SystemTime,
    /// When the listener started, for its uptime.
    began: Instant,
    /// The cursor of the scan for outdated reports of other listeners, which each report continues.
    scan_cursor: u64,
    topics: Vec<RecentActivity>,
    data_loss: DataLossDetector,
    throttle: LogThrottle,
}

impl Reporter {
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        let topics = runtime.topics.iter().map(|_| RecentActivity::new()).collect();
        Self {
            runtime,
            since: SystemTime::now(),
            began: Instant::now(),
            scan_cursor: 0,
            topics,
            data_loss: DataLossDetector::default(),
            throttle: LogThrottle::default(),
        }
    }

    /// Writes reports until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            rounds.begin();
            match self.tick().await {
                Ok(()) => _ = self.throttle.is_over(),
                Err(error) if self.throttle.should_log(&error) => {
                    warn!(%error, "cannot write this listener's report; everything else works");
                }
                Err(error) => debug!(%error, "cannot write this listener's report"),
            }
            rounds.next(Instant::now() + LISTENER_REPORT_INTERVAL, LISTENER_REPORT_INTERVAL).await;
        }
    }

    /// Writes one report.
    pub(crate) async fn tick(&mut self) -> Result<()> {
        let Runtime { client, id, topics, .. } = &*self.runtime;
        let mut report = listener_report(&self.runtime, self.since, self.began.elapsed());
        for (topic, recently) in topics.iter().zip(&mut self.topics) {
            recently.log_trimmed(topic);
            if let Some(report) = report.topics.get_mut(&topic.config.name) {
                recently.add_to(topic, report);
            }
        }
        let reported =
            client.store.report(&listeners(&client.namespace), id, Some(&report), self.scan_cursor).await;
        let reported = reported.inspect_err(|_| self.data_loss.note_unanswered())?;
        self.scan_cursor = reported.looked;
        match self.data_loss.note_answer(reported) {
            None => {}
            Some(DataChange::Gone) => {
                warn!(
                    namespace = %client.namespace,
                    "the data of keylapse is gone: was the database emptied or exchanged (FLUSHDB, FLUSHALL, SWAPDB), or \
                     has an empty server taken over?"
                );
                self.register_again().await;
            }
            Some(DataChange::Back) => warn!(
                namespace = %client.namespace,
                "the earlier data of keylapse is back: timers that were armed in between are gone"
            ),
        }
        Ok(())
    }

    /// Registers the topics again after their data was lost. Producers may have recreated the partitions already, and then
    /// no other call detects that the topics' entries are missing.
    async fn register_again(&self) {
        for topic in &self.runtime.topics {
            if let Err(error) = self.runtime.register(topic).await {
                debug!(topic = %topic.config.name, %error, "cannot register the topic again");
            }
        }
    }
}

/// The recent activity of a topic.
#[derive(Debug)]
struct RecentActivity {
    last_5m: RecentWindow,
    last_1h: RecentWindow,
    /// The number of trimmed dead letters that were logged so far.
    trimmed: u64,
}

impl RecentActivity {
    fn new() -> Self {
        let span = |minutes: u64| RecentWindow::new(Duration::from_secs(60 * minutes));
        Self { last_5m: span(5), last_1h: span(60), trimmed: 0 }
    }

    /// Adds the counts of the last 5 minutes and of the last hour to a report.
    fn add_to(&mut self, topic: &RunningTopic, report: &mut TopicReport) {
        let stats = topic.stats.snapshot();
        let lateness = report.lateness.clone();
        let mut totals = Totals::default();
        (totals.handled, totals.failed, totals.lateness) = (stats.handled, stats.failed, lateness);
        report.last_5m = Some(self.last_5m.of(&totals));
        report.last_1h = Some(self.last_1h.of(&totals));
    }

    /// Logs the dead letters that were trimmed since the last report, in one line.
    fn log_trimmed(&mut self, topic: &RunningTopic) {
        let trimmed = topic.stats.trimmed.get();
        let count = trimmed - std::mem::replace(&mut self.trimmed, trimmed);
        if count > 0 {
            error!(
                topic = topic.config.name,
                count, "dead letters were trimmed, and are lost: more died than the topic keeps"
            );
        }
    }
}

/// Detects that Redis no longer has the data of the last report. Each report returns the time of the previous one.
#[derive(Debug, Default)]
struct DataLossDetector {
    /// When the last answered report was written, in ms by the server's clock.
    last: Option<u64>,
    /// True after a report without an answer, which may have been written.
    is_unsure: bool,
    /// True after a loss of the data, until the earlier data is back.
    is_gone: bool,
}

/// A change of the data that is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataChange {
    /// The data of the last report is gone.
    Gone,
    /// After a loss, data from before the loss has replaced the newer data.
    Back,
}

impl DataLossDetector {
    /// Notes a report without an answer.
    fn note_unanswered(&mut self) {
        self.is_unsure = true;
    }

    /// Notes the answer to a report. Returns the change of the data that it shows.
    fn note_answer(&mut self, reported: Reported) -> Option<DataChange> {
        let Reported { at_ms, before_ms, .. } = reported;
        let last = self.last.replace(at_ms)?;
        let was_unsure = std::mem::take(&mut self.is_unsure);
        match before_ms {
            // After `FORGOTTEN_MS` without a report, another listener may have deleted this listener's report.
            None if at_ms.abs_diff(last) < FORGOTTEN_MS => {
                self.is_gone = true;
                Some(DataChange::Gone)
            }
            // Without a loss before, an older report shows only that a failover has lost the last one.
            Some(before) if before != last && self.is_gone && !was_unsure => {
                self.is_gone = false;
                Some(DataChange::Back)
            }
            _ => None,
        }
    }
}

/// Deletes the report of a listener that stops.
pub(crate) async fn delete_report(runtime: &Runtime) {
    let Runtime { client, id, .. } = runtime;
    if let Err(error) = client.store.report(&listeners(&client.namespace), id, None, 0).await {
        debug!(%error, "cannot delete this listener's report: it stays until it is outdated");
    }
}

fn listener_report(runtime: &Runtime, since: SystemTime, uptime: Duration) -> ListenerReport {
    // Counts held timers rather than used slots: a claim takes slots for timers that it mostly does not find.
    let running = runtime.topics.iter().map(|topic| held_timers(runtime, topic)).sum();
    let (_, limit) = runtime.limiter.usage();
    let topics = runtime.topics.iter().map(|topic| (topic.config.name.clone(), topic_report(runtime, topic)));
    let mut report = ListenerReport::default();
    report.id = runtime.id.clone();
    report.host = host_name();
    report.pid = std::process::id();
    report.version = env!("CARGO_PKG_VERSION").to_owned();
    report.since_ms = unix_ms(since);
    report.uptime_ms = ms_ceil(uptime);
    report.running = running;
    report.limit = limit;
    report.handlers_stalled_ms = runtime.stall.elapsed().map(ms_ceil);
    report.nodes = runtime.nodes.all().iter().map(|node| node_report(node)).collect();
    report.topics = topics.collect();
    report
}

fn node_report(node: &NodeState) -> NodeReport {
    // The reader of attached keys has a more exact mode.
    let mode = match node.stream_snapshot().mode {
        EventMode::Starting => node.mode(),
        mode => mode,
    };
    let mut report = NodeReport::default();
    report.node = node.address().to_string();
    report.mode = mode.as_str().to_owned();
    report.gap = node.gap().map(|gap| gap.as_str().to_owned());
    report.gaps = node.gaps();
    report
}

/// Returns how many timers of a topic are held, from their claims until their ends are settled.
fn held_timers(runtime: &Runtime, topic: &RunningTopic) -> usize {
    runtime.partitions_of(topic).iter().map(|partition| partition.leases.count()).sum()
}

fn topic_report(runtime: &Runtime, topic: &RunningTopic) -> TopicReport {
    let mut report = TopicReport::default();
    report.running = held_timers(runtime, topic);
    report.limit = runtime.limiter.usage_of(topic.index).1;
    let counts = topic.stats.snapshot().iter().filter(|(_, count)| *count > 0);
    report.counts = counts.map(|(name, count)| (name.to_owned(), count)).collect();
    report.lateness = topic.meter.lateness.snapshot();
    report.handler = topic.meter.handler.snapshot();
    let called = topic.config.destinations.as_ref();
    let asked = called.and_then(|all| catch_panic(|| (all.states(), all.identity())).ok());
    let (destinations, identity) = asked.unwrap_or_default();
    report.destinations = Destination::reported(destinations);
    report.identity = identity.map(|text| cut(&text, 64).to_owned());
    report
}

#[cfg(target_os = "linux")]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn host_name() -> String {
    std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has the time of a report, and the time of the previous report that it found.
    #[test]
    fn a_report_that_comes_upon_another_one_or_none_shows_that_what_is_kept_is_another() {
        let mut kept = DataLossDetector::default();
        let mut reported = |at_ms, before_ms| kept.note_answer(Reported { at_ms, before_ms, looked: 0 });
        for (at_ms, before_ms, news) in [
            (1_000, None, None),
            (6_000, Some(1_000), None),
            (11_000, None, Some(DataChange::Gone)),
            (16_000, Some(11_000), None),
            (21_000, Some(6_000), Some(DataChange::Back)),
            (26_000, Some(21_000), None),
            // A failover has lost the last report. Then the report of a suspended listener was deleted.
            (31_000, Some(21_000), None),
            (31_000 + FORGOTTEN_MS, None, None),
            (36_000 + FORGOTTEN_MS, None, Some(DataChange::Gone)),
            (41_000 + FORGOTTEN_MS, None, Some(DataChange::Gone)),
        ] {
            assert_eq!(reported(at_ms, before_ms), news, "at {at_ms} ms");
        }
    }

    #[test]
    fn a_report_without_an_answer_may_be_the_one_that_the_next_comes_upon() {
        let mut kept = DataLossDetector { last: Some(1_000), is_gone: true, ..DataLossDetector::default() };
        kept.note_unanswered();
        assert_eq!(kept.note_answer(Reported { at_ms: 11_000, before_ms: Some(6_000), looked: 0 }), None);
        assert_eq!(
            kept.note_answer(Reported { at_ms: 16_000, before_ms: Some(1_000), looked: 0 }),
            Some(DataChange::Back)
        );
        kept.note_unanswered();
        assert_eq!(
            kept.note_answer(Reported { at_ms: 21_000, before_ms: None, looked: 0 }),
            Some(DataChange::Gone)
        );
    }
}
