//! Finds keys by scanning. One scan of a server serves all topics for which this listener scans (see `duties`).
//!
//! A scan visits the whole database, at a limited number of keys per second. It runs at the start, after each gap, and
//! again after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::attached::request::{ReaderRequest, TrackRequest};
use crate::connection::{RetryDelays, Server};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::glob_of_any;
use crate::limits::MAX_KEY;
use crate::log::{debug, info, warn};
use crate::policy::{CopySpec, scan_pace};
use crate::rounds::until_due;
use crate::runtime::{EventMode, NodeState, RequiredPermission, RunningTopic, Runtime, StreamSnapshot};
use crate::stats::AttachCounters;

/// How long the first scan waits for the first heartbeat.
const FIRST_CANARY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may take to track the keys of one partition in a step. After that the scan continues for other topics.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of scans in a row that are skipped while events report all changes.
const MAX_SKIPPED_SCANS: u32 = 15;

/// Scans a server for the topics of a listener.
pub(crate) struct Scanner {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    server: Server,
    requests: mpsc::Sender<ReaderRequest>,
    /// The indices of the topics that this listener scans for.
    scanned_topics: watch::Receiver<BTreeSet<usize>>,
    schedules: Vec<(Arc<RunningTopic>, ScanSchedule)>,
}

impl Scanner {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        node: Arc<NodeState>,
        server: Server,
        requests: mpsc::Sender<ReaderRequest>,
        scanned_topics: watch::Receiver<BTreeSet<usize>>,
    ) -> Self {
        let schedule =
            |topic: &Arc<RunningTopic>| (topic.clone(), ScanSchedule::new(topic.policy().scan_every));
        let schedules = runtime.attached_topics().map(schedule).collect();
        Self { runtime, node, server, requests, scanned_topics, schedules }
    }

    /// Scans until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut known = self.node.subscribe_stream();
        // Keys that are scanned before the first heartbeat would have to be scanned again after it.
        let is_known = |known: &StreamSnapshot| known.gaps > 0 || known.mode.receives_nothing();
        let _ = timeout(FIRST_CANARY_TIMEOUT, known.wait_for(is_known)).await;
        loop {
            let now = *known.borrow_and_update();
            let served = self.due_topics(now);
            if served.is_empty() {
                let next = self.schedules.iter().filter_map(|(_, schedule)| schedule.next).min();
                tokio::select! {
                    Ok(()) = self.scanned_topics.changed() => {}
                    Ok(()) = known.changed() => {}
                    () = until_due(next) => {}
                }
            } else {
                self.scan_for(served).await;
            }
        }
    }

    /// Updates the schedules, and returns the topics that a scan serves now. Returns none if no topic is due.
    fn due_topics(&mut self, known: StreamSnapshot) -> BTreeSet<usize> {
        let scanned_topics = self.scanned_topics.borrow_and_update().clone();
        let mut due = BTreeSet::new();
        for (topic, schedule) in &mut self.schedules {
            schedule.set_scans(scanned_topics.contains(&topic.index));
            if schedule.is_due_or_skip(known, ScanProgress::of(&topic.attached)) {
                due.insert(topic.index);
            }
        }
        let joins = |(topic, schedule): &(Arc<RunningTopic>, ScanSchedule)| {
            schedule.may_join().then_some(topic.index)
        };
        if !due.is_empty() {
            due.extend(self.schedules.iter().filter_map(joins));
        }
        due
    }

    /// Scans once for these topics, and schedules their next scans.
    async fn scan_for(&mut self, served: BTreeSet<usize>) {
        let known = self.node.stream_snapshot();
        let schedules = self.schedules.iter_mut().filter(|(topic, _)| served.contains(&topic.index));
        schedules.for_each(|(topic, schedule)| schedule.on_started(known, ScanProgress::of(&topic.attached)));
        let scanned = self.scan(served.clone()).await;
        let known = self.node.stream_snapshot();
        for (topic, schedule) in self.schedules.iter_mut().filter(|(topic, _)| served.contains(&topic.index))
        {
            match &scanned {
                Ok(finished) if finished.contains(&topic.index) => {
                    topic.attached.scans.add(1);
                    schedule.on_finished(known, ScanProgress::of(&topic.attached));
                }
                Ok(_) => schedule.on_too_slow(),
                Err(error) => {
                    record_refusal(topic, error);
                    debug!(topic = %topic.config.name, %error, "scan for attached keys interrupted");
                    schedule.on_interrupted();
                }
            }
        }
    }

    /// Scans the database once for these topics. Returns those that were served to the end.
    async fn scan(&self, mut served: BTreeSet<usize>) -> Result<BTreeSet<usize>> {
        let topics: Vec<_> = served.iter().map(|index| self.runtime.topics[*index].clone()).collect();
        let prefixes: Vec<_> = topics.iter().map(|topic| topic.config.pattern.literal_prefix()).collect();
        let pattern = glob_of_any(&prefixes);
        let rate = topics.iter().map(|topic| topic.policy().scan_rate).min().unwrap_or(1);
        let (step, every) = scan_pace(rate);
        let (mut cursor, mut found, mut steps, began) = (0, 0, 0_u64, Instant::now());
        loop {
            let due = Instant::now() + every;
            let (next, keys) =
                self.runtime.client.store.scan(&self.server, cursor, &pattern, step as usize).await?;
            for topic in &topics {
                topic.attached.scan_steps.add(1);
                topic.refusals.end(RequiredPermission::Scan);
            }
            steps += 1;
            found += self.track_scanned(keys, &mut served).await;
            served.retain(|index| self.scanned_topics.borrow().contains(index));
            if next == 0 || served.is_empty() {
                break;
            }
            cursor = next;
            sleep_until(due).await;
        }
        let took_ms = began.elapsed().as_millis() as u64;
        info!(?topics, server = ?self.node, keys = found, steps, took_ms, "scan for attached keys finished");
        Ok(served)
    }

    /// Requests the tracking of the keys that match the topics, and waits until it is written. Therefore a scan is never
    /// ahead of the server, and resumes where it was after a reconnect. Removes topics from `served` whose keys take too
    /// long. Returns the number of matching keys.
    async fn track_scanned(&self, keys: Vec<Bytes>, served: &mut BTreeSet<usize>) -> usize {
        let (mut by_partition, mut found) = (BTreeMap::<_, Vec<_>>::new(), 0);
        for key in keys {
            // The key may belong to a topic with a more specific pattern, which this scan does not serve.
            let Some(at) = self.runtime.route(&key).filter(|at| served.contains(&self.topic_of(*at).index))
            else {
                continue;
            };
            // Expiries of longer keys are not received, so a longer key could be tracked, but not handled.
            if key.len() > MAX_KEY {
                self.topic_of(at).attached.too_long.add(1);
                continue;
            }
            found += 1;
            by_partition.entry(at).or_default().push(key);
        }
        for (at, keys) in by_partition {
            let topic = self.topic_of(at).index;
            if served.contains(&topic) && !self.track_page(at, keys).await {
                served.remove(&topic);
            }
        }
        found
    }

    fn topic_of(&self, partition: usize) -> &RunningTopic {
        &self.runtime.partitions[partition].topic
    }

    /// Requests the tracking of keys. Returns whether it was written in time. In a gap it retries until the gap has ended.
    async fn track_page(&self, partition: usize, keys: Vec<Bytes>) -> bool {
        let mut waits = RetryDelays::default();
        loop {
            let (done, read) = oneshot::channel();
            let page = TrackRequest {
                done: Some(done),
                ..TrackRequest::of(partition, keys.clone(), CopySpec::default())
            };
            let _ = self.requests.send(ReaderRequest::Track(page)).await;
            match timeout(READ_TIMEOUT, read).await {
                Ok(Ok(())) => return true,
                Ok(Err(_)) => tokio::time::sleep(waits.next()).await,
                Err(_) => return false,
            }
        }
    }
}

/// Counts and logs a missing permission, once until it is granted. Ignores other errors.
fn record_refusal(topic: &RunningTopic, error: &Error) {
    if error.kind() != ErrorKind::Permission {
        return;
    }
    topic.attached.refused_scans.add(1);
    if topic.refusals.begin(RequiredPermission::Scan, &format!("{error}; the rule is +scan")) {
        warn!(topic = %topic.config.name, rule = "+scan", %error, "the database cannot be scanned for attached keys: the user lacks a permission");
    }
}

/// The schedule of scans for one topic.
#[derive(Debug)]
struct ScanSchedule {
    every: Duration,
    /// When a scan may begin. None while another listener scans for the topic.
    next: Option<Instant>,
    /// The number of past gaps when the last scan began.
    gaps: u64,
    /// The number of scans that were skipped since the last one.
    skipped: u32,
    /// The number of scans that may be skipped before the next one.
    may_skip: u32,
    /// The counters when the last scan began or ended.
    progress: ScanProgress,
    retries: RetryDelays,
}

/// Counters that show whether a scan has found new keys, or would find some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScanProgress {
    tracked: u64,
    /// Keys that could not be tracked.
    failed: u64,
}

impl ScanProgress {
    fn of(counters: &AttachCounters) -> Self {
        Self {
            tracked: counters.tracked.get(),
            failed: counters.over_limit.get() + counters.write_errors.get(),
        }
    }
}

impl ScanSchedule {
    fn new(every: Duration) -> Self {
        Self {
            every,
            next: None,
            gaps: 0,
            skipped: 0,
            may_skip: 0,
            progress: ScanProgress::default(),
            retries: RetryDelays::default(),
        }
    }

    /// Sets whether this listener scans for the topic. If it starts to, a scan is due.
    fn set_scans(&mut self, scans: bool) {
        match (scans, self.next) {
            (true, Some(_)) => {}
            (true, None) => (self.next, self.may_skip) = (Some(Instant::now()), 0),
            (false, _) => self.next = None,
        }
    }

    /// Returns whether a scan is due: always after a gap, otherwise after the pause. Skips it, and starts another pause, if
    /// the last scans found nothing new, events have reported all changes since, and all changed keys were tracked.
    fn is_due_or_skip(&mut self, known: StreamSnapshot, progress: ScanProgress) -> bool {
        let Some(next) = self.next else { return false };
        if known.gaps != self.gaps {
            return true;
        }
        if Instant::now() < next {
            return false;
        }
        let calm = known.mode == EventMode::Changes && progress.failed == self.progress.failed;
        let skips = calm && self.skipped < self.may_skip;
        if skips {
            self.skipped += 1;
            self.next = Some(Instant::now() + self.every);
        }
        !skips
    }

    /// Returns whether a scan that starts for another topic serves this one, too: when half of its own pause is over.
    fn may_join(&self) -> bool {
        let near = |next| Instant::now() + self.every / 2 >= next;
        self.next.is_some_and(near) && self.skipped >= self.may_skip
    }

    fn on_started(&mut self, known: StreamSnapshot, progress: ScanProgress) {
        (self.gaps, self.progress, self.skipped) = (known.gaps, progress, 0);
    }

    /// Schedules the next scan after one that has served the topic to the end.
    fn on_finished(&mut self, known: StreamSnapshot, progress: ScanProgress) {
        let fruitless = known.mode == EventMode::Changes && progress == self.progress;
        self.may_skip = if fruitless { (2 * self.may_skip + 1).min(MAX_SKIPPED_SCANS) } else { 0 };
        self.progress = progress;
        self.retries = RetryDelays::default();
        self.schedule_after(self.every);
    }

    /// Schedules the next scan after one that failed.
    fn on_interrupted(&mut self) {
        let wait = self.retries.next();
        self.schedule_after(wait);
        self.may_skip = 0;
    }

    /// Schedules the next scan after one that read the topic's keys too slowly.
    fn on_too_slow(&mut self) {
        self.schedule_after(self.every);
        self.may_skip = 0;
    }

    fn schedule_after(&mut self, pause: Duration) {
        self.next = self.next.and(Some(Instant::now() + pause));
    }
}

#[cfg(test)]
mod tests;
