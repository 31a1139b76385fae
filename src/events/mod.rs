//! The subscription to one server, which receives wake-ups, fences and expired keys.
//!
//! - `open` connects and subscribes. It fills a queue with the messages that `decoder` has decoded.
//! - `session` passes these messages on as [`Event`]s, and makes key reads of attached topics on the same connection
//!   (`calls`). It also creates heartbeat keys, and detects gaps by them (`session/heartbeats`).
//! - The [`Supervisor`] opens another session when one ends.
//! - `tail` has the subscriptions of tools.
//!
//! The ConnectionManager of `redis` does not suffice: it hides gaps, discards errors of its resubscription and gives up
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

/// Maximum number of events that wait for the listener. The session waits when the queue is full.
const MAX_QUEUED_EVENTS: usize = 4096;
/// Maximum number of key reads that wait for the connection, and maximum number of key reads in flight.
const MAX_KEY_READS: usize = 1024;
/// The first pause before another session is opened, before jitter. Each further pause is twice as long.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// The longest of these pauses.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);
/// The longest of these pauses with `save_requests`, as opening a session takes several requests.
const SAVING_MAX_RECONNECT_DELAY: Duration = Duration::from_secs(60);
/// A session that lasted this long resets the pauses, even if no heartbeat arrived or it ended with an error.
const STABLE_SESSION_AFTER: Duration = Duration::from_secs(10);
/// A connection error is logged after this number of failed sessions in a row, if calls are answered.
const LOG_AFTER_FAILURES: usize = 3;
/// A session ends after this number of missed heartbeats in a row. Each silent session in a row doubles the number, up to
/// `MAX_SILENT_CANARIES`.
const MIN_SILENT_CANARIES: usize = 4;
const MAX_SILENT_CANARIES: usize = 60;

/// A stream of events that also carries the replies to key reads.
#[derive(Debug)]
pub(crate) struct EventStream {
    pub(crate) events: mpsc::Receiver<Event>,
    /// The sending end of the queue of key reads. A read that finds no connection gets a reply without an answer.
    pub(crate) key_reads: mpsc::Sender<KeyRead>,
}

/// A server to subscribe to, and the events that are wanted.
#[derive(Clone)]
pub(crate) struct SubscriptionSource {
    pub(crate) server: Server,
    /// How other servers can take over its keys.
    pub(crate) deployment: Deployment,
    /// True for a cluster node, whose slots can move.
    pub(crate) slots_move: bool,
    pub(crate) decoder: Decoder,
    /// The partitions and the heartbeat counter that the server has now.
    pub(crate) assignment: watch::Receiver<NodeAssignment>,
    /// Collects the keys that the server announced as written.
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) rounds: PollTimer,
}

impl SubscriptionSource {
    /// Returns the stream of events and the future that fills it. The future reconnects by itself, and ends when the
    /// receiver is dropped.
    pub(crate) fn open(self) -> (EventStream, impl Future<Output = ()> + Send + use<>) {
        let (events, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (key_reads, asked) = mpsc::channel(MAX_KEY_READS);
        (EventStream { events: receiver, key_reads }, Supervisor::new(self, events).run(asked))
    }

    /// Returns whether the server is one of several that have keys at the same time.
    fn is_of_several(&self) -> bool {
        matches!(self.deployment, Deployment::Nodes(_))
    }

    /// Returns whether another server may replace this one.
    fn may_be_replaced(&self) -> bool {
        self.deployment != Deployment::Alone
    }
}

/// How a server relates to other servers.
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
    /// The number of sessions in a row that ended as [`SessionEnd::Silent`].
    silent_sessions: AtomicU32,
}

impl Supervisor {
    fn new(source: SubscriptionSource, events: mpsc::Sender<Event>) -> Self {
        Self { source, events, silent_sessions: AtomicU32::new(0) }
    }

    /// Runs until the receiver of events is dropped.
    async fn run(self, key_reads: mpsc::Receiver<KeyRead>) {
        tokio::select! {
            biased;
            () = self.events.closed() => {}
            () = self.keep_open(key_reads) => {}
        }
    }

    /// Opens one session after another.
    async fn keep_open(&self, mut key_reads: mpsc::Receiver<KeyRead>) {
        let (mut wait, mut throttle, mut failures) = (FIRST_RECONNECT_DELAY, LogThrottle::default(), 0);
        loop {
            let began = Instant::now();
            let (gap, ended) = self.run_session(&mut key_reads).await;
            if matches!(ended, Ok(SessionEnd::Lost)) || began.elapsed() >= STABLE_SESSION_AFTER {
                (wait, throttle, failures) = (FIRST_RECONNECT_DELAY, LogThrottle::default(), 0);
            }
            failures += usize::from(ended.is_err());
            match ended {
                Ok(SessionEnd::Lost) => {
                    info!(server = %self.last_address(), "subscription lost; reconnecting");
                }
                Ok(SessionEnd::Silent) => _ = self.silent_sessions.fetch_add(1, Ordering::Relaxed),
                Err(error) if self.should_log(&error, failures) && throttle.is_new(&error) => warn!(
                    server = %self.last_address(), %error,
                    "no subscription; sweeping every second until it is back"
                ),
                Ok(SessionEnd::Early) | Err(_) => {}
            }
            self.send_event(Event::Gap(gap)).await;
            let pause = tokio::time::sleep(self.source.rounds.about(wait, 0.5));
            self.without_subscription(&mut key_reads, pause).await;
            wait = (wait * 2).min(self.source.rounds.pace(MAX_RECONNECT_DELAY, SAVING_MAX_RECONNECT_DELAY));
        }
    }

    /// Returns whether the error of a session is logged. Calls already log a lost server, so a connection error is logged
    /// only after several failures while calls are answered.
    fn should_log(&self, error: &Error, failures: usize) -> bool {
        !error.is_connection_error()
            || failures >= LOG_AFTER_FAILURES && !self.source.server.outage().is_lost()
    }

    /// Returns the server's last address, for the log.
    fn last_address(&self) -> Address {
        self.source.server.last_address()
    }

    /// Opens and runs one session. Returns the kind of gap that follows, and how the session ended.
    async fn run_session(&self, key_reads: &mut mpsc::Receiver<KeyRead>) -> (Gap, Result<SessionEnd, Error>) {
        let opening = Session::open(self);
        match self.without_subscription(key_reads, opening).await {
            // With tokio's budget, the session would fall behind in a flood: the connection queues events by
            // thousands per poll. Only the queue to the listener bounds the session.
            Ok(session) => (Gap::Disconnected, unconstrained(session.run(key_reads)).await),
            Err(error) => (Gap::NoSubscription, Err(error)),
        }
    }

    /// Awaits `until` while no subscription exists. Makes key reads on the connection for calls. No events arrive in this
    /// time, so replies need no position among them. Reads that are unanswered at the end get a reply without an answer.
    async fn without_subscription<T>(
        &self,
        key_reads: &mut mpsc::Receiver<KeyRead>,
        until: impl Future<Output = T>,
    ) -> T {
        let (mut until, mut reading, mut unanswered) = (pin!(until), JoinSet::new(), BTreeSet::new());
        let done = loop {
            tokio::select! {
                biased;
                done = &mut until => break done,
                Some(read) = key_reads.recv(), if reading.len() < MAX_KEY_READS => {
                    unanswered.insert(read.id);
                    let reader = KeyReader::OutOfStream(self.source.server.clone());
                    reading.spawn(reader.read_keys(read, self.source.is_of_several()));
                }
                Some(Ok(reply)) = reading.join_next() => {
                    unanswered.remove(&reply.id);
                    self.send_event(Event::KeysRead(reply)).await;
                }
            }
        };
        for id in unanswered {
            self.send_event(Event::KeysRead(KeyReadReply::unanswered(id))).await;
        }
        done
    }

    /// Returns how many heartbeats a session may miss before it ends.
    fn silent_canary_limit(&self) -> usize {
        let sessions = self.silent_sessions.load(Ordering::Relaxed).min(10);
        (MIN_SILENT_CANARIES << sessions).min(MAX_SILENT_CANARIES)
    }

    /// Returns whether the previous session ended as [`SessionEnd::Silent`], and no heartbeat was received since.
    fn was_silent(&self) -> bool {
        self.silent_sessions.load(Ordering::Relaxed) > 0
    }

    /// Resets the number of silent sessions, as a heartbeat was received.
    fn reset_silence(&self) {
        self.silent_sessions.store(0, Ordering::Relaxed);
    }

    /// Sends an event to the listener. A failure needs no handling: `run` ends when the receiver is dropped.
    async fn send_event(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
