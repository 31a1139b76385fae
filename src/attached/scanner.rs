//! Finds keys by scanning. One scan of a server serves all topics for which this listener scans.
//!
//! A scan reads the whole database, at a limited number of keys per second. It runs at the start, after each gap, and
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

/// Most listeners have received a heartbeat within this time after the start.
const KNOWN: Duration = Duration::from_secs(1);
/// How long reading the keys of a step may take for one topic. After that the scan continues for other topics.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// Maximum number of scans in a row that are skipped while events report all changes.
const MAX_SKIPPED_SCANS: u32 = 15;

/// Scans a server for the topics of a listener.
pub(crate) struct Scanner {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    server: Server,
    requests: mpsc::Sender<ReaderRequest>,
    /// The indices of the topics that this listener scans for.
    ours: watch::Receiver<BTreeSet<usize>>,
    turns: Vec<(Arc<RunningTopic>, ScanSchedule)>,
}

impl Scanner {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        node: Arc<NodeState>,
        server: Server,
        requests: mpsc::Sender<ReaderRequest>,
        ours: watch::Receiver<BTreeSet<usize>>,
    ) -> Self {
        let turn = |topic: &Arc<RunningTopic>| (topic.clone(), ScanSchedule::new(topic.policy().scan_every));
        let turns = runtime.attached_topics().map(turn).collect();
        Self { runtime, node, server, requests, ours, turns }
    }

    /// Scans until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut known = self.node.subscribe();
        // Keys that are scanned before the first heartbeat would have to be scanned again after it.
        let is_known = |known: &StreamSnapshot| known.gaps > 0 || known.mode.receives_nothing();
        let _ = timeout(KNOWN, known.wait_for(is_known)).await;
        loop {
            let now = *known.borrow_and_update();
            let served = self.due(now);
            if served.is_empty() {
                let next = self.turns.iter().filter_map(|(_, turn)| turn.next).min();
                tokio::select! {
                    Ok(()) = self.ours.changed() => {}
                    Ok(()) = known.changed() => {}
                    () = until_due(next) => {}
                }
            } else {
                self.scan_for(served).await;
            }
        }
    }

    /// Returns the topics that a scan would serve now. Returns none if no topic is due.
    fn due(&mut self, known: StreamSnapshot) -> BTreeSet<usize> {
        let ours = self.ours.borrow_and_update().clone();
        let mut due = BTreeSet::new();
        for (topic, turn) in &mut self.turns {
            turn.is_ours(ours.contains(&topic.index));
            if turn.is_due(known, ScanProgress::of(&topic.attached)) {
                due.insert(topic.index);
            }
        }
        let joins = |(topic, turn): &(Arc<RunningTopic>, ScanSchedule)| turn.joins().then_some(topic.index);
        if !due.is_empty() {
            due.extend(self.turns.iter().filter_map(joins));
        }
        due
    }

    /// Scans for these topics, and schedules their next scans.
    async fn scan_for(&mut self, served: BTreeSet<usize>) {
        let known = self.node.known();
        let turns = self.turns.iter_mut().filter(|(topic, _)| served.contains(&topic.index));
        turns.for_each(|(topic, turn)| turn.begins(known, ScanProgress::of(&topic.attached)));
        let scanned = self.scan(served.clone()).await;
        let known = self.node.known();
        for (topic, turn) in self.turns.iter_mut().filter(|(topic, _)| served.contains(&topic.index)) {
            match &scanned {
                Ok(to_the_end) if to_the_end.contains(&topic.index) => {
                    topic.attached.scans.add(1);
                    turn.ends(known, ScanProgress::of(&topic.attached));
                }
                Ok(_) => turn.on_no_progress(),
                Err(error) => {
                    refused(topic, error);
                    debug!(topic = %topic.config.name, %error, "scan for attached keys interrupted");
                    turn.on_interrupted();
                }
            }
        }
    }

    /// Scans the database once. Returns the topics that were served to the end.
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
            found += self.read(keys, &mut served).await;
            served.retain(|index| self.ours.borrow().contains(index));
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

    /// Reads the keys that match the topics, and waits for the results. Therefore a scan is never ahead of the server,
    /// and resumes where it was after a reconnect. Returns the number of matching keys.
    async fn read(&self, keys: Vec<Bytes>, served: &mut BTreeSet<usize>) -> usize {
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
            if served.contains(&topic) && !self.read_page(at, keys).await {
                served.remove(&topic);
            }
        }
        found
    }

    fn topic_of(&self, partition: usize) -> &RunningTopic {
        &self.runtime.partitions[partition].topic
    }

    /// Returns whether the keys were read and the results written in time. In a gap it retries until the gap has ended.
    async fn read_page(&self, partition: usize, keys: Vec<Bytes>) -> bool {
        let mut waits = RetryDelays::default();
        loop {
            let (done, read) = oneshot::channel();
            let page = TrackRequest {
                done: Some(done),
                ..TrackRequest::of(partition, keys.clone(), CopySpec::default())
            };
            let _ = self.requests.send(ReaderRequest::Read(page)).await;
            match timeout(READ_WITHIN, read).await {
                Ok(Ok(())) => return true,
                Ok(Err(_)) => tokio::time::sleep(waits.next()).await,
                Err(_) => return false,
            }
        }
    }
}

/// Handles the error of a scan. A missing permission is logged once, until it is granted.
fn refused(topic: &RunningTopic, error: &Error) {
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
    left_out: u32,
    /// The number of scans that may be skipped.
    may_be: u32,
    /// The counters when the last scan began or ended.
    signs: ScanProgress,
    retries: RetryDelays,
}

/// Counters that show whether a scan has found anything, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScanProgress {
    enrolled: u64,
    /// Keys that could not be tracked.
    failed: u64,
}

impl ScanProgress {
    fn of(counters: &AttachCounters) -> Self {
        Self {
            enrolled: counters.tracked.get(),
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
            left_out: 0,
            may_be: 0,
            signs: ScanProgress::default(),
            retries: RetryDelays::default(),
        }
    }

    /// Updates the schedule: true if this listener scans for the topic.
    fn is_ours(&mut self, ours: bool) {
        match (ours, self.next) {
            (true, Some(_)) => {}
            (true, None) => (self.next, self.may_be) = (Some(Instant::now()), 0),
            (false, _) => self.next = None,
        }
    }

    /// Returns whether a scan is due: always after a gap. A scan is skipped if the last ones found nothing new, events
    /// have reported all changes since, and all changed keys were tracked.
    fn is_due(&mut self, known: StreamSnapshot, signs: ScanProgress) -> bool {
        let Some(next) = self.next else { return false };
        if known.gaps != self.gaps {
            return true;
        }
        if Instant::now() < next {
            return false;
        }
        let calm = known.mode == EventMode::Changes && signs.failed == self.signs.failed;
        let leaves_out = calm && self.left_out < self.may_be;
        if leaves_out {
            self.left_out += 1;
            self.next = Some(Instant::now() + self.every);
        }
        !leaves_out
    }

    /// Returns whether the topic joins a scan that begins for another: when half of its own pause is over.
    fn joins(&self) -> bool {
        let near = |next| Instant::now() + self.every / 2 >= next;
        self.next.is_some_and(near) && self.left_out >= self.may_be
    }

    fn begins(&mut self, known: StreamSnapshot, signs: ScanProgress) {
        (self.gaps, self.signs, self.left_out) = (known.gaps, signs, 0);
    }

    /// Schedules the next scan after one that has served the topic to the end.
    fn ends(&mut self, known: StreamSnapshot, signs: ScanProgress) {
        let fruitless = known.mode == EventMode::Changes && signs == self.signs;
        self.may_be = if fruitless { (2 * self.may_be + 1).min(MAX_SKIPPED_SCANS) } else { 0 };
        self.signs = signs;
        self.retries = RetryDelays::default();
        self.wait(self.every);
    }

    /// Schedules the next scan after one that failed.
    fn on_interrupted(&mut self) {
        let wait = self.retries.next();
        self.wait(wait);
        self.may_be = 0;
    }

    /// Schedules the next scan after one that read the topic's keys too slowly.
    fn on_no_progress(&mut self) {
        self.wait(self.every);
        self.may_be = 0;
    }

    fn wait(&mut self, pause: Duration) {
        self.next = self.next.and(Some(Instant::now() + pause));
    }
}

#[cfg(test)]
mod tests;
