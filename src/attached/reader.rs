//! Processes the event stream of one server: identifies each expiry, reads keys, and decides on the results.
//!
//! The reader does not wait for calls to the server: writers make them. If a writer is full, the reader waits for it,
//! which delays attached topics only. The event stream also has wake-ups and fences of other topics, and these must not
//! wait for a parked partition. Therefore the event loop adds events to the reader's queue and continues.

mod gap;
mod judging;
mod standing;
mod touching;

pub(crate) use self::standing::Peers;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::attached::held::{PendingExpiries, PositionedExpiry, ReplacedServerKeys};
use crate::attached::known::KnownDeadlines;
use crate::attached::reader::standing::{ASK_AGAIN, PeerQuery};
use crate::attached::request::{FormerOwnerReport, ReadReservation, ReaderRequest, Readers, SentAt};
use crate::attached::stream::Stream;
use crate::attached::writer::{Write, Writes};
use crate::backlog::{self, BacklogReceiver, Item, backlog};
use crate::events::{Canary, KeyRead, KeyReadReply, PromptReason, Prompts};
use crate::id::ArmingId;
use crate::log::warn;
use crate::runtime::{EventMode, NodeState, RunningTopic, Runtime};
use crate::time::ServerTime;
use crate::wire::{AnnouncedExpiry, DeadlineReading, ExpiryIdentity, NodeId, Position, TrackedKey, fnv1a};

/// Maximum bytes in the reader's queue: about two million short keys. A dropped event starts a gap.
const MAX_READER_QUEUE_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Maximum number of requests that wait for the reader.
const MAX_QUEUED_REQUESTS: usize = 1024;
/// Maximum number of deleted keys whose tracking ends with the next heartbeat.
const MAX_DELETED_KEYS: usize = 100_000;

/// An event or an answer for the reader.
#[derive(Debug)]
pub(crate) enum ReaderEvent {
    /// A key of this partition has expired.
    Expired(usize, Bytes),
    /// A key was deleted or renamed.
    Gone(Bytes),
    Canary(Canary),
    /// A heartbeat with this number that this listener does not trust.
    CanaryUnverified(u64),
    Touched(KeyReadReply),
    /// The events that follow are of this server.
    Server {
        node: NodeId,
        at: String,
    },
    /// Events were lost at this point.
    Lost,
    /// The subscription has ended.
    Disconnected,
    /// No subscription is possible.
    NoSubscription,
    /// No heartbeat arrived in time.
    Silent,
    /// Events, and possibly answers to reads, were dropped because the queue was full.
    Dropped,
}

/// The tag of a key that is gone. An expired key has its partition as the tag.
const GONE: u32 = u32::MAX;

impl Item for ReaderEvent {
    fn split(self) -> Result<(u32, Bytes), Self> {
        match self {
            Self::Gone(key) => Ok((GONE, key)),
            Self::Expired(partition, key) => Ok((u32::try_from(partition).unwrap_or(GONE), key)),
            other => Err(other),
        }
    }

    fn join(tag: u32, key: Bytes) -> Self {
        if tag == GONE { Self::Gone(key) } else { Self::Expired(tag as usize, key) }
    }

    fn size(&self) -> usize {
        let more = if let Self::Touched(touched) = self { touched.size() } else { 0 };
        size_of::<Self>() + more
    }
}

/// The sending end of the reader's queue, for the event loop.
pub(crate) struct ReaderQueue {
    runtime: Arc<Runtime>,
    heard: backlog::BacklogSender<ReaderEvent>,
    /// The number of dropped events, and when the first was dropped, until the reader is notified.
    dropped: Option<(u64, Instant)>,
}

impl ReaderQueue {
    pub(super) fn new(runtime: Arc<Runtime>) -> (Self, BacklogReceiver<ReaderEvent>) {
        let (sender, heard) = backlog(MAX_READER_QUEUE_BYTES);
        (Self { runtime, heard: sender, dropped: None }, heard)
    }

    /// Adds an event without waiting. After a drop, the reader first receives [`ReaderEvent::Dropped`].
    pub(crate) fn push_event(&mut self, heard: ReaderEvent) {
        if let Some((count, since)) = self.dropped
            && self.heard.push_again(ReaderEvent::Dropped)
        {
            let for_ms = since.elapsed().as_millis() as u64;
            warn!(count, for_ms, "events of attached keys were dropped: the queue of 64 MiB was full");
            self.dropped = None;
        }
        let expired = if let ReaderEvent::Expired(partition, _) = heard { Some(partition) } else { None };
        if self.dropped.is_none() {
            if self.heard.push(heard) {
                return;
            }
            self.runtime.stats.gaps.add(1);
            warn!("attached keys expire faster than their expiries can be recorded: dropping events");
            self.dropped = Some((0, Instant::now()));
        }
        if let Some((count, _)) = &mut self.dropped {
            *count += 1;
        }
        if let Some(partition) = expired {
            self.runtime.partitions[partition].topic.attached.lost_untracked.add(1);
        }
    }
}

/// A checked key. It is kept while its verdict is not proven.
struct CheckedKey {
    partition: usize,
    watch: TrackedKey,
    /// The server's time of the check.
    stamp: ServerTime,
    /// The number of the last heartbeat before the answer to the check.
    touched: u64,
    /// None if its deadline was read on this server. Otherwise the report of the former server, if there was one.
    there: Option<Option<FormerOwnerReport>>,
    room: ReadReservation,
}

/// The state that the readers of all servers share.
#[derive(Clone)]
pub(crate) struct ReaderContext {
    pub(super) runtime: Arc<Runtime>,
    pub(super) prompts: Arc<Prompts>,
    pub(super) deadlines: Arc<KnownDeadlines>,
    pub(super) writers: Arc<HashMap<usize, Writes>>,
    pub(super) readers: Readers,
}

/// Processes the event stream of one server for all attached topics of a listener.
pub(crate) struct StreamReader {
    desk: ReaderContext,
    node: Arc<NodeState>,
    /// The other servers. None for the only server.
    peers: Option<Peers>,
    /// The sending end of this reader's own requests.
    own_requests: mpsc::Sender<ReaderRequest>,
    stream: Stream,
    touches: mpsc::Sender<KeyRead>,
    /// The requests whose reads have no answer yet, by the number of the read.
    pending: HashMap<u64, (ReaderRequest, SentAt)>,
    next_touch: u64,
    unproven: Vec<CheckedKey>,
    /// Deleted keys whose tracking ends with the next heartbeat, with their partitions.
    deleted: Vec<(usize, DeadlineReading)>,
    /// Expiries that are not recorded yet.
    held: PendingExpiries,
    /// Keys that replaced servers announced, to be checked here once this server is confirmed. If this server was
    /// replaced, the keys that it announced wait here until another server owns their slots.
    replaced: ReplacedServerKeys,
    asking: PeerQuery,
    silent_since: Option<Instant>,
    /// True until the first heartbeat after the start of the listener: expiries are ignored until then. If a server
    /// joins later, all its expiries count.
    deaf: bool,
}

impl StreamReader {
    /// Creates a reader. Also returns its queue of requests.
    pub(crate) fn new(
        desk: ReaderContext,
        node: Arc<NodeState>,
        peers: Option<Peers>,
        touches: mpsc::Sender<KeyRead>,
    ) -> (Self, mpsc::Receiver<ReaderRequest>) {
        let (own_requests, requests) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let reader = Self {
            stream: Stream::of(node.name()),
            held: PendingExpiries::new(peers.is_none()),
            deaf: peers.as_ref().is_none_or(|peers| peers.is_first),
            desk,
            node,
            peers,
            own_requests,
            touches,
            pending: HashMap::new(),
            next_touch: 0,
            unproven: Vec::new(),
            deleted: Vec::new(),
            replaced: ReplacedServerKeys::default(),
            asking: PeerQuery::default(),
            silent_since: None,
        };
        (reader, requests)
    }

    /// Returns the sending end of the requests to this reader.
    pub(super) fn requests(&self) -> mpsc::Sender<ReaderRequest> {
        self.own_requests.clone()
    }

    /// Processes events and requests until the queue of events is closed. Then it passes unconfirmed keys on to other
    /// readers.
    pub(super) async fn run(
        mut self,
        mut heard: BacklogReceiver<ReaderEvent>,
        mut requests: mpsc::Receiver<ReaderRequest>,
    ) {
        loop {
            tokio::select! {
                heard = heard.recv() => match heard {
                    Some(heard) => self.handle_event(heard).await,
                    None => break,
                },
                Some(request) = requests.recv() => self.handle_request(request).await,
                standing = self.asking.answer() => self.apply_role(standing).await,
                () = tokio::time::sleep(ASK_AGAIN), if self.has_to_pass_on() => self.pass_on(),
            }
            self.fire_closed_gaps().await;
            self.ask_peers();
        }
        requests.close();
        while let Ok(request) = requests.try_recv() {
            if let ReaderRequest::Replaced(by, keys) = request {
                self.keep_replaced(by, keys);
            }
        }
        drop(requests);
        self.retire().await;
    }

    async fn handle_request(&mut self, request: ReaderRequest) {
        match request {
            ReaderRequest::Judge(moved) => self.judge_moved(moved).await,
            request => self.submit_request(request),
        }
    }

    /// Returns whether expiries are recorded immediately, and keys can be checked. No event is missing then, and no
    /// other server can have replaced this one.
    fn is_trusted(&self) -> bool {
        self.held.is_confirmed() && self.stream.is_anchored()
    }

    async fn handle_event(&mut self, heard: ReaderEvent) {
        match heard {
            ReaderEvent::Expired(partition, key) => self.expired(partition, key).await,
            ReaderEvent::Gone(key) => self.gone(key),
            ReaderEvent::Canary(canary) => self.canary(canary).await,
            ReaderEvent::Touched(touched) => self.handle_read_reply(touched).await,
            ReaderEvent::CanaryUnverified(number) => self.name_gap_by_unverified(number),
            ReaderEvent::Server { node, at } => self.connected_to(node, at),
            ReaderEvent::Lost => self.missed(),
            ReaderEvent::Disconnected => self.disconnected(EventMode::ScanOnly),
            ReaderEvent::NoSubscription => self.disconnected(EventMode::Unsubscribed),
            ReaderEvent::Silent => self.silent(),
            ReaderEvent::Dropped => self.dropped(),
        }
    }

    /// Processes a heartbeat.
    async fn canary(&mut self, canary: Canary) {
        let was_anchored = self.stream.is_anchored();
        let unbroken = self.stream.canary(canary);
        if !unbroken {
            self.held.close_gap(false);
            if was_anchored {
                // A heartbeat out of turn shows that events were missed.
                self.mark_unconfirmed();
            }
        }
        (self.silent_since, self.deaf) = (None, false);
        let hidden = self.runtime.attached_topics().any(|topic| topic.refusals.hide_keys());
        let heard = EventMode::of(canary.writes, canary.expires);
        let mode = if hidden { EventMode::Unreadable } else { heard };
        let (is_alone, is_confirmed) = (self.peers.is_none(), self.held.is_confirmed());
        self.runtime.learn(&self.node, |known| {
            known.can_track = is_confirmed;
            known.mode = mode;
            known.gaps += u64::from(!unbroken && is_alone);
        });
        if !unbroken {
            self.unproven.clear();
            self.name_gap_expiries(canary.number);
        } else if self.stream.is_untimed() && !self.asks_for_the_time() {
            self.submit_request(ReaderRequest::Anchor(Vec::new()));
        }
        if is_confirmed && !unbroken {
            self.resume_confirmed().await;
        }
        self.runtime.learn(&self.node, |known| known.anchored = is_confirmed);
        self.look_at_replaced();
        self.judge_unproven().await;
        self.forget_deleted().await;
    }

    /// Processes the expiry of a key.
    async fn expired(&mut self, partition: usize, key: Bytes) {
        self.deadlines.forget(&key);
        let since = self.stream.since();
        match self.stream.expired(&key) {
            Some(at) if self.held.is_confirmed() => {
                let arming = arming_id_of(&key, at, false);
                let note = AnnouncedExpiry { key, identity: ExpiryIdentity::Anchored { at, since }, arming };
                self.write(partition, Write::Note(note), ReadReservation::default()).await;
            }
            Some(at) => {
                let fits = self.held.add_positioned(PositionedExpiry { partition, key, at, since });
                self.found_room(partition, fits);
            }
            None if !self.deaf => {
                let fits = self.held.add_in_gap(key);
                self.found_room(partition, fits);
            }
            None => self.topic(partition).attached.before_heartbeat.add(1),
        }
    }

    /// Processes the deletion or renaming of a key. A read then shows whether the key is gone, so that its tracking can
    /// end.
    fn gone(&mut self, key: Bytes) {
        self.stream.gone(&key);
        self.deadlines.forget(&key);
        self.prompts.add(key, PromptReason::Changed);
    }

    async fn write(&self, partition: usize, write: Write, room: ReadReservation) {
        if let Some(writer) = self.writers.get(&partition) {
            writer.send(write, room).await;
        }
    }

    /// Counts an expiry for which there was no space. Its key fires only if it is tracked.
    fn found_room(&self, partition: usize, fits: bool) {
        if fits {
            return;
        }
        let topic = self.topic(partition);
        if topic.attached.lost_untracked.get() == 0 {
            warn!(topic = %topic.config.name, "too many attached keys expire in one gap: dropping events");
        }
        topic.attached.lost_untracked.add(1);
    }

    fn topic(&self, partition: usize) -> &RunningTopic {
        &self.runtime.partitions[partition].topic
    }
}

impl Deref for StreamReader {
    type Target = ReaderContext;

    fn deref(&self) -> &ReaderContext {
        &self.desk
    }
}

/// Returns the arming ID of a lapse. It is equal for all listeners that received the expiry: a mixed FNV-1a hash of its
/// identity.
fn arming_id_of(key: &[u8], at: Position, in_gap: bool) -> ArmingId {
    let bytes = key.iter().copied().chain(at.canary.to_be_bytes()).chain(at.count.to_be_bytes());
    let bytes = bytes.chain(in_gap.then_some(1)).chain(at.node.as_bytes().iter().copied());
    let hash = fnv1a(bytes);
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ArmingId((mixed ^ (mixed >> 29)).to_be_bytes())
}

#[cfg(test)]
mod tests;
