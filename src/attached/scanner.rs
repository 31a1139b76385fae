//! Finds keys by scanning: one scan of a server for all the topics that this listener scans for.
//!
//! A scan looks at so many keys a second, of everybody. There is one at the start, after each gap, and a
//! while after the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::attached::request::{Read, Request};
use crate::connection::{RetryDelays, Server};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::glob_of_any;
use crate::limits::MAX_KEY;
use crate::log::{debug, info, warn};
use crate::policy::{Capture, scan_pace};
use crate::rounds::until_due;
use crate::runtime::{Asked, EventMode, Known, NodeState, RunningTopic, Runtime};
use crate::stats::AttachCounters;

/// Whether events flow is known within this time after the start, mostly.
const KNOWN: Duration = Duration::from_secs(1);
/// How long the answer to a read may take. After that the scan goes on for other topics.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// So many scans in a row are left out at most, where all that is written is heard.
const LEFT_OUT: u32 = 15;

/// Scans a server for the topics of a listener.
pub(crate) struct Scanner {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    server: Server,
    requests: mpsc::Sender<Request>,
    /// The indices of the topics that it is to scan for.
    ours: watch::Receiver<BTreeSet<usize>>,
    turns: Vec<(Arc<RunningTopic>, Turn)>,
}

impl Scanner {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        node: Arc<NodeState>,
        server: Server,
        requests: mpsc::Sender<Request>,
        ours: watch::Receiver<BTreeSet<usize>>,
    ) -> Self {
        let turn = |topic: &Arc<RunningTopic>| (topic.clone(), Turn::new(topic.policy().scan_every));
        let turns = runtime.attached_topics().map(turn).collect();
        Self { runtime, node, server, requests, ours, turns }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut known = self.node.subscribe();
        // What is scanned before the first canary was heard would have to be scanned again, unless that is
        // missing.
        let is_known = |known: &Known| known.gaps > 0 || known.mode.hears_nothing();
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

    /// The topics that the next scan serves, if it is to begin now.
    fn due(&mut self, known: Known) -> BTreeSet<usize> {
        let ours = self.ours.borrow_and_update().clone();
        let mut due = BTreeSet::new();
        for (topic, turn) in &mut self.turns {
            turn.is_ours(ours.contains(&topic.index));
            if turn.is_due(known, Signs::of(&topic.attached)) {
                due.insert(topic.index);
            }
        }
        let joins = |(topic, turn): &(Arc<RunningTopic>, Turn)| turn.joins().then_some(topic.index);
        if !due.is_empty() {
            due.extend(self.turns.iter().filter_map(joins));
        }
        due
    }

    /// Scans for these topics, and sees to their next turns.
    async fn scan_for(&mut self, served: BTreeSet<usize>) {
        let known = self.node.known();
        let turns = self.turns.iter_mut().filter(|(topic, _)| served.contains(&topic.index));
        turns.for_each(|(topic, turn)| turn.begins(known, Signs::of(&topic.attached)));
        let scanned = self.scan(served.clone()).await;
        let known = self.node.known();
        for (topic, turn) in self.turns.iter_mut().filter(|(topic, _)| served.contains(&topic.index)) {
            match &scanned {
                Ok(to_the_end) if to_the_end.contains(&topic.index) => {
                    topic.attached.scans.add(1);
                    turn.ends(known, Signs::of(&topic.attached));
                }
                Ok(_) => turn.is_stuck(),
                Err(error) => {
                    refused(topic, error);
                    debug!(topic = %topic.config.name, %error, "scan not finished");
                    turn.breaks_off();
                }
            }
        }
    }

    /// Looks at each key of the database once. The topics that it has served to the end.
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
                topic.refusals.end(Asked::Scan);
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
        info!(?topics, server = ?self.node, keys = found, steps, took_ms, "scanned for keys");
        Ok(served)
    }

    /// Has the keys read that match the topics, and waits for it: so a scan is never ahead of the server, and goes on
    /// where it was when there is a connection again. How many these were.
    async fn read(&self, keys: Vec<Bytes>, served: &mut BTreeSet<usize>) -> usize {
        let (mut by_partition, mut found) = (BTreeMap::<_, Vec<_>>::new(), 0);
        for key in keys {
            // A topic that is not served may have a better claim to it.
            let Some(at) = self.runtime.route(&key).filter(|at| served.contains(&self.topic_of(*at).index))
            else {
                continue;
            };
            // The expiry of a longer key is not heard: it could be enrolled, and not be handled.
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

    /// Whether it was read and written down in time. In a gap nothing is, and the time has not begun.
    async fn read_page(&self, partition: usize, keys: Vec<Bytes>) -> bool {
        let mut waits = RetryDelays::default();
        loop {
            let (done, read) = oneshot::channel();
            let page = Read { done: Some(done), ..Read::of(partition, keys.clone(), Capture::default()) };
            let _ = self.requests.send(Request::Read(page)).await;
            match timeout(READ_WITHIN, read).await {
                Ok(Ok(())) => return true,
                Ok(Err(_)) => tokio::time::sleep(waits.next()).await,
                Err(_) => return false,
            }
        }
    }
}

/// A scan has failed: a right may be missing. That is said once, until it is not.
fn refused(topic: &RunningTopic, error: &Error) {
    if error.kind() != ErrorKind::Permission {
        return;
    }
    topic.attached.refused_scans.add(1);
    if topic.refusals.begin(Asked::Scan, &format!("{error}; the rule is +scan")) {
        warn!(topic = %topic.config.name, rule = "+scan", %error, "the database cannot be scanned for attached keys: a right is missing");
    }
}

/// When a topic is scanned for.
#[derive(Debug)]
struct Turn {
    every: Duration,
    /// When a scan may begin; none: while others scan for the topic.
    next: Option<Instant>,
    /// Gaps that were over when the last scan began.
    gaps: u64,
    /// Scans that were left out since the last one, and how many may be.
    left_out: u32,
    may_be: u32,
    /// What the last scan has ended with.
    signs: Signs,
    retries: RetryDelays,
}

/// What tells whether a scan has found anything, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signs {
    enrolled: u64,
    /// Keys that were heard or found, and could not be enrolled.
    failed: u64,
}

impl Signs {
    fn of(counters: &AttachCounters) -> Self {
        Self {
            enrolled: counters.enrolled.get(),
            failed: counters.no_room.get() + counters.write_errors.get(),
        }
    }
}

impl Turn {
    fn new(every: Duration) -> Self {
        Self {
            every,
            next: None,
            gaps: 0,
            left_out: 0,
            may_be: 0,
            signs: Signs::default(),
            retries: RetryDelays::default(),
        }
    }

    /// Whether it is this listener that scans for it.
    fn is_ours(&mut self, ours: bool) {
        match (ours, self.next) {
            (true, Some(_)) => {}
            (true, None) => (self.next, self.may_be) = (Some(Instant::now()), 0),
            (false, _) => self.next = None,
        }
    }

    /// Whether it is due: always after a gap. A scan is left out where the last ones have found nothing new, all that
    /// is written was heard since, and all that was heard could be enrolled.
    fn is_due(&mut self, known: Known, signs: Signs) -> bool {
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

    /// Whether it is served by a scan that begins for another: when half of its own pause is over.
    fn joins(&self) -> bool {
        let near = |next| Instant::now() + self.every / 2 >= next;
        self.next.is_some_and(near) && self.left_out >= self.may_be
    }

    /// A scan begins.
    fn begins(&mut self, known: Known, signs: Signs) {
        (self.gaps, self.signs, self.left_out) = (known.gaps, signs, 0);
    }

    /// It was served, to the end.
    fn ends(&mut self, known: Known, signs: Signs) {
        let fruitless = known.mode == EventMode::Changes && signs == self.signs;
        self.may_be = if fruitless { (2 * self.may_be + 1).min(LEFT_OUT) } else { 0 };
        self.signs = signs;
        self.retries = RetryDelays::default();
        self.wait(self.every);
    }

    /// The scan could not go on.
    fn breaks_off(&mut self) {
        let wait = self.retries.next();
        self.wait(wait);
        self.may_be = 0;
    }

    /// Its keys could not be written down for too long.
    fn is_stuck(&mut self) {
        self.wait(self.every);
        self.may_be = 0;
    }

    fn wait(&mut self, pause: Duration) {
        self.next = self.next.and(Some(Instant::now() + pause));
    }
}

#[cfg(test)]
mod tests;
