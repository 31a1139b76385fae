//! Reads the stream: gives each expiry its identity, has keys touched, and judges what was found.
//!
//! It never waits for the server: what is to be done there is a writer's. Where one has all that it can hold, the
//! reader waits for it, and nobody but attached topics for the reader.

mod judging;

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::attached::ear::Heard;
use crate::attached::request::{Read, Request};
use crate::attached::stream::Stream;
use crate::attached::writer::Write;
use crate::events::{Canary, Change, Touch, Touched};
use crate::id::ArmingId;
use crate::limits::fit;
use crate::log::warn;
use crate::policy::Capture;
use crate::runtime::{EventMode, RunningTopic, Runtime};
use crate::time::ServerTime;
use crate::wire::{Enrolment, MAX_BATCH, Note, Position, Watch, fnv1a};

/// After so long without a canary nothing will be proven by the next, if there was one before.
const SILENT: Duration = Duration::from_secs(5);
/// Keys that were heard in a gap, and are kept until it is over.
const AMBIGUOUS: usize = 100_000;
/// Keys that were heard to be written, and are kept until they can be read.
const PROMPTED: usize = 100_000;
/// Keys in one touch, at most, and about so many bytes of their values.
const TOUCH_KEYS: usize = 500;
const TOUCH_BYTES: usize = 4 << 20;

/// A check of a key that is gone, and of which nothing is proven yet.
struct Unproven {
    partition: usize,
    watch: Watch,
    /// When it was touched, and behind which canary.
    stamp: ServerTime,
    touched: u64,
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
    /// Heard to expire in a gap, and how often.
    ambiguous: HashMap<Bytes, u32>,
    silent_since: Option<Instant>,
    /// Keys that were heard to be written, by partition.
    prompted: HashMap<usize, HashSet<Bytes>>,
    /// Touches on behalf of events that are on their way.
    prompting: usize,
    writers: HashMap<usize, mpsc::Sender<Write>>,
}

impl StreamReader {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        touches: mpsc::Sender<Touch>,
        writers: HashMap<usize, mpsc::Sender<Write>>,
    ) -> Self {
        Self {
            runtime,
            stream: Stream::default(),
            touches,
            pending: HashMap::new(),
            next_touch: 0,
            unproven: Vec::new(),
            deleted: Vec::new(),
            ambiguous: HashMap::new(),
            silent_since: None,
            prompted: HashMap::new(),
            prompting: 0,
            writers,
        }
    }

    /// Until nobody hears anything any more.
    pub(super) async fn run(
        mut self,
        mut heard: mpsc::Receiver<Heard>,
        mut requests: mpsc::Receiver<Request>,
    ) {
        loop {
            tokio::select! {
                heard = heard.recv() => match heard {
                    Some(heard) => self.heard(heard).await,
                    None => return,
                },
                Some(request) = requests.recv() => self.asked(request),
            }
            self.read_prompted();
        }
    }

    async fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Expired(partition, key) => self.expired(partition, key).await,
            Heard::Changed(partition, key, change) => self.changed(partition, key, change),
            Heard::Canary(canary) => self.canary(canary).await,
            Heard::Touched(touched) => self.touched(touched).await,
            Heard::Lost => self.lost(),
            Heard::Disconnected => self.disconnected(),
            Heard::Silent => self.silent(),
            Heard::Dropped => self.dropped(),
        }
    }

    /// A canary was heard.
    async fn canary(&mut self, canary: Canary) {
        let unbroken = self.stream.canary(canary);
        self.silent_since = None;
        self.runtime.stream_state.update(|known| {
            known.mode = EventMode::of(canary.writes, canary.expires);
            known.gaps += u64::from(!unbroken);
        });
        if !unbroken {
            self.unproven.clear();
            self.asked(Request::Anchor);
            self.fire_ambiguous().await;
        }
        self.runtime.stream_state.update(|known| known.anchored = true);
        self.judge_unproven().await;
        self.forget_deleted().await;
    }

    /// From here on something may be missing.
    fn lost(&mut self) {
        self.stream.lose();
        self.unproven.clear();
        self.runtime.stream_state.update(|known| known.anchored = false);
    }

    /// The subscription is gone, and with it what was asked on its connection.
    fn disconnected(&mut self) {
        self.dropped();
        self.unheard();
    }

    /// Events are missing, and maybe answers to touches: who has asked asks again.
    fn dropped(&mut self) {
        self.lost();
        self.pending.clear();
        self.prompting = 0;
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
            self.runtime.stream_state.update(|known| known.mode = EventMode::Blind);
        }
    }

    /// A key of an attached topic has expired.
    async fn expired(&mut self, partition: usize, key: Bytes) {
        match self.stream.expired(&key) {
            Some(at) => {
                let arming = identity(&key, at);
                self.write(partition, Write::Note(Note { key, at: Some(at), arming })).await;
            }
            None if self.stream.began() && self.ambiguous.len() < AMBIGUOUS => {
                *self.ambiguous.entry(key).or_default() += 1;
            }
            None => self.topic(partition).attached.deaf.add(1),
        }
    }

    /// A key that was watched or is to be has changed.
    fn changed(&mut self, partition: usize, key: Bytes, change: Change) {
        if change == Change::Gone {
            self.stream.gone(&key);
        }
        if !self.topic(partition).scanning.load(Ordering::Relaxed) {
            return;
        }
        let keys = self.prompted.entry(partition).or_default();
        if keys.len() < PROMPTED {
            keys.insert(key);
        }
    }

    /// Reads keys that were heard to be written: a few at a time, so that what is written again and again
    /// is read once.
    fn read_prompted(&mut self) {
        if self.prompting >= 2 || self.prompted.is_empty() || !self.can_enrol() {
            return;
        }
        let mut prompted = mem::take(&mut self.prompted);
        for (partition, waiting) in &mut prompted {
            let capture = self.topic(*partition).policy().capture;
            let keys = waiting.extract_if(|_| true).take(keys_in_touch(capture)).collect();
            let read = Read { prompted: true, ..Read::of(*partition, keys, capture) };
            self.prompting += usize::from(self.send(Request::Read(read)));
        }
        prompted.retain(|_, waiting| !waiting.is_empty());
        self.prompted = prompted;
    }

    /// What is read in a gap has no position, unless nothing has.
    fn can_enrol(&self) -> bool {
        self.stream.is_anchored() || self.runtime.stream_state.known().mode == EventMode::Blind
    }

    /// Somebody asks.
    fn asked(&mut self, request: Request) {
        match request {
            Request::Look { partition, watches, capture } => {
                for watches in watches.chunks(keys_in_touch(capture)) {
                    self.send(Request::Look { partition, watches: watches.to_vec(), capture });
                }
            }
            // In a gap nothing can be enrolled: whoever asks, asks again.
            Request::Read(_) if !self.can_enrol() => {}
            Request::Read(mut read) => {
                let most = keys_in_touch(read.capture);
                while read.keys.len() > most {
                    let rest = read.keys.split_off(read.keys.len() - most);
                    self.send(Request::Read(Read::of(read.partition, rest, read.capture)));
                }
                self.send(Request::Read(read));
            }
            Request::Anchor => _ = self.send(Request::Anchor),
            Request::Late => self.lost(),
        }
    }

    /// Whether the touch was sent. What is not is asked for again: looks come back by themselves, scans
    /// and events are followed by scans.
    fn send(&mut self, request: Request) -> bool {
        let (keys, capture) = match &request {
            Request::Look { watches, capture, .. } => {
                (watches.iter().map(|watch| watch.key.clone()).collect(), *capture)
            }
            Request::Read(read) => (read.keys.clone(), read.capture),
            Request::Anchor | Request::Late => (Vec::new(), Capture::default()),
        };
        self.next_touch += 1;
        let id = self.next_touch;
        let sent = self.touches.try_send(Touch { id, keys, capture }).is_ok();
        if sent {
            self.pending.insert(id, (request, self.stream.heard));
        }
        sent
    }

    /// A touch was answered. Everything that was published before it has been read.
    async fn touched(&mut self, touched: Touched) {
        let Some((request, sent)) = self.pending.remove(&touched.id) else { return };
        if matches!(request, Request::Read(Read { prompted: true, .. })) {
            self.prompting -= 1;
        }
        let Some(answer) = touched.answer else { return };
        match request {
            Request::Anchor => {
                self.stream.anchored_at(answer.0);
                self.judge_unproven().await;
            }
            Request::Look { partition, watches, .. } => self.look(partition, watches, answer, sent).await,
            Request::Read(read) => self.enrol(read, answer, sent).await,
            Request::Late => {}
        }
    }

    /// What was heard in a gap may have been noted by others or not: rather twice than never.
    async fn fire_ambiguous(&mut self) {
        let ambiguous = mem::take(&mut self.ambiguous);
        if !ambiguous.is_empty() {
            warn!(
                count = ambiguous.len(),
                "keys were heard to expire in a gap: their handlers may run twice"
            );
        }
        for (key, times) in ambiguous {
            let Some(partition) = self.runtime.route(&key) else { continue };
            for _ in 0..times {
                self.note_ambiguous(partition, key.clone()).await;
            }
        }
    }

    async fn note_ambiguous(&self, partition: usize, key: Bytes) {
        self.topic(partition).attached.ambiguous.add(1);
        self.write(partition, Write::Note(Note { key, at: None, arming: ArmingId::random() })).await;
    }

    /// Whether it was heard to expire in this gap, once for each time.
    fn take_ambiguous(&mut self, key: &Bytes) -> bool {
        let Some(times) = self.ambiguous.get_mut(key) else { return false };
        *times -= 1;
        if *times == 0 {
            self.ambiguous.remove(key);
        }
        true
    }

    async fn write(&self, partition: usize, write: Write) {
        if let Some(writer) = self.writers.get(&partition) {
            let _ = writer.send(write).await;
        }
    }

    fn topic(&self, partition: usize) -> &RunningTopic {
        &self.runtime.partitions[partition].topic
    }
}

fn keys_in_touch(capture: Capture) -> usize {
    fit(TOUCH_BYTES, TOUCH_KEYS, Some(capture.cap))
}

/// The arming of a lapse, which is the same for whoever has heard it: FNV-1a of what names it, mixed.
fn identity(key: &[u8], at: Position) -> ArmingId {
    let bytes = key.iter().copied().chain(at.canary.to_be_bytes()).chain(at.count.to_be_bytes());
    let hash = fnv1a(bytes);
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ArmingId((mixed ^ (mixed >> 29)).to_be_bytes())
}

const _: () = assert!(TOUCH_KEYS <= MAX_BATCH);
