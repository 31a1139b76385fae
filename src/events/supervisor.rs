//! Keeps a subscription to one node: a session ends for any reason, a gap is reported, and after a capped and jittered
//! wait there is another one.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinSet, unconstrained};
use tokio::time::Instant;

use crate::connection::Address;
use crate::error::Error;
use crate::events::calls::Reads;
use crate::events::event::{Event, Gap, Touch, Touched};
use crate::events::session::{Ended, Session};
use crate::events::{Source, TOUCHES};
use crate::log::{info, warn};
use crate::log_throttle::LogThrottle;

/// Waits between tries to connect, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The same where requests are saved: a try takes several.
const FEW_LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A session that held this long was a good one, even if no event ever flowed or it broke with an
/// error: the waits start over.
const GOOD: Duration = Duration::from_secs(10);

/// So many tries in a row without a connection, though calls are answered, are worth a line in the log.
const IN_VAIN: usize = 3;

/// A session in which no canary is heard, though all are made, ends after so many, and after twice as many each time.
const SILENT: usize = 4;
const LONGEST_SILENT: usize = 60;

pub(super) struct Supervisor {
    pub(super) source: Source,
    events: mpsc::Sender<Event>,
    /// Sessions in a row that have ended since nothing was announced.
    silent: AtomicU32,
}

impl Supervisor {
    pub(super) fn new(source: Source, events: mpsc::Sender<Event>) -> Self {
        Self { source, events, silent: AtomicU32::new(0) }
    }

    /// Until nobody listens any more.
    pub(super) async fn run(self, touches: mpsc::Receiver<Touch>) {
        tokio::select! {
            biased;
            () = self.events.closed() => {}
            () = self.keep_open(touches) => {}
        }
    }

    async fn keep_open(&self, mut touches: mpsc::Receiver<Touch>) {
        let (mut wait, mut throttle, mut in_vain) = (FIRST_WAIT, LogThrottle::default(), 0);
        loop {
            let began = Instant::now();
            let (gap, ended) = self.session(&mut touches).await;
            if matches!(ended, Ok(Ended::Anchored)) || began.elapsed() >= GOOD {
                (wait, throttle, in_vain) = (FIRST_WAIT, LogThrottle::default(), 0);
            }
            in_vain += usize::from(ended.is_err());
            match ended {
                Ok(Ended::Anchored) => info!(server = %self.server(), "subscription lost; reconnecting"),
                Ok(Ended::Silent) => _ = self.silent.fetch_add(1, Ordering::Relaxed),
                Err(error) if self.is_news(&error, in_vain) && throttle.is_new(&error) => warn!(
                    server = %self.server(), %error,
                    "no subscription; sweeping every second until it is back"
                ),
                Ok(Ended::Never) | Err(_) => {}
            }
            self.pass(Event::Gap(gap)).await;
            let pause = tokio::time::sleep(self.source.rounds.about(wait, 0.5));
            self.without_subscription(&mut touches, pause).await;
            wait = (wait * 2).min(self.source.rounds.pace(LONGEST_WAIT, FEW_LONGEST_WAIT));
        }
    }

    /// Whether it is the subscription's own trouble. Where the server is lost, calls find that out as soon,
    /// and it is said already.
    fn is_news(&self, error: &Error, in_vain: usize) -> bool {
        !error.is_of_the_line() || in_vain >= IN_VAIN && !self.source.server.outage().is_lost()
    }

    /// Where it is at present, for the log.
    fn server(&self) -> Address {
        self.source.server.present()
    }

    /// One session, to its end; and what kind of gap follows.
    async fn session(&self, touches: &mut mpsc::Receiver<Touch>) -> (Gap, Result<Ended, Error>) {
        let opening = Session::open(self);
        match self.without_subscription(touches, opening).await {
            // In a flood it takes what there is, up to what the listener has room for; else the connection, which
            // takes what comes by thousands, would be ahead of it without end.
            Ok(session) => (Gap::Disconnected, unconstrained(session.run(touches)).await),
            Err(error) => (Gap::NoSubscription, Err(error)),
        }
    }

    /// Waits for something while there is no subscription, and has keys read aside: nothing is announced meanwhile, so
    /// that answers need no place among it. Those that come too late for that are none.
    pub(super) async fn without_subscription<T>(
        &self,
        touches: &mut mpsc::Receiver<Touch>,
        until: impl Future<Output = T>,
    ) -> T {
        let (mut until, mut reading, mut asked) = (pin!(until), JoinSet::new(), BTreeSet::new());
        let done = loop {
            tokio::select! {
                biased;
                done = &mut until => break done,
                Some(touch) = touches.recv(), if reading.len() < TOUCHES => {
                    asked.insert(touch.id);
                    let reads = Reads::Aside(self.source.server.clone());
                    reading.spawn(reads.touch(touch, self.source.is_of_several()));
                }
                Some(Ok(touched)) = reading.join_next() => {
                    asked.remove(&touched.id);
                    self.pass(Event::Touched(touched)).await;
                }
            }
        };
        for id in asked {
            self.pass(Event::Touched(Touched::none(id))).await;
        }
        done
    }

    /// After how many canaries that nobody hears a session ends.
    pub(super) fn patience(&self) -> usize {
        let sessions = self.silent.load(Ordering::Relaxed).min(10);
        (SILENT << sessions).min(LONGEST_SILENT)
    }

    /// Whether nothing was announced in the session before, either.
    pub(super) fn was_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed) > 0
    }

    /// Something was announced.
    pub(super) fn is_not_silent(&self) {
        self.silent.store(0, Ordering::Relaxed);
    }

    /// Tells the listener; with nobody there, all of this ends.
    pub(super) async fn pass(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
