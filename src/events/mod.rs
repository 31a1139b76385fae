//! The subscription, which receives wake-ups, fences and expired keys.
//!
//! A [`Supervisor`] keeps one [`Session`](session::Session) to one server open, and replaces it when it ends. The
//! ConnectionManager of `redis` does not suffice: it hides gaps, discards errors of its resubscription and gives up
//! after six tries.

mod calls;
pub(crate) mod decoder;
pub mod event;
mod open;
mod session;
pub(crate) mod tail;

pub use self::decoder::{Decoded, Decoder};
pub(crate) use self::event::{
    Canary, Change, Event, FoundKeys, Gap, KeyRead, KeyReadKind, KeyReadReply, PromptReason, Prompts,
};
pub use self::tail::{ExpirySubscription, SubscribedConnection};

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
use crate::events::calls::KeyReader;
use crate::events::session::{Session, SessionEnd};
use crate::log::{LogThrottle, info, warn};
use crate::rounds::PollTimer;
use crate::wire::NodeId;

/// Events that may wait for the listener. The session waits when the queue is full.
const QUEUE: usize = 4096;
/// Key reads that may wait for the connection, and key reads that may be in flight.
const TOUCHES: usize = 1024;
/// Pauses between tries to connect, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The longest pause with `save_requests`, as a try takes several requests.
const FEW_LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A session that lasted this long resets the pauses, even if it received no event or ended with an error.
const STABLE_SESSION_AFTER: Duration = Duration::from_secs(10);
/// Failed connections in a row that are logged, although calls are answered.
const LOG_AFTER_FAILURES: usize = 3;
/// A session ends after this many heartbeats that were created and not received. Each further silent session doubles
/// the number, up to `LONGEST_SILENT`.
const MIN_SILENT_CANARIES: usize = 4;
const LONGEST_SILENT: usize = 60;

/// A stream of events that also carries the replies to key reads.
#[derive(Debug)]
pub(crate) struct EventStream {
    pub(crate) events: mpsc::Receiver<Event>,
    /// Takes key reads. A read that finds no connection gets a reply without keys.
    pub(crate) touches: mpsc::Sender<KeyRead>,
}

/// A server to subscribe to, and the events that are wanted.
#[derive(Clone)]
pub(crate) struct SubscriptionSource {
    pub(crate) server: Server,
    /// How other servers can take over its keys.
    pub(crate) among: Deployment,
    /// True for a cluster node, whose slots can move.
    pub(crate) slots_move: bool,
    pub(crate) decoder: Decoder,
    /// The partitions and the heartbeat counter that it has now.
    pub(crate) share: watch::Receiver<NodeAssignment>,
    /// Collects the keys that the server announced as written.
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) rounds: PollTimer,
}

impl SubscriptionSource {
    /// Returns the stream of events and the future that fills it. The future reconnects by itself, and ends when the
    /// receiver is dropped.
    pub(crate) fn open(self) -> (EventStream, impl Future<Output = ()> + Send + use<>) {
        let (events, receiver) = mpsc::channel(QUEUE);
        let (touches, asked) = mpsc::channel(TOUCHES);
        (EventStream { events: receiver, touches }, Supervisor::new(self, events).run(asked))
    }

    /// Returns whether other servers have keys at the same time.
    fn is_of_several(&self) -> bool {
        matches!(self.among, Deployment::Nodes(_))
    }

    /// Returns whether another server may replace it.
    fn may_be_replaced(&self) -> bool {
        self.among != Deployment::Alone
    }
}

/// The role of a server among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// The only server, or one whose stream needs no positions.
    Alone,
    /// A cluster node with this name.
    Nodes(NodeId),
    /// The primary that Sentinel names, until another one replaces it.
    Successors,
}

/// The partitions and the heartbeat counter of a server. Both change while slots of a cluster move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeAssignment {
    /// Indices into the partitions that the stream was opened for, in ascending order.
    pub(crate) partitions: Vec<usize>,
    /// The name of the heartbeat counter. `None` on a server without slots, which would refuse the key.
    pub(crate) canaries: Option<String>,
}

impl NodeAssignment {
    /// Returns whether heartbeat keys with this hash tag belong to the server.
    fn has_canaries_of(&self, tag: u32) -> bool {
        self.canaries.as_deref().is_some_and(|name| name.ends_with(&format!("{{heartbeat/{tag}}}")))
    }
}

/// Keeps a subscription to one server. When a session ends, it reports a gap, and opens the next session after a
/// capped and jittered pause.
struct Supervisor {
    source: SubscriptionSource,
    events: mpsc::Sender<Event>,
    /// Sessions in a row that ended because no heartbeat was received.
    silent: AtomicU32,
}

impl Supervisor {
    fn new(source: SubscriptionSource, events: mpsc::Sender<Event>) -> Self {
        Self { source, events, silent: AtomicU32::new(0) }
    }

    /// Runs until the receiver of events is dropped.
    async fn run(self, touches: mpsc::Receiver<KeyRead>) {
        tokio::select! {
            biased;
            () = self.events.closed() => {}
            () = self.keep_open(touches) => {}
        }
    }

    async fn keep_open(&self, mut touches: mpsc::Receiver<KeyRead>) {
        let (mut wait, mut throttle, mut in_vain) = (FIRST_WAIT, LogThrottle::default(), 0);
        loop {
            let began = Instant::now();
            let (gap, ended) = self.session(&mut touches).await;
            if matches!(ended, Ok(SessionEnd::Anchored)) || began.elapsed() >= STABLE_SESSION_AFTER {
                (wait, throttle, in_vain) = (FIRST_WAIT, LogThrottle::default(), 0);
            }
            in_vain += usize::from(ended.is_err());
            match ended {
                Ok(SessionEnd::Anchored) => info!(server = %self.server(), "subscription lost; reconnecting"),
                Ok(SessionEnd::Silent) => _ = self.silent.fetch_add(1, Ordering::Relaxed),
                Err(error) if self.is_news(&error, in_vain) && throttle.is_new(&error) => warn!(
                    server = %self.server(), %error,
                    "no subscription; sweeping every second until it is back"
                ),
                Ok(SessionEnd::Never) | Err(_) => {}
            }
            self.pass(Event::Gap(gap)).await;
            let pause = tokio::time::sleep(self.source.rounds.about(wait, 0.5));
            self.without_subscription(&mut touches, pause).await;
            wait = (wait * 2).min(self.source.rounds.pace(LONGEST_WAIT, FEW_LONGEST_WAIT));
        }
    }

    /// Returns whether an error is worth a log line. Calls already log a lost server, so a connection error counts
    /// only while calls are answered.
    fn is_news(&self, error: &Error, in_vain: usize) -> bool {
        !error.is_connection_error()
            || in_vain >= LOG_AFTER_FAILURES && !self.source.server.outage().is_lost()
    }

    /// The server's last address, for the log.
    fn server(&self) -> Address {
        self.source.server.last_address()
    }

    /// Opens and runs one session. Returns the kind of gap that follows, and how the session ended.
    async fn session(&self, touches: &mut mpsc::Receiver<KeyRead>) -> (Gap, Result<SessionEnd, Error>) {
        let opening = Session::open(self);
        match self.without_subscription(touches, opening).await {
            // With tokio's budget, the session would fall behind in a flood: the connection queues events by
            // thousands per poll. Only the queue to the listener bounds the session.
            Ok(session) => (Gap::Disconnected, unconstrained(session.run(touches)).await),
            Err(error) => (Gap::NoSubscription, Err(error)),
        }
    }

    /// Awaits `until` while no subscription exists, and reads keys on the connection for calls. No events arrive in
    /// this time, so replies need no position among them. Reads that are unanswered at the end get an empty reply.
    async fn without_subscription<T>(
        &self,
        touches: &mut mpsc::Receiver<KeyRead>,
        until: impl Future<Output = T>,
    ) -> T {
        let (mut until, mut reading, mut asked) = (pin!(until), JoinSet::new(), BTreeSet::new());
        let done = loop {
            tokio::select! {
                biased;
                done = &mut until => break done,
                Some(touch) = touches.recv(), if reading.len() < TOUCHES => {
                    asked.insert(touch.id);
                    let reads = KeyReader::Aside(self.source.server.clone());
                    reading.spawn(reads.read_keys(touch, self.source.is_of_several()));
                }
                Some(Ok(touched)) = reading.join_next() => {
                    asked.remove(&touched.id);
                    self.pass(Event::Touched(touched)).await;
                }
            }
        };
        for id in asked {
            self.pass(Event::Touched(KeyReadReply::none(id))).await;
        }
        done
    }

    /// Returns how many heartbeats a session may miss before it ends.
    fn silent_canary_limit(&self) -> usize {
        let sessions = self.silent.load(Ordering::Relaxed).min(10);
        (MIN_SILENT_CANARIES << sessions).min(LONGEST_SILENT)
    }

    /// Returns whether the previous session ended without a heartbeat, too.
    fn was_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed) > 0
    }

    /// Notes that a heartbeat was received.
    fn is_not_silent(&self) {
        self.silent.store(0, Ordering::Relaxed);
    }

    /// Sends an event to the listener. A failure needs no handling: `run` ends when the receiver is dropped.
    async fn pass(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
