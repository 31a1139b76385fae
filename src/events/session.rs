//! One subscribed connection, from its opening to its end.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::connection::{Address, classify};
use crate::error::{Error, ErrorKind, Result};
use crate::events::canary;
use crate::events::decoder::{Decoded, Decoder, Proof};
use crate::events::event::{Canary, Event, Gap, Touch};
use crate::events::open::{Opened, open};
use crate::events::reads::touch;
use crate::rounds::Rounds;

/// A canary is due when none was heard for this long; one serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// Up to this much later, by chance: so that mostly one listener sends it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A canary that is not heard within this is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);
/// Dropped events are reported once in this time: in a flood there is no end of
/// them, and each report costs a sweep.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Session {
    server: String,
    /// The counter of canaries.
    canary: String,
    connection: MultiplexedConnection,
    pushed: mpsc::Receiver<Decoded>,
    /// The other end of `pushed`.
    queue: mpsc::Sender<Decoded>,
    /// Whether answers follow what was published before them.
    ordered: bool,
    /// Events that were dropped, and not reported yet.
    dropped: u64,
    reported: Option<Instant>,
    /// What the last canary has proven besides.
    writes: bool,
    expires: bool,
    /// Why the last canary was not made.
    refused: Option<Error>,
    wake_ups: bool,
    anchor: Anchor,
    next_canary: Instant,
    rounds: Rounds,
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

type Touching = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;
type Release = Pin<Box<dyn Future<Output = RedisResult<()>> + Send>>;

impl Session {
    /// Connects and subscribes, within a deadline.
    pub(super) async fn open(address: &Address, decoder: &Decoder, rounds: Rounds) -> Result<Self> {
        let Opened { connection, pushed, queue, ordered, wake_ups } = open(address, decoder.clone()).await?;
        Ok(Self {
            server: address.to_string(),
            canary: decoder.canaries.clone(),
            connection,
            pushed,
            queue,
            ordered,
            dropped: 0,
            reported: None,
            writes: false,
            expires: false,
            refused: None,
            wake_ups,
            anchor: Anchor::Never,
            next_canary: Instant::now(),
            rounds,
        })
    }

    /// Passes on what is heard until the connection ends; whether the session
    /// ever was anchored.
    pub(super) async fn run(
        &mut self,
        events: &mpsc::Sender<Event>,
        touches: &mut mpsc::Receiver<Touch>,
    ) -> Result<bool> {
        if !self.ordered {
            // Answers have no place among what is heard, so attached topics hear nothing.
            pass(events, Event::Gap(Gap::Silent)).await?;
        }
        let mut touching = Touching::new();
        let mut release: Option<Release> = None;
        let mut missing_at: Option<Instant> = None;
        loop {
            tokio::select! {
                heard = self.pushed.recv() => match heard {
                    Some(Decoded::Canary(number, before)) => {
                        missing_at = None;
                        self.heard_canary(events, number, before).await?;
                    }
                    Some(Decoded::Proof(Proof::Writes)) => self.writes = true,
                    Some(Decoded::Proof(Proof::Expires)) => self.expires = true,
                    Some(Decoded::Dropped(count)) => {
                        self.dropped += count;
                        pass(events, Event::Lost).await?;
                    }
                    Some(Decoded::Touched(touched)) => pass(events, Event::Touched(touched)).await?,
                    Some(Decoded::Event(event)) => pass(events, event).await?,
                    Some(Decoded::Disconnected) | None => return Ok(self.anchor != Anchor::Never),
                },
                Some(asked) = touches.recv() => self.touch(&mut touching, asked),
                Some(()) = touching.next() => {}
                done = async { release.as_mut().expect("guarded").await }, if release.is_some() => {
                    release = None;
                    self.released(done)?;
                }
                () = wake(missing_at, self.next_canary, &self.rounds) => match missing_at.take() {
                    Some(_) => self.missed_canary(events).await?,
                    None => {
                        self.rounds.begin();
                        self.plan_canary();
                        missing_at = Some(Instant::now() + CANARY_WITHIN);
                        if release.is_none() {
                            release = Some(Box::pin(canary::release(self.canary.clone(), self.connection.clone())));
                        }
                    }
                },
            }
            self.report_dropped(events).await?;
        }
    }

    fn plan_canary(&mut self) {
        self.next_canary = Instant::now() + CANARY_EVERY + CANARY_JITTER.mul_f64(rand::random());
    }

    /// Reads keys; the answer finds its place in the stream by itself.
    fn touch(&self, touching: &mut Touching, asked: Touch) {
        let (connection, queue) = (self.connection.clone(), self.queue.clone());
        touching.push(Box::pin(async move {
            let touched = touch(asked, connection).await;
            let _ = queue.send(Decoded::Touched(touched)).await;
        }));
    }

    async fn heard_canary(&mut self, events: &mpsc::Sender<Event>, number: u64, before: u64) -> Result<()> {
        self.plan_canary();
        let (writes, expires) = (std::mem::take(&mut self.writes), std::mem::take(&mut self.expires));
        if self.ordered {
            pass(events, Event::Canary(Canary { number, before, writes, expires })).await?;
        }
        if self.anchor != Anchor::Holds {
            info!(server = %self.server, "expired events flow");
            self.anchor = Anchor::Holds;
            pass(events, Event::Anchored).await?;
            if !self.wake_ups {
                pass(events, Event::Gap(Gap::NoWakeUps)).await?;
            }
        }
        Ok(())
    }

    async fn missed_canary(&mut self, events: &mpsc::Sender<Event>) -> Result<()> {
        let server = &self.server;
        // In a flood the canary is somewhere behind, or was dropped.
        let flooded = !self.pushed.is_empty() || self.dropped > 0;
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
        pass(events, Event::Gap(Gap::Silent)).await
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

    async fn report_dropped(&mut self, events: &mpsc::Sender<Event>) -> Result<()> {
        let lately = self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        if self.dropped == 0 || lately {
            return Ok(()); // the next canary comes by here in time
        }
        self.reported = Some(Instant::now());
        warn!(count = self.dropped, "events dropped: more expired events than can be looked at");
        self.dropped = 0;
        pass(events, Event::Gap(Gap::Overflow)).await
    }
}

/// Waits until a canary is missing, or the next one is due.
async fn wake(missing_at: Option<Instant>, next_canary: Instant, rounds: &Rounds) {
    match missing_at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => rounds.next(next_canary, CANARY_EVERY).await,
    }
}

pub(super) async fn pass(events: &mpsc::Sender<Event>, event: Event) -> Result<()> {
    let gone = |_| Error::new(ErrorKind::Unreachable, "nobody listens");
    events.send(event).await.map_err(gone)
}
