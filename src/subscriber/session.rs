//! One subscribed connection, from its opening to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, RedisResult, cmd};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::canary;
use super::heard::{Ear, Heard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::keys::Partition;
use crate::store::{Gap, Hint, RedisStore};
use crate::topology::classify;

/// Messages that may wait between the socket and the session. The closure that
/// fills the queue runs in the connection's driver and must not block.
const PUSHED: usize = 8192;
/// Everything before the first canary has to be done within this.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// A canary is due when none was heard for this long; one serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// Up to this much later, by chance: so that mostly one listener sends it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A canary that is not heard within this is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);

pub(super) struct Session {
    server: String,
    /// The counter of canaries.
    canary: String,
    connection: MultiplexedConnection,
    pushed: mpsc::Receiver<Heard>,
    dropped: Arc<AtomicU64>,
    dropped_before: u64,
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
    /// Connects and subscribes, each step within a deadline.
    pub(super) async fn open(store: &RedisStore, namespace: &str, partitions: &[Partition]) -> Result<Self> {
        let address = store.address();
        let (sender, pushed) = mpsc::channel(PUSHED);
        let dropped = Arc::new(AtomicU64::new(0));
        let ear = Ear::new(namespace, address.db, partitions);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPEN_WITHIN))
            .set_response_timeout(Some(OPEN_WITHIN))
            .set_push_sender(into_queue(ear.clone(), sender, dropped.clone()));
        let opening = async {
            let client = Client::open(address.resp3())?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            connection.subscribe(&ear.expired).await?;
            if !ear.wake.is_empty() {
                cmd("SSUBSCRIBE").arg(&ear.wake).exec_async(&mut connection).await?;
            }
            Ok(connection)
        };
        let connection = match tokio::time::timeout(OPEN_WITHIN, opening).await {
            Ok(opened) => opened.map_err(|error| classify("subscribing", &error))?,
            Err(_) => {
                return Err(Error::new(ErrorKind::Timeout, "subscribing: no answer within 5 s"));
            }
        };
        Ok(Self {
            server: store.server(),
            canary: crate::store::keys::canary(namespace, 0),
            connection,
            pushed,
            dropped,
            dropped_before: 0,
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
        }
        Ok(())
    }

    async fn missed_canary(&mut self, hints: &mpsc::Sender<Hint>) -> Result<()> {
        if self.anchor != Anchor::Lost {
            warn!(
                server = %self.server,
                "no expired events: is notify-keyspace-events set to at least Ex? Timers fire on time all the same"
            );
        }
        self.anchor = Anchor::Lost;
        pass(hints, Hint::Gap(Gap::Silent)).await
    }

    /// A server that answers with an error may still heal; one that is a
    /// replica now, or does not answer, is left.
    fn released(&mut self, done: RedisResult<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        let reason = classify("making a canary", &error);
        match error.code() {
            Some(code) if code != "READONLY" => {
                debug!(error = %reason, "canary refused");
                Ok(())
            }
            _ => Err(reason),
        }
    }

    async fn report_dropped(&mut self, hints: &mpsc::Sender<Hint>) -> Result<()> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped == self.dropped_before {
            return Ok(());
        }
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

/// Puts what is heard into a bounded queue and counts what does not fit.
fn into_queue(
    ear: Ear,
    sender: mpsc::Sender<Heard>,
    dropped: Arc<AtomicU64>,
) -> impl Fn(PushInfo) -> std::result::Result<(), redis::aio::SendError> + Send + Sync + 'static {
    move |push| {
        if let Some(heard) = ear.hear(push) {
            if sender.try_send(heard).is_err() {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
