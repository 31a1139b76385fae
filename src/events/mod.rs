//! The subscription: hears wake-ups, fences and expired keys.
//!
//! A [`Supervisor`] keeps one [`Session`](session::Session) open to one node, for ever. `redis`' own ConnectionManager is
//! not fit for this: it hides gaps, discards errors of its resubscription and gives up after six tries.

mod calls;
pub(crate) mod decoder;
pub mod event;
mod open;
mod session;
pub(crate) mod tail;

pub use self::decoder::{Decoded, Decoder};
pub(crate) use self::event::{Answer, Canary, Change, Event, Gap, Prompt, Prompts, Question, Touch, Touched};
pub use self::tail::{Earshot, Voice};

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::Instant;

use crate::connection::{Address, Server};
use crate::error::Error;
use crate::events::calls::Reads;
use crate::events::session::{Ended, Session};
use crate::log::{LogThrottle, info, warn};
use crate::rounds::Rounds;
use crate::wire::NodeId;

/// Events that may wait for the listener. Beyond, the session waits.
const QUEUE: usize = 4096;
/// Touches that may wait for the connection; and so many that are on their way there.
const TOUCHES: usize = 1024;
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

/// A stream of events in which touches are answered.
#[derive(Debug)]
pub(crate) struct EventStream {
    /// What is heard.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Where touches are asked for; those that find no connection are answered with nothing.
    pub(crate) touches: mpsc::Sender<Touch>,
}

/// What is listened to.
#[derive(Clone)]
pub(crate) struct Source {
    /// The server, as calls are made there.
    pub(crate) server: Server,
    /// Whether its keys may be another's at another time.
    pub(crate) among: Among,
    /// Whether it may give slots away.
    pub(crate) slots_move: bool,
    /// What of its events is understood.
    pub(crate) decoder: Decoder,
    /// What it has of the work.
    pub(crate) share: watch::Receiver<Share>,
    /// Where keys are gathered that were heard to be written.
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) rounds: Rounds,
}

impl Source {
    /// The stream of its events, and what has to run for it. It lives until the receiver is dropped, and reconnects by
    /// itself.
    pub(crate) fn open(self) -> (EventStream, impl Future<Output = ()> + Send + use<>) {
        let (events, receiver) = mpsc::channel(QUEUE);
        let (touches, asked) = mpsc::channel(TOUCHES);
        (EventStream { events: receiver, touches }, Supervisor::new(self, events).run(asked))
    }

    /// Whether it is one of several that have keys at the same time.
    fn is_of_several(&self) -> bool {
        matches!(self.among, Among::Nodes(_))
    }

    /// Whether another may take its place.
    fn may_be_replaced(&self) -> bool {
        self.among != Among::Alone
    }
}

/// The servers among which a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// There are no others; or nobody asks for positions in its stream.
    Alone,
    /// Nodes of a cluster, of which it has this name.
    Nodes(NodeId),
    /// Those of which sentinels name one at a time.
    Successors,
}

/// The partitions that a server holds, and the canaries that are made there. It changes while slots of a cluster move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Their places in the list that the stream was opened for, in order.
    pub(crate) partitions: Vec<usize>,
    /// The counter of canaries; none on a server without slots, which would not take it.
    pub(crate) canaries: Option<String>,
}

impl Share {
    /// Whether canaries of this tag are made there.
    fn has_canaries_of(&self, tag: u32) -> bool {
        self.canaries.as_deref().is_some_and(|name| name.ends_with(&format!("{{canary/{tag}}}")))
    }
}

/// Keeps a subscription to one node: a session ends for any reason, a gap is reported, and after a capped and jittered
/// wait there is another one.
struct Supervisor {
    source: Source,
    events: mpsc::Sender<Event>,
    /// Sessions in a row that have ended since nothing was announced.
    silent: AtomicU32,
}

impl Supervisor {
    fn new(source: Source, events: mpsc::Sender<Event>) -> Self {
        Self { source, events, silent: AtomicU32::new(0) }
    }

    /// Until nobody listens any more.
    async fn run(self, touches: mpsc::Receiver<Touch>) {
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
    async fn without_subscription<T>(
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
    fn patience(&self) -> usize {
        let sessions = self.silent.load(Ordering::Relaxed).min(10);
        (SILENT << sessions).min(LONGEST_SILENT)
    }

    /// Whether nothing was announced in the session before, either.
    fn was_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed) > 0
    }

    /// Something was announced.
    fn is_not_silent(&self) {
        self.silent.store(0, Ordering::Relaxed);
    }

    /// Tells the listener; with nobody there, all of this ends.
    async fn pass(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
