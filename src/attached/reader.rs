//! Reads the stream: gives each expiry its identity, has keys touched, and judges what was found.
//!
//! It never waits for the server: what is to be done there is a writer's. Where one has all that it can hold, the
//! reader waits for it, and nobody but attached topics for the reader.

mod judging;
mod unsure;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::attached::ear::Heard;
use crate::attached::known::KnownDeadlines;
use crate::attached::reader::unsure::Unsure;
use crate::attached::request::{Look, Read, Request};
use crate::attached::room::Taken;
use crate::attached::stream::Stream;
use crate::attached::writer::{Write, Writes};
use crate::backlog::Receiver;
use crate::escape::Escaped;
use crate::events::{Canary, Prompt, Prompts, Question, Touch, Touched};
use crate::id::ArmingId;
use crate::log::warn;
use crate::policy::Capture;
use crate::runtime::{Asked, EventMode, RunningTopic, Runtime};
use crate::time::ServerTime;
use crate::wire::{Enrolment, Identity, Note, Position, Watch, fnv1a};

/// After so long without a canary nothing will be proven by the next, if there was one before.
const SILENT: Duration = Duration::from_secs(5);
/// Keys that were heard to be deleted, and are forgotten with the next canary.
const DELETED: usize = 100_000;

/// A check of a key that is gone, and of which nothing is proven yet.
struct Unproven {
    partition: usize,
    watch: Watch,
    /// When it was touched, and behind which canary.
    stamp: ServerTime,
    touched: u64,
    room: Taken,
}

/// Reads the stream for all attached topics of a listener.
pub(crate) struct StreamReader {
    runtime: Arc<Runtime>,
    stream: Stream,
    touches: mpsc::Sender<Touch>,
    /// Whose touches are on their way, and the moment of the stream before each was sent.
    pending: HashMap<u64, (Request, u64)>,
    next_touch: u64,
    unproven: Vec<Unproven>,
    /// Keys that were heard to be deleted, and are gone: to be forgotten, by partition.
    deleted: Vec<(usize, Enrolment)>,
    /// Heard to expire in the last gap; and in those before, which is fired at once.
    unsure: Unsure,
    torn: Vec<Unsure>,
    silent_since: Option<Instant>,
    prompts: Arc<Prompts>,
    deadlines: Arc<KnownDeadlines>,
    writers: HashMap<usize, Writes>,
}

impl StreamReader {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        touches: mpsc::Sender<Touch>,
        prompts: Arc<Prompts>,
        deadlines: Arc<KnownDeadlines>,
        writers: HashMap<usize, Writes>,
    ) -> Self {
        Self {
            runtime,
            stream: Stream::default(),
            touches,
            pending: HashMap::new(),
            next_touch: 0,
            unproven: Vec::new(),
            deleted: Vec::new(),
            unsure: Unsure::default(),
            torn: Vec::new(),
            silent_since: None,
            prompts,
            deadlines,
            writers,
        }
    }

    /// Until nobody hears anything any more.
    pub(super) async fn run(mut self, mut heard: Receiver<Heard>, mut requests: mpsc::Receiver<Request>) {
        loop {
            tokio::select! {
                heard = heard.recv() => match heard {
                    Some(heard) => self.heard(heard).await,
                    None => return,
                },
                Some(request) = requests.recv() => self.asked(request),
            }
            self.fire_torn().await;
        }
    }

    async fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Expired(partition, key) => self.expired(partition, key).await,
            Heard::Gone(key) => self.gone(key),
            Heard::Canary(canary) => self.canary(canary).await,
            Heard::Touched(touched) => self.touched(touched).await,
            Heard::Hearsay(number) => self.name_by_hearsay(number),
            Heard::Lost => self.missed(),
            Heard::Disconnected => self.disconnected(),
            Heard::Silent => self.silent(),
            Heard::Dropped => self.dropped(),
        }
    }

    /// A canary was heard.
    async fn canary(&mut self, canary: Canary) {
        let unbroken = self.stream.canary(canary);
        if !unbroken {
            self.tear_unsure(false);
        }
        self.silent_since = None;
        let hidden = self.runtime.attached_topics().any(|topic| topic.refusals.hide_keys());
        let heard = EventMode::of(canary.writes, canary.expires);
        let mode = if hidden { EventMode::Unreadable } else { heard };
        self.runtime.stream_state.update(|known| {
            known.can_enrol = true;
            known.mode = mode;
            known.gaps += u64::from(!unbroken);
        });
        if !unbroken {
            self.unproven.clear();
            self.name_unsure(canary.number);
        } else if self.stream.is_untimed() && !self.asks_for_the_time() {
            self.asked(Request::Anchor(Vec::new()));
        }
        self.runtime.stream_state.update(|known| known.anchored = true);
        self.judge_unproven().await;
        self.forget_deleted().await;
    }

    /// From here on something may be missing.
    fn lost(&mut self) {
        self.stream.lose();
        self.tear_unsure(false);
        self.unproven.clear();
        self.deadlines.doubt();
        self.runtime.stream_state.update(|known| {
            known.anchored = false;
            known.can_enrol = known.mode == EventMode::Blind;
        });
    }

    /// Something is missing: so what was heard in a gap before cannot be counted to its end.
    fn missed(&mut self) {
        self.tear_unsure(true);
        self.lost();
    }

    /// The subscription is gone, and with it what was asked on its connection.
    fn disconnected(&mut self) {
        self.dropped();
        self.unheard();
    }

    /// Events are missing, and maybe answers to touches: who has asked asks again.
    fn dropped(&mut self) {
        self.missed();
        self.pending.clear();
    }

    /// No canary was heard when one should have been. Whoever is late hears the next one in its turn, and
    /// has missed nothing; but if that takes too long, nothing will ever be proven.
    fn silent(&mut self) {
        self.runtime.stream_state.update(|known| known.anchored = false);
        self.unheard();
    }

    fn unheard(&mut self) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SILENT || !self.stream.began() {
            self.lost();
            self.runtime.stream_state.update(|known| {
                known.mode = EventMode::Blind;
                known.can_enrol = true;
            });
        }
    }

    /// A key of an attached topic has expired.
    async fn expired(&mut self, partition: usize, key: Bytes) {
        self.deadlines.forget(&key);
        match self.stream.expired(&key) {
            Some(at) => {
                let arming = identity(&key, at, false);
                let identity = Identity::Anchored { at, since: self.stream.since() };
                let note = Note { key, identity, arming };
                self.write(partition, Write::Note(note), Taken::default()).await;
            }
            None if self.stream.began() => self.hear_unsure(partition, key),
            None => self.topic(partition).attached.deaf.add(1),
        }
    }

    /// A key was deleted or renamed: what was known of it is not any more.
    fn gone(&mut self, key: Bytes) {
        self.stream.gone(&key);
        self.deadlines.forget(&key);
        self.prompts.add(key, Prompt::Changed);
    }

    /// What is read in a gap has no position, unless nothing has.
    fn can_enrol(&self) -> bool {
        self.stream.is_anchored() || self.runtime.stream_state.known().mode == EventMode::Blind
    }

    fn asks_for_the_time(&self) -> bool {
        self.pending.values().any(|(request, _)| matches!(request, Request::Anchor(_)))
    }

    /// Somebody asks.
    fn asked(&mut self, request: Request) {
        match request {
            // In a gap nothing can be enrolled: whoever asks, asks again.
            Request::Glance(_) | Request::Read(_) if !self.can_enrol() => {}
            request @ (Request::Look(_) | Request::Glance(_)) => _ = self.send(request),
            Request::Read(mut read) => {
                let most = read.capture.keys_in_touch();
                while read.keys.len() > most {
                    let rest = read.keys.split_off(read.keys.len() - most);
                    self.send(Request::Read(Read::of(read.partition, rest, read.capture.clone())));
                }
                self.send(Request::Read(read));
            }
            Request::Anchor(mut keys) => {
                let rest = keys.split_off(keys.len().min(Capture::default().keys_in_touch()));
                if !self.send(Request::Anchor(keys)) {
                    return self.tear_unsure(false);
                }
                if !rest.is_empty() {
                    self.asked(Request::Anchor(rest));
                }
            }
            Request::Late => self.lost(),
        }
    }

    /// Whether the touch was sent. What is not is asked for again: looks come back by themselves, scans
    /// and events are followed by scans.
    fn send(&mut self, request: Request) -> bool {
        let all = |capture: &Capture| Question::Read { capture: capture.clone(), horizon: None };
        let (keys, question) = match &request {
            Request::Look(Look { watches, capture, horizon, .. }) => {
                let question = Question::Read { capture: capture.clone(), horizon: Some(*horizon) };
                (watches.iter().map(|watch| watch.key.clone()).collect(), question)
            }
            Request::Glance(read) => (read.keys.clone(), Question::Glance),
            Request::Read(read) => (read.keys.clone(), all(&read.capture)),
            Request::Anchor(keys) => (keys.clone(), all(&Capture::default())),
            Request::Late => (Vec::new(), all(&Capture::default())),
        };
        self.next_touch += 1;
        let id = self.next_touch;
        let sent = self.touches.try_send(Touch { id, keys, question }).is_ok();
        if sent {
            self.pending.insert(id, (request, self.stream.heard));
        }
        sent
    }

    /// A touch was answered. Everything that was published before it has been read.
    async fn touched(&mut self, touched: Touched) {
        let Some((request, sent)) = self.pending.remove(&touched.id) else { return };
        if let Request::Anchor(keys) = request {
            if let Some((time, _)) = &touched.answer {
                self.stream.anchored_at(*time);
            }
            self.note_unsure(keys, touched.answer).await;
            return self.judge_unproven().await;
        }
        self.refused(&request, &touched);
        let Some(answer) = touched.answer else { return };
        match request {
            Request::Look(look) => self.look(look, answer, sent).await,
            Request::Glance(read) => self.glanced(read, answer, sent).await,
            Request::Read(read) => self.enrol(read, answer, sent).await,
            Request::Anchor(_) | Request::Late => {}
        }
    }

    /// Whether the server refuses to have these keys read. That is said once, until it does not.
    fn refused(&self, request: &Request, touched: &Touched) {
        let (partition, key, count) = match request {
            Request::Look(Look { partition, watches, .. }) => {
                (*partition, watches.first().map(|one| &one.key), watches.len())
            }
            Request::Glance(read) | Request::Read(read) => {
                (read.partition, read.keys.first(), read.keys.len())
            }
            Request::Anchor(_) | Request::Late => return,
        };
        let (topic, Some(key)) = (self.topic(partition), key) else { return };
        if touched.answer.is_some() {
            topic.refusals.end(Asked::Read);
        }
        let Some(error) = &touched.refused else { return };
        topic.attached.refused_reads.add(count);
        let (key, rule) = (Escaped(key), format!("~{}*", topic.config.pattern.literal_prefix()));
        if topic.refusals.begin(Asked::Read, &format!("{key}: {error}; the rule is {rule}")) {
            warn!(topic = %topic.config.name, %key, %rule, %error, "attached keys cannot be read: a right is missing");
        }
    }

    async fn write(&self, partition: usize, write: Write, room: Taken) {
        if let Some(writer) = self.writers.get(&partition) {
            writer.send(write, room).await;
        }
    }

    fn topic(&self, partition: usize) -> &RunningTopic {
        &self.runtime.partitions[partition].topic
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
