//! Reads the stream of a server: gives each expiry its identity, has keys touched, and judges what was found.
//!
//! It never waits for the server: what is to be done there is a writer's. Where one has all that it can hold, the
//! reader waits for it, and nobody but attached topics for the reader. Wake-ups and fences of other topics come in the same
//! stream, and must not wait for a partition that is parked. So the event loop leaves here what is the reader's, and goes on.

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

use crate::attached::held::{Held, Placed, Replaced};
use crate::attached::known::KnownDeadlines;
use crate::attached::reader::standing::{ASK_AGAIN, Asking};
use crate::attached::request::{Readers, Request, Sent, Taken, There};
use crate::attached::stream::Stream;
use crate::attached::writer::{Write, Writes};
use crate::backlog::{self, Item, Receiver, backlog};
use crate::events::{Canary, Prompt, Prompts, Touch, Touched};
use crate::id::ArmingId;
use crate::log::warn;
use crate::runtime::{EventMode, NodeState, RunningTopic, Runtime};
use crate::time::ServerTime;
use crate::wire::{Enrolment, Identity, NodeId, Note, Position, Watch, fnv1a};

/// Bytes that may wait for the reader: some two million short keys. A drop is a gap.
const WAITING: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Requests that may wait.
const REQUESTS: usize = 1024;
/// Keys that were heard to be deleted, and are forgotten with the next canary.
const DELETED: usize = 100_000;

/// What the reader is told.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A key of this partition has expired.
    Expired(usize, Bytes),
    /// A key was deleted or renamed.
    Gone(Bytes),
    Canary(Canary),
    /// A canary of this number that is not believed.
    Hearsay(u64),
    Touched(Touched),
    /// The server is this one from here on.
    Server {
        node: NodeId,
        at: String,
    },
    /// From here on, events are missing.
    Lost,
    /// The subscription is gone.
    Disconnected,
    /// And no other can be had.
    NoSubscription,
    /// No canary was heard when one should have been.
    Silent,
    /// What found no room here, answers to touches among it.
    Dropped,
}

/// The tag of a key that is gone; that of one that has expired is its partition.
const GONE: u32 = u32::MAX;

impl Item for Heard {
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

/// The end of the queue at which the event loop speaks.
pub(crate) struct Ear {
    runtime: Arc<Runtime>,
    heard: backlog::Sender<Heard>,
    /// How many events found no room, and since when; that is not said yet.
    dropped: Option<(u64, Instant)>,
}

impl Ear {
    pub(super) fn new(runtime: Arc<Runtime>) -> (Self, Receiver<Heard>) {
        let (sender, heard) = backlog(WAITING);
        (Self { runtime, heard: sender, dropped: None }, heard)
    }

    /// Never waits. That something found no room is said before anything else is let in.
    pub(crate) fn hear(&mut self, heard: Heard) {
        if let Some((count, since)) = self.dropped
            && self.heard.push_again(Heard::Dropped)
        {
            let for_ms = since.elapsed().as_millis() as u64;
            warn!(
                count,
                for_ms, "events of attached keys were dropped, since they could not be written down"
            );
            self.dropped = None;
        }
        let expired = if let Heard::Expired(partition, _) = heard { Some(partition) } else { None };
        if self.dropped.is_none() {
            if self.heard.push(heard) {
                return;
            }
            self.runtime.stats.gaps.add(1);
            warn!("attached keys expire faster than that can be written down: events are dropped");
            self.dropped = Some((0, Instant::now()));
        }
        if let Some((count, _)) = &mut self.dropped {
            *count += 1;
        }
        if let Some(partition) = expired {
            self.runtime.partitions[partition].topic.attached.lost_unenrolled.add(1);
        }
    }
}

/// A check of a key, and what was found: kept where nothing is proven yet.
struct Looked {
    partition: usize,
    watch: Watch,
    /// When it was touched, and behind which canary.
    stamp: ServerTime,
    touched: u64,
    /// What was heard where it was before, if its deadline was read there.
    there: Option<Option<There>>,
    room: Taken,
}

/// What the readers of all servers share.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(super) runtime: Arc<Runtime>,
    pub(super) prompts: Arc<Prompts>,
    pub(super) deadlines: Arc<KnownDeadlines>,
    pub(super) writers: Arc<HashMap<usize, Writes>>,
    pub(super) readers: Readers,
}

/// Reads the stream of one server for all attached topics of a listener.
pub(crate) struct StreamReader {
    desk: Desk,
    node: Arc<NodeState>,
    /// The others; none, where it is the only server.
    peers: Option<Peers>,
    /// Where it is asked itself.
    own_requests: mpsc::Sender<Request>,
    stream: Stream,
    touches: mpsc::Sender<Touch>,
    /// Whose touches are on their way, and when each was sent.
    pending: HashMap<u64, (Request, Sent)>,
    next_touch: u64,
    unproven: Vec<Looked>,
    /// Keys that were heard to be deleted, and are gone: to be forgotten, by partition.
    deleted: Vec<(usize, Enrolment)>,
    /// Heard, and not noted yet.
    held: Held,
    /// What others have announced that were replaced, to be looked at here once this server is believed; and what this one
    /// has, until somebody else is known to have the slots.
    replaced: Replaced,
    asking: Asking,
    silent_since: Option<Instant>,
    /// A program that has just begun hears nothing before its first canary. A server that comes later it hears from its first
    /// word.
    deaf: bool,
}

impl StreamReader {
    /// And where it is asked.
    pub(crate) fn new(
        desk: Desk,
        node: Arc<NodeState>,
        peers: Option<Peers>,
        touches: mpsc::Sender<Touch>,
    ) -> (Self, mpsc::Receiver<Request>) {
        let (own_requests, requests) = mpsc::channel(REQUESTS);
        let reader = Self {
            stream: Stream::of(node.name()),
            held: Held::new(peers.is_none()),
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
            replaced: Replaced::default(),
            asking: Asking::default(),
            silent_since: None,
        };
        (reader, requests)
    }

    /// Where it is asked.
    pub(super) fn requests(&self) -> mpsc::Sender<Request> {
        self.own_requests.clone()
    }

    /// Until nobody hears anything any more.
    pub(super) async fn run(mut self, mut heard: Receiver<Heard>, mut requests: mpsc::Receiver<Request>) {
        loop {
            tokio::select! {
                heard = heard.recv() => match heard {
                    Some(heard) => self.heard(heard).await,
                    None => break,
                },
                Some(request) = requests.recv() => self.requested(request).await,
                standing = self.asking.answer() => self.told(standing).await,
                () = tokio::time::sleep(ASK_AGAIN), if self.has_to_pass_on() => self.pass_on(),
            }
            self.fire_torn().await;
            self.ask_peers();
        }
        requests.close();
        while let Ok(request) = requests.try_recv() {
            if let Request::Replaced(by, keys) = request {
                self.keep_replaced(by, keys);
            }
        }
        drop(requests);
        self.retire().await;
    }

    async fn requested(&mut self, request: Request) {
        match request {
            Request::Judge(moved) => self.judge_moved(moved).await,
            request => self.asked(request),
        }
    }

    /// Whether what is announced is noted at once, and keys can be looked at: nothing is missing, and nobody can have
    /// taken its place.
    fn is_trusted(&self) -> bool {
        self.held.is_confirmed() && self.stream.is_anchored()
    }

    async fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Expired(partition, key) => self.expired(partition, key).await,
            Heard::Gone(key) => self.gone(key),
            Heard::Canary(canary) => self.canary(canary).await,
            Heard::Touched(touched) => self.touched(touched).await,
            Heard::Hearsay(number) => self.name_by_hearsay(number),
            Heard::Server { node, at } => self.connected_to(node, at),
            Heard::Lost => self.missed(),
            Heard::Disconnected => self.disconnected(EventMode::Blind),
            Heard::NoSubscription => self.disconnected(EventMode::Unsubscribed),
            Heard::Silent => self.silent(),
            Heard::Dropped => self.dropped(),
        }
    }

    /// A canary was heard.
    async fn canary(&mut self, canary: Canary) {
        let was_anchored = self.stream.is_anchored();
        let unbroken = self.stream.canary(canary);
        if !unbroken {
            self.held.tear(false);
            if was_anchored {
                // One that is out of turn is a gap itself.
                self.doubt();
            }
        }
        (self.silent_since, self.deaf) = (None, false);
        let hidden = self.runtime.attached_topics().any(|topic| topic.refusals.hide_keys());
        let heard = EventMode::of(canary.writes, canary.expires);
        let mode = if hidden { EventMode::Unreadable } else { heard };
        let (is_alone, is_confirmed) = (self.peers.is_none(), self.held.is_confirmed());
        self.runtime.learn(&self.node, |known| {
            known.can_enrol = is_confirmed;
            known.mode = mode;
            known.gaps += u64::from(!unbroken && is_alone);
        });
        if !unbroken {
            self.unproven.clear();
            self.name_unsure(canary.number);
        } else if self.stream.is_untimed() && !self.asks_for_the_time() {
            self.asked(Request::Anchor(Vec::new()));
        }
        if is_confirmed && !unbroken {
            self.believe().await;
        }
        self.runtime.learn(&self.node, |known| known.anchored = is_confirmed);
        self.look_at_replaced();
        self.judge_unproven().await;
        self.forget_deleted().await;
    }

    /// A key of an attached topic has expired.
    async fn expired(&mut self, partition: usize, key: Bytes) {
        self.deadlines.forget(&key);
        let since = self.stream.since();
        match self.stream.expired(&key) {
            Some(at) if self.held.is_confirmed() => {
                let arming = identity(&key, at, false);
                let note = Note { key, identity: Identity::Anchored { at, since }, arming };
                self.write(partition, Write::Note(note), Taken::default()).await;
            }
            Some(at) => {
                let fits = self.held.place(Placed { partition, key, at, since });
                self.found_room(partition, fits);
            }
            None if !self.deaf => {
                let fits = self.held.hear(key);
                self.found_room(partition, fits);
            }
            None => self.topic(partition).attached.deaf.add(1),
        }
    }

    /// A key was deleted or renamed: what was known of it is not any more.
    fn gone(&mut self, key: Bytes) {
        self.stream.gone(&key);
        self.deadlines.forget(&key);
        self.prompts.add(key, Prompt::Changed);
    }

    async fn write(&self, partition: usize, write: Write, room: Taken) {
        if let Some(writer) = self.writers.get(&partition) {
            writer.send(write, room).await;
        }
    }

    /// What is heard and cannot be kept fires only if it was enrolled.
    fn found_room(&self, partition: usize, fits: bool) {
        if fits {
            return;
        }
        let topic = self.topic(partition);
        if topic.attached.lost_unenrolled.get() == 0 {
            warn!(topic = %topic.config.name, "more keys expire in a gap than can be kept: events are dropped");
        }
        topic.attached.lost_unenrolled.add(1);
    }

    fn topic(&self, partition: usize) -> &RunningTopic {
        &self.runtime.partitions[partition].topic
    }
}

impl Deref for StreamReader {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

/// The arming of a lapse, which is the same for whoever has heard it: FNV-1a of what names it, mixed.
fn identity(key: &[u8], at: Position, in_gap: bool) -> ArmingId {
    let bytes = key.iter().copied().chain(at.canary.to_be_bytes()).chain(at.count.to_be_bytes());
    let bytes = bytes.chain(in_gap.then_some(1)).chain(at.node.as_bytes().iter().copied());
    let hash = fnv1a(bytes);
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ArmingId((mixed ^ (mixed >> 29)).to_be_bytes())
}

#[cfg(test)]
mod tests;
