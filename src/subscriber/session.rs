//! One subscribed connection, from its opening to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::canary;
use super::heard::{Ear, Heard};
use super::open::{Opened, open};
use crate::error::{Error, ErrorKind, Result};
use crate::store::keys::{Partition, canary as canary_name};
use crate::store::{Gap, Hint, RedisStore};
use crate::topology::classify;

/// A canary is due when none was heard for this long; one serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// Up to this much later, by chance: so that mostly one listener sends it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A canary that is not heard within this is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);
/// Dropped hints are reported once in this time: in a flood there is no end of
/// them, and each report costs a sweep.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Session {
    server: String,
    /// The counter of canaries.
    canary: String,
    connection: MultiplexedConnection,
    pushed: mpsc::Receiver<Heard>,
    dropped: Arc<AtomicU64>,
    dropped_before: u64,
    reported: Option<Instant>,
    /// Why the last canary was not made.
    refused: Option<Error>,
    wake_ups: bool,
    anchor: Anchor,
    next_canary: Instant,
}

/// What is known of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    /// No canary was heard yet.
    Never,
    Holds,
    /// One was heard, and then none.
    Lost,
}

type Release = Pin<Box<dyn Future<Output = RedisResult<()>> + Send>>;

impl Session {
    /// Connects and subscribes, within a deadline.
    pub(super) async fn open(store: &RedisStore, namespace: &str, partitions: &[Partition]) -> Result<Self> {
        let address = store.address();
        let Opened { connection, pushed, dropped, wake_ups } =
            open(address, Ear::new(namespace, address.db, partitions)).await?;
        Ok(Self {
            server: store.server(),
            canary: canary_name(namespace, 0),
            connection,
            pushed,
            dropped,
            dropped_before: 0,
            reported: None,
            refused: None,
            wake_ups,
            anchor: Anchor::Never,
            next_canary: Instant::now(),
        })
    }

    /// Passes on what is heard until the connection ends; whether the session
    /// ever was anchored.
    pub(super) async fn run(&mut self, hints: &mpsc::Sender<Hint>) -> Result<bool> {
        let mut release: Option<Release> = None;
        let mut missing_at: Option<Instant> = None;
        loop {
            let wake = missing_at.unwrap_or(self.next_canary);
            tokio::select! {
                heard = self.pushed.recv() => match heard {
                    Some(Heard::Canary(_)) => {
                        missing_at = None;
                        self.heard_canary(hints).await?;
                    }
                    Some(Heard::Hint(hint)) => pass(hints, hint).await?,
                    Some(Heard::Disconnected) | None => return Ok(self.anchor != Anchor::Never),
                },
                done = async { release.as_mut().expect("guarded").await }, if release.is_some() => {
                    release = None;
                    self.released(done)?;
                }
                () = tokio::time::sleep_until(wake) => match missing_at.take() {
                    Some(_) => self.missed_canary(hints).await?,
                    None => {
                        self.plan_canary();
                        missing_at = Some(Instant::now() + CANARY_WITHIN);
                        if release.is_none() {
                            release = Some(Box::pin(canary::release(self.canary.clone(), self.connection.clone())));
                        }
                    }
                },
            }
            self.report_dropped(hints).await?;
        }
    }

    fn plan_canary(&mut self) {
        self.next_canary = Instant::now() + CANARY_EVERY + CANARY_JITTER.mul_f64(rand::random());
    }

    async fn heard_canary(&mut self, hints: &mpsc::Sender<Hint>) -> Result<()> {
        self.plan_canary();
        if self.anchor != Anchor::Holds {
            info!(server = %self.server, "expired events flow");
            self.anchor = Anchor::Holds;
            pass(hints, Hint::Anchored).await?;
            if !self.wake_ups {
                pass(hints, Hint::Gap(Gap::NoWakeUps)).await?;
            }
        }
        Ok(())
    }

    async fn missed_canary(&mut self, hints: &mpsc::Sender<Hint>) -> Result<()> {
        let server = &self.server;
        // In a flood the canary is somewhere behind, or was dropped.
        let flooded = !self.pushed.is_empty() || self.dropped.load(Ordering::Relaxed) != self.dropped_before;
        match &self.refused {
            _ if flooded || self.anchor == Anchor::Lost => {}
            Some(error) => warn!(
                %server, %error,
                "no canary, so nothing tells whether expired events flow; sweeping every second"
            ),
            None => warn!(
                %server,
                "no expired events: is notify-keyspace-events set to at least Ex? Timers fire on time all the same"
            ),
        }
        self.anchor = Anchor::Lost;
        pass(hints, Hint::Gap(Gap::Silent)).await
    }

    /// A server that answers with an error may still heal; one that is a
    /// replica now, or does not answer, is left.
    fn released(&mut self, done: RedisResult<()>) -> Result<()> {
        self.refused = None;
        let Err(error) = done else { return Ok(()) };
        let reason = classify("making a canary", &error).at_key(self.canary.as_bytes());
        match error.code() {
            Some(code) if code != "READONLY" => {
                debug!(error = %reason, "canary refused");
                self.refused = Some(reason);
                Ok(())
            }
            _ => Err(reason),
        }
    }

    async fn report_dropped(&mut self, hints: &mpsc::Sender<Hint>) -> Result<()> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let lately = self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        if dropped == self.dropped_before || lately {
            return Ok(()); // the next canary comes by here in time
        }
        self.reported = Some(Instant::now());
        warn!(
            count = dropped - self.dropped_before,
            "hints dropped: more expired events than can be looked at"
        );
        self.dropped_before = dropped;
        pass(hints, Hint::Gap(Gap::Overflow)).await
    }
}

async fn pass(hints: &mpsc::Sender<Hint>, hint: Hint) -> Result<()> {
    let gone = |_| Error::new(ErrorKind::Unreachable, "nobody listens");
    hints.send(hint).await.map_err(gone)
}
