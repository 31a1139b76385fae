//! Processes the event stream of one server: identifies each expiry, reads keys, and decides on the results.
//!
//! - `reads` sends the reads of requests, and passes their answers to the module that requested them.
//! - `judging` tracks the deadlines that were read, and decides on checked keys.
//! - `gap` begins a gap when events may have been missed, and records the expiries that arrived in it.
//! - `role` confirms the role of one of several servers, and passes keys on to the servers that replaced it.
//!
//! The reader does not wait for calls to the server: writers make them. If a writer is full, the reader waits for it,
//! which delays attached topics only. The event stream also has wake-ups and fences of other topics, and these must not
//! wait for a parked partition. Therefore the event loop adds events to the reader's queue and continues.

mod gap;
mod judging;
mod reads;
mod role;

pub(crate) use self::role::Peers;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::attached::known::KnownDeadlines;
use crate::attached::pending::{PendingExpiries, PositionedExpiry, ReplacedServerKeys};
use crate::attached::reader::role::{ROLE_RETRY_DELAY, RoleQuery};
use crate::attached::request::{FormerOwnerReport, ReadReservation, ReaderRequest, Readers, SentAt};
use crate::attached::stream::Stream;
use crate::attached::writer::{Write, WriteSender};
use crate::backlog::{self, BacklogReceiver, Item, backlog};
use crate::events::{Canary, KeyRead, KeyReadReply, PromptReason, Prompts};
use crate::id::ArmingId;
use crate::log::warn;
use crate::runtime::{EventMode, NodeState, RunningTopic, Runtime};
use crate::time::ServerTime;
use crate::wire::{AnnouncedExpiry, DeadlineReading, ExpiryIdentity, NodeId, Position, TrackedKey, fnv1a};

/// Maximum bytes in the reader's queue: about two million short keys. A dropped event begins a gap.
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
    Deleted(Bytes),
    /// A heartbeat that this listener accepts.
    Canary(Canary),
    /// A heartbeat with this number that this listener has not verified.
    CanaryUnverified(u64),
    /// The answer to a read. All events before it in the queue were published before the read.
    KeysRead(KeyReadReply),
    /// The events that follow are of this server.
    Server { node: NodeId, at: String },
    /// Events were lost at this point.
    Lost,
    /// The subscription has ended.
    Disconnected,
    /// The server cannot be subscribed to.
    NoSubscription,
    /// No heartbeat arrived in time.
    Silent,
    /// Events, and possibly answers to reads, were dropped because the queue was full.
    Dropped,
}

/// The tag of a deleted key in the queue. An expired key has its partition as the tag.
const DELETED_TAG: u32 = u32::MAX;

impl Item for ReaderEvent {
    fn split(self) -> Result<(u32, Bytes), Self> {
        match self {
            Self::Deleted(key) => Ok((DELETED_TAG, key)),
            Self::Expired(partition, key) => Ok((u32::try_from(partition).unwrap_or(DELETED_TAG), key)),
            other => Err(other),
        }
    }

    fn join(tag: u32, key: Bytes) -> Self {
        if tag == DELETED_TAG { Self::Deleted(key) } else { Self::Expired(tag as usize, key) }
    }

    fn size(&self) -> usize {
        let more = if let Self::KeysRead(reply) = self { reply.size() } else { 0 };
        size_of::<Self>() + more
    }
}

/// The sending end of the reader's queue, for the event loop.
pub(crate) struct ReaderQueue {
    runtime: Arc<Runtime>,
    sender: backlog::BacklogSender<ReaderEvent>,
    /// The number of dropped events, and when the first was dropped. None once the reader has been notified.
    dropped: Option<(u64, Instant)>,
}

impl ReaderQueue {
    pub(super) fn new(runtime: Arc<Runtime>) -> (Self, BacklogReceiver<ReaderEvent>) {
        let (sender, events) = backlog(MAX_READER_QUEUE_BYTES);
        (Self { runtime, sender, dropped: None }, events)
    }

    /// Adds an event without waiting. After a drop, the reader first receives [`ReaderEvent::Dropped`].
    pub(crate) fn push_event(&mut self, event: ReaderEvent) {
        if let Some((count, since)) = self.dropped
            && self.sender.push_again(ReaderEvent::Dropped)
        {
            let for_ms = since.elapsed().as_millis() as u64;
            warn!(count, for_ms, "events of attached keys were dropped: the queue of 64 MiB was full");
            self.dropped = None;
        }
        let expired = if let ReaderEvent::Expired(partition, _) = event { Some(partition) } else { None };
        if self.dropped.is_none() {
            if self.sender.push(event) {
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

/// A key that was read at its deadline, for its verdict.
struct CheckedKey {
    partition: usize,
    tracked: TrackedKey,
    /// The server's time of the check.
    stamp: ServerTime,
    /// The number of the last heartbeat before the answer to the check. A later one proves that no event was missed.
    checked_after: u64,
    /// None if its deadline was read on this server. Otherwise the report of the server on which it was read, which is
    /// None if that server cannot report.
    former_report: Option<Option<FormerOwnerReport>>,
    room: ReadReservation,
}

/// The state that the readers of all servers share.
#[derive(Clone)]
pub(crate) struct ReaderContext {
    pub(super) runtime: Arc<Runtime>,
    pub(super) prompts: Arc<Prompts>,
    pub(super) deadlines: Arc<KnownDeadlines>,
    pub(super) writers: Arc<HashMap<usize, WriteSender>>,
    pub(super) readers: Readers,
}

/// Processes the event stream of one server for all attached topics of a listener.
pub(crate) struct StreamReader {
    context: ReaderContext,
    node: Arc<NodeState>,
    /// The servers that report the role of this one. None for the only server.
    peers: Option<Peers>,
    /// The sending end of this reader's own requests.
    own_requests: mpsc::Sender<ReaderRequest>,
    stream: Stream,
    /// Sends reads to the session of the server.
    key_reads: mpsc::Sender<KeyRead>,
    /// The requests whose reads have no answer yet, by the ID of the read.
    reads_in_flight: HashMap<u64, (ReaderRequest, SentAt)>,
    last_read_id: u64,
    /// Checked keys whose verdict is not proven. The next heartbeat decides on them.
    unproven: Vec<CheckedKey>,
    /// Deleted keys whose tracking ends with the next heartbeat, with their partitions.
    deleted: Vec<(usize, DeadlineReading)>,
    /// Expiries that are not recorded yet.
    pending: PendingExpiries,
    /// Keys that replaced servers announced, to be checked here once this server is confirmed. If this server was
    /// replaced, the keys that it announced wait here until another server owns their slots.
    replaced_keys: ReplacedServerKeys,
    role_query: RoleQuery,
    /// When the heartbeats stopped. None if the last one arrived.
    silent_since: Option<Instant>,
    /// True until the first heartbeat of a server that was a primary when the listener started. Expiries are ignored until
    /// then, as other listeners may have recorded them. If a server joins later, all its expiries count.
    awaits_first_canary: bool,
}

impl StreamReader {
    /// Creates a reader. Also returns its queue of requests.
    pub(crate) fn new(
        context: ReaderContext,
        node: Arc<NodeState>,
        peers: Option<Peers>,
        key_reads: mpsc::Sender<KeyRead>,
    ) -> (Self, mpsc::Receiver<ReaderRequest>) {
        let (own_requests, requests) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let reader = Self {
            stream: Stream::of(node.name()),
            pending: PendingExpiries::new(peers.is_none()),
            awaits_first_canary: peers.as_ref().is_none_or(|peers| peers.was_primary_at_start),
            context,
            node,
            peers,
            own_requests,
            key_reads,
            reads_in_flight: HashMap::new(),
            last_read_id: 0,
            unproven: Vec::new(),
            deleted: Vec::new(),
            replaced_keys: ReplacedServerKeys::default(),
            role_query: RoleQuery::default(),
            silent_since: None,
        };
        (reader, requests)
    }

    /// Returns the sending end of the queue of requests.
    pub(super) fn request_sender(&self) -> mpsc::Sender<ReaderRequest> {
        self.own_requests.clone()
    }

    /// Processes events and requests until the queue of events is closed. Then it passes the keys of pending expiries on
    /// to the readers of other servers.
    pub(super) async fn run(
        mut self,
        mut events: BacklogReceiver<ReaderEvent>,
        mut requests: mpsc::Receiver<ReaderRequest>,
    ) {
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.handle_event(event).await,
                    None => break,
                },
                Some(request) = requests.recv() => self.handle_request(request).await,
                role = self.role_query.finished() => self.apply_role(role).await,
                () = tokio::time::sleep(ROLE_RETRY_DELAY), if self.has_to_pass_on() => self.pass_on(),
            }
            self.record_closed_gaps().await;
            self.query_role();
        }
        requests.close();
        while let Ok(request) = requests.try_recv() {
            if let ReaderRequest::CheckReplaced(by, keys) = request {
                self.keep_replaced(by, keys);
            }
        }
        drop(requests);
        self.retire().await;
    }

    async fn handle_request(&mut self, request: ReaderRequest) {
        match request {
            ReaderRequest::DecideMoved(moved) => self.decide_moved(moved).await,
            request => self.submit_request(request),
        }
    }

    /// Returns whether expiries are recorded immediately, and keys can be checked. No event is missing then, and no
    /// other server can have replaced this one.
    fn is_trusted(&self) -> bool {
        self.pending.is_confirmed() && self.stream.is_anchored()
    }

    async fn handle_event(&mut self, event: ReaderEvent) {
        match event {
            ReaderEvent::Expired(partition, key) => self.on_expired(partition, key).await,
            ReaderEvent::Deleted(key) => self.on_deleted(key),
            ReaderEvent::Canary(canary) => self.on_canary(canary).await,
            ReaderEvent::KeysRead(reply) => self.handle_read_reply(reply).await,
            ReaderEvent::CanaryUnverified(number) => self.identify_gap_by_unverified(number),
            ReaderEvent::Server { node, at } => self.on_server(node, at),
            ReaderEvent::Lost => self.on_events_lost(),
            ReaderEvent::Disconnected => self.on_disconnected(EventMode::ScanOnly),
            ReaderEvent::NoSubscription => self.on_disconnected(EventMode::Unsubscribed),
            ReaderEvent::Silent => self.on_silent(),
            ReaderEvent::Dropped => self.on_dropped(),
        }
    }

    /// Processes a heartbeat. If it ends a gap, identifies the expiries of the gap. Otherwise it proves that no event was
    /// missed since the last one, and decides on unproven and deleted keys.
    async fn on_canary(&mut self, canary: Canary) {
        let was_anchored = self.stream.is_anchored();
        let unbroken = self.stream.apply_canary(canary);
        if !unbroken {
            self.pending.close_gap(false);
            if was_anchored {
                // The heartbeat does not follow the last one, so events were missed.
                self.mark_unconfirmed();
            }
        }
        (self.silent_since, self.awaits_first_canary) = (None, false);
        let hidden = self.runtime.attached_topics().any(|topic| topic.refusals.hide_keys());
        let received = EventMode::of_changes(canary.writes, canary.expires);
        let mode = if hidden { EventMode::Unreadable } else { received };
        let (is_alone, is_confirmed) = (self.peers.is_none(), self.pending.is_confirmed());
        self.runtime.update_stream(&self.node, |known| {
            known.can_track = is_confirmed;
            known.mode = mode;
            known.gaps += u64::from(!unbroken && is_alone);
        });
        if !unbroken {
            self.unproven.clear();
            self.identify_gap_expiries(canary.number);
        } else if self.stream.lacks_anchor_time() && !self.is_reading_anchor_time() {
            self.submit_request(ReaderRequest::Anchor(Vec::new()));
        }
        if is_confirmed && !unbroken {
            self.resume_confirmed().await;
        }
        self.runtime.update_stream(&self.node, |known| known.anchored = is_confirmed);
        self.check_replaced_keys();
        self.decide_unproven().await;
        self.untrack_deleted().await;
    }

    /// Processes the expiry of a key: records it, or keeps it in `pending` in a gap or until the server is confirmed.
    async fn on_expired(&mut self, partition: usize, key: Bytes) {
        self.deadlines.forget(&key);
        let since = self.stream.anchor_number();
        match self.stream.apply_expiry(&key) {
            Some(at) if self.pending.is_confirmed() => {
                let arming = arming_id_of(&key, at, false);
                let note = AnnouncedExpiry { key, identity: ExpiryIdentity::Anchored { at, since }, arming };
                self.write(partition, Write::RecordExpiry(note), ReadReservation::default()).await;
            }
            Some(at) => {
                let fits = self.pending.add_positioned(PositionedExpiry { partition, key, at, since });
                self.count_if_dropped(partition, fits);
            }
            None if !self.awaits_first_canary => {
                let fits = self.pending.add_in_gap(key);
                self.count_if_dropped(partition, fits);
            }
            None => self.topic(partition).attached.before_heartbeat.add(1),
        }
    }

    /// Processes the deletion or renaming of a key. Prompts a read of the key, as its tracking ends if it is gone.
    fn on_deleted(&mut self, key: Bytes) {
        self.stream.apply_deletion(&key);
        self.deadlines.forget(&key);
        self.prompts.add(key, PromptReason::Changed);
    }

    async fn write(&self, partition: usize, write: Write, room: ReadReservation) {
        if let Some(writer) = self.writers.get(&partition) {
            writer.send(write, room).await;
        }
    }

    /// Counts an expiry that did not fit into `pending`, and was dropped. Its key fires only if it is tracked.
    fn count_if_dropped(&self, partition: usize, fits: bool) {
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
        &self.context
    }
}

/// Returns the arming ID of the lapse of an expiry: a mixed FNV-1a hash of the expiry's identity. All listeners that
/// received the expiry compute the same ID.
fn arming_id_of(key: &[u8], at: Position, in_gap: bool) -> ArmingId {
    let bytes = key.iter().copied().chain(at.canary.to_be_bytes()).chain(at.count.to_be_bytes());
    let bytes = bytes.chain(in_gap.then_some(1)).chain(at.node.as_bytes().iter().copied());
    let hash = fnv1a(bytes);
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ArmingId((mixed ^ (mixed >> 29)).to_be_bytes())
}

#[cfg(test)]
mod tests;
