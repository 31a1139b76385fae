//! Finds keys by scanning. One listener of a topic does it, and enrols what it hears written.
//!
//! A scan looks at so many keys a second, of everybody. There is one at the start, after each gap, and a
//! while after the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::attached::request::{Read, Request};
use crate::connection::RetryDelays;
use crate::error::Result;
use crate::id::SlotId;
use crate::limits::MAX_KEY;
use crate::log::{debug, info};
use crate::policy::Capture;
use crate::runtime::{EventMode, Known, RunningTopic, Runtime};
use crate::time::ms_ceil;

/// For how long a scanner is one, without saying so again.
const HOLD: Duration = Duration::from_secs(6);
/// How often it says so, and others ask.
const RENEW: Duration = Duration::from_secs(2);
/// Keys that a step of a scan looks at, at most.
const STEP: u32 = 500;
/// Whether events flow is known within this time after the start, mostly.
const KNOWN: Duration = Duration::from_secs(1);
/// How long the answer to a read may take before the page is read again.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The scanner of one topic, or one who waits to be.
pub(crate) struct Scanner {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) topic: Arc<RunningTopic>,
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) slot: SlotId,
}

impl Scanner {
    /// Until it is dropped.
    pub(crate) async fn run(self) {
        loop {
            // Whoever hears nothing leaves it to others, if there are any.
            let patient = !self.runtime.stream_state.known().anchored;
            if self.hold(patient).await.unwrap_or(false) {
                self.topic.scanning.store(true, Ordering::Relaxed);
                debug!(topic = %self.topic.config.name, "this listener scans for keys now");
                tokio::select! {
                    () = self.renew() => {}
                    () = self.scan_over_and_over() => {}
                }
                self.topic.scanning.store(false, Ordering::Relaxed);
            }
            tokio::time::sleep(RENEW.mul_f64(rand::random_range(0.75..1.0))).await;
        }
    }

    /// Becomes the scanner or stays it, if that is possible.
    async fn hold(&self, patient: bool) -> Result<bool> {
        let first = &self.runtime.partitions_of(&self.topic)[0];
        first.store.hold_scanner(&first.names, self.slot, ms_ceil(HOLD), patient).await
    }

    /// Until it is somebody else's.
    async fn renew(&self) {
        let mut since = Instant::now();
        while since.elapsed() < HOLD {
            tokio::time::sleep(RENEW).await;
            let asked = Instant::now();
            match self.hold(false).await {
                Ok(true) => since = asked,
                Ok(false) => return,
                Err(error) => debug!(%error, "cannot renew that this listener scans for keys"),
            }
        }
    }

    async fn scan_over_and_over(&self) {
        let mut known = self.runtime.stream_state.subscribe();
        // What is scanned before the first canary was heard would have to be scanned again, unless that is
        // missing.
        let is_known = |known: &Known| known.gaps > 0 || known.mode == EventMode::Blind;
        let _ = timeout(KNOWN, known.wait_for(is_known)).await;
        let mut waits = RetryDelays::default();
        loop {
            let gaps = known.borrow().gaps;
            let pause = match self.scan().await {
                Ok(()) => self.topic.policy().scan_every,
                Err(error) => {
                    debug!(topic = %self.topic.config.name, %error, "scan not finished");
                    waits.next()
                }
            };
            let _ = timeout(pause, known.wait_for(|known| known.gaps != gaps)).await;
        }
    }

    /// Looks at each key of the database once.
    async fn scan(&self) -> Result<()> {
        let (rate, began) = (self.topic.policy().scan_rate, Instant::now());
        let step = (rate / 20).clamp(1, STEP);
        let every = Duration::from_secs(1).mul_f64(f64::from(step) / f64::from(rate));
        let (stats, prefix) = (&self.topic.attached, self.topic.config.pattern.literal_prefix());
        let (mut cursor, mut found, mut steps) = (0, 0, 0_u64);
        loop {
            let due = Instant::now() + every;
            let (next, keys) = self.runtime.client.store.scan(cursor, prefix, step as usize).await?;
            stats.scan_steps.add(1);
            steps += 1;
            found += keys.len();
            self.read(keys).await;
            if next == 0 {
                break;
            }
            cursor = next;
            tokio::time::sleep_until(due).await;
        }
        stats.scans.add(1);
        info!(
            topic = %self.topic.config.name, keys = found, steps, took_ms = began.elapsed().as_millis() as u64,
            "scanned for keys"
        );
        Ok(())
    }

    /// Has the keys read that match the topic, and waits for it: so a scan is never ahead of the server, and
    /// goes on where it was when there is a connection again.
    async fn read(&self, keys: Vec<Bytes>) {
        let mut by_partition: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
        // The expiry of a longer key is not heard: it could be enrolled, and not be handled.
        for key in keys.into_iter().filter(|key| key.len() <= MAX_KEY) {
            // Another topic may have a better claim to it.
            let ours = |at: &usize| self.runtime.partitions[*at].topic.index == self.topic.index;
            if let Some(at) = self.runtime.route(&key).filter(ours) {
                by_partition.entry(at).or_default().push(key);
            }
        }
        for (at, keys) in by_partition {
            let mut waits = RetryDelays::default();
            while !self.read_page(at, keys.clone()).await {
                tokio::time::sleep(waits.next()).await;
            }
        }
    }

    async fn read_page(&self, partition: usize, keys: Vec<Bytes>) -> bool {
        let (done, read) = oneshot::channel();
        let page = Read { done: Some(done), ..Read::of(partition, keys, Capture::default()) };
        let _ = self.requests.send(Request::Read(page)).await;
        matches!(timeout(READ_WITHIN, read).await, Ok(Ok(())))
    }
}
