//! Reads keys after events of their change. A listener has one prompter.
//!
//! A session is extended with each request. If the index already has the deadline of a key, the prompter reads only the
//! new deadline. One call reads all keys that changed within 50 ms. Usually nothing else is needed. A new key is read
//! immediately, with its value.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::attached::reader::ReaderContext;
use crate::attached::request::{ReadBudget, ReaderRequest, Readers, TrackRequest};
use crate::events::PromptReason;
use crate::log::warn;
use crate::policy::CopySpec;
use crate::rounds::until_due;

/// How long keys are gathered whose deadline alone is read.
const GATHER: Duration = Duration::from_millis(50);
/// A read begins earlier if a partition has gathered this many keys. Few of them changed twice by then, and their data
/// is still in the processor cache of the server.
const MAX_GATHERED_KEYS: usize = 250;
/// Maximum number of reads in flight, until their results are written. This is enough for a machine on which each step
/// waits for the processor. Reads with values are also limited by `ReadBudget`.
const MAX_READS_IN_FLIGHT: usize = 32;
/// Beyond this number of ready batches, or these bytes of gathered keys, prompts wait in `Prompts`.
const MAX_READY_BATCHES: usize = 32;
const MAX_GATHERED_BYTES: usize = 8 << 20;
/// A read that takes longer than this no longer counts as in flight.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Dropped prompts are found by a scan. This is the shortest time between two such scans.
const RESCAN: Duration = Duration::from_secs(10);
/// How often the prompter checks for which topics this listener tracks keys.
const DUTY_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Keys of one partition that are read together.
#[derive(Debug)]
struct PromptBatch {
    partition: usize,
    keys: Vec<Bytes>,
    capture: CopySpec,
    /// True if the deadlines alone are read first.
    known: bool,
}

/// Batches to read. Those without values come first, so that a logout does not wait for the values of new sessions.
/// Each kind keeps its order.
#[derive(Debug, Default)]
struct ReadyBatches {
    deadlines: VecDeque<PromptBatch>,
    values: VecDeque<PromptBatch>,
}

impl ReadyBatches {
    fn push(&mut self, batch: PromptBatch) {
        let queue = if batch.capture.cap > 0 { &mut self.values } else { &mut self.deadlines };
        queue.push_back(batch);
    }

    fn pop(&mut self) -> Option<PromptBatch> {
        self.deadlines.pop_front().or_else(|| self.values.pop_front())
    }

    fn len(&self) -> usize {
        self.deadlines.len() + self.values.len()
    }
}

/// Reads the keys that are in `Prompts`.
pub(crate) struct Prompter {
    desk: ReaderContext,
    room: ReadBudget,
    /// Keys whose deadlines alone are to be read, by partition.
    gathered: BTreeMap<usize, HashSet<Bytes>>,
    bytes: usize,
    /// When the first of these keys was gathered.
    since: Option<Instant>,
    ready: ReadyBatches,
    reading: JoinSet<()>,
    /// For each attached topic, true if this listener tracked its keys when it was last checked.
    enrolling: Vec<bool>,
    rescanned: Option<Instant>,
    missing: bool,
}

impl Prompter {
    pub(crate) fn new(desk: ReaderContext, room: ReadBudget) -> Self {
        Self {
            desk,
            room,
            gathered: BTreeMap::new(),
            bytes: 0,
            since: None,
            ready: ReadyBatches::default(),
            reading: JoinSet::new(),
            enrolling: Vec::new(),
            rescanned: None,
            missing: false,
        }
    }

    /// Reads keys until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut state = self.desk.runtime.stream_state.subscribe();
        let prompts = self.desk.prompts.clone();
        loop {
            // While batches of deadlines are ready, more keys are gathered, each of them once.
            let is_free = self.ready.deadlines.is_empty();
            let due = self.since.filter(|_| is_free).map(|since| since + GATHER);
            tokio::select! {
                () = prompts.news(), if self.ready.len() < MAX_READY_BATCHES && self.bytes < MAX_GATHERED_BYTES => self.sort(),
                () = until_due(due) => self.ready_gathered(),
                Some(_) = self.reading.join_next() => {}
                () = tokio::time::sleep(DUTY_POLL_INTERVAL) => {}
            }
            self.update_duties();
            // A read in a gap has no position. The keys wait until the gap has ended.
            if state.wait_for(|known| known.can_track).await.is_err() {
                return;
            }
            self.read();
            self.rescan();
        }
    }

    /// Invalidates the known deadlines if this listener starts to track keys of a topic. Until then, other listeners
    /// have changed its index.
    fn update_duties(&mut self) {
        let enrolling: Vec<_> =
            self.desk.runtime.attached_topics().map(|topic| topic.scanning.load(Ordering::Relaxed)).collect();
        let before = std::mem::replace(&mut self.enrolling, enrolling);
        if self.enrolling.iter().zip(before).any(|(now, before)| *now && !before) {
            self.desk.deadlines.invalidate_all();
        }
    }

    /// Divides the prompted keys: new keys are read immediately, and others are gathered. Skips topics whose keys other
    /// listeners track.
    fn sort(&mut self) {
        let prompted = self.desk.prompts.take();
        if prompted.dropped > 0 {
            self.desk.runtime.stats.prompts_dropped.add(prompted.dropped);
            self.missing = true;
        }
        let mut fresh: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
        for (key, why) in prompted.keys {
            let Some(partition) = self.desk.runtime.route(&key) else { continue };
            let topic = &self.desk.runtime.partitions[partition].topic;
            let Some(policy) = &topic.config.attach else { continue };
            let wanted = why == PromptReason::Wanted;
            if !wanted && !topic.scanning.load(Ordering::Relaxed) {
                continue;
            }
            if wanted || self.desk.deadlines.is_new(&key) {
                fresh.entry(partition).or_default().push(key);
            } else if !(policy.only_extended && self.desk.deadlines.is_certain(&key)) {
                self.gather(partition, key);
            }
        }
        for (partition, keys) in fresh {
            let capture = self.desk.runtime.partitions[partition].topic.policy().capture();
            self.make_ready(partition, &keys, &capture, false);
        }
    }

    fn gather(&mut self, partition: usize, key: Bytes) {
        self.bytes += key.len();
        self.since.get_or_insert_with(Instant::now);
        let keys = self.gathered.entry(partition).or_default();
        keys.insert(key);
        if keys.len() >= MAX_GATHERED_KEYS {
            let keys: Vec<_> = keys.drain().collect();
            self.make_ready(partition, &keys, &CopySpec::default(), true);
        }
    }

    fn ready_gathered(&mut self) {
        (self.since, self.bytes) = (None, 0);
        for (partition, keys) in std::mem::take(&mut self.gathered) {
            self.make_ready(partition, &keys.into_iter().collect::<Vec<_>>(), &CopySpec::default(), true);
        }
    }

    fn make_ready(&mut self, partition: usize, keys: &[Bytes], capture: &CopySpec, known: bool) {
        for keys in keys.chunks(capture.keys_in_touch()) {
            self.ready.push(PromptBatch { partition, keys: keys.to_vec(), capture: capture.clone(), known });
        }
    }

    fn read(&mut self) {
        while self.reading.len() < MAX_READS_IN_FLIGHT
            && let Some(batch) = self.ready.pop()
        {
            self.reading.spawn(batch.read(self.desk.readers.clone(), self.room.clone()));
        }
    }

    /// Requests a scan that finds the keys of dropped prompts.
    fn rescan(&mut self) {
        if self.missing && self.rescanned.is_none_or(|at| at.elapsed() >= RESCAN) {
            self.missing = false;
            self.rescanned = Some(Instant::now());
            warn!("attached keys change faster than they can be read: a scan finds the dropped keys");
            for node in self.desk.runtime.nodes.all() {
                self.desk.runtime.learn(&node, |known| known.gaps += 1);
            }
        }
    }
}

impl PromptBatch {
    /// Reads the keys. Returns when the results are written, or cannot be written in time.
    async fn read(self, readers: Readers, room: ReadBudget) {
        let Self { partition, keys, capture, known } = self;
        let room = room.take(keys.len(), keys.iter().map(Bytes::len).sum(), &capture).await;
        let mut all_written = Vec::new();
        for (reader, keys) in readers.share_out(keys, |key| key) {
            let (done, written) = oneshot::channel();
            let (capture, room) = (capture.clone(), room.clone());
            let read = TrackRequest {
                prompted: true,
                done: Some(done),
                room,
                ..TrackRequest::of(partition, keys, capture)
            };
            let _ = reader
                .send(if known { ReaderRequest::Glance(read) } else { ReaderRequest::Read(read) })
                .await;
            all_written.push(written);
        }
        let _ = timeout(READ_WITHIN, join_all(all_written)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;
    use crate::attached::known::KnownDeadlines;
    use crate::attached::request::Readers;
    use crate::events::Prompts;
    use crate::rig::Rig;
    use crate::runtime::{ByteGauge, NodeState};
    use crate::time::ServerTime;
    use crate::wire::NodeId;
    use crate::{Attached, Done, Expired, Failure, Lapse, Listener, Topic};

    /// The running prompter of the topic `a:{id}`. Its requests get no answer.
    struct Scene {
        prompts: Arc<Prompts>,
        deadlines: Arc<KnownDeadlines>,
        asked: mpsc::Receiver<ReaderRequest>,
        _running: JoinSet<()>,
    }

    impl Scene {
        fn start() -> Self {
            let bed = Rig::new();
            let lapsed = |_: Lapse<Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
            let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap().partitions(16));
            let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
            let (runtime, node) = (listener.runtime.clone(), NodeState::of(&listener.runtime));
            runtime.add_node(&node);
            runtime.learn(&node, |known| known.can_track = true);
            runtime.attached_topics().for_each(|topic| topic.scanning.store(true, Ordering::Relaxed));
            let (asking, asked) = mpsc::channel(1000);
            let readers = Readers::new(runtime.client.store.topology());
            readers.add(NodeId::NONE, None, asking);
            let (prompts, deadlines) = (Arc::<Prompts>::default(), Arc::new(KnownDeadlines::new()));
            let room = ReadBudget::new(ByteGauge::default());
            let (prompts_read, known) = (prompts.clone(), deadlines.clone());
            let desk = ReaderContext {
                runtime,
                prompts: prompts_read,
                deadlines: known,
                writers: Arc::default(),
                readers,
            };
            let prompter = Prompter::new(desk, room);
            let mut running = JoinSet::new();
            running.spawn(prompter.run());
            Self { prompts, deadlines, asked, _running: running }
        }

        /// Adds a prompt, and runs the prompter without advancing the time.
        async fn prompt(&self, key: Bytes, why: PromptReason) {
            self.prompts.add(key, why);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        /// Returns the number of keys that wait in `Prompts`.
        fn waiting(&self) -> usize {
            let keys = self.prompts.take().keys;
            keys.iter().for_each(|(key, why)| self.prompts.add(key.clone(), *why));
            keys.len()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_as_many_readings_as_are_on_their_way_prompts_wait_where_they_are_heard() {
        let mut scene = Scene::start();
        for number in 0..100 {
            scene.prompt(format!("a:{number}").into(), PromptReason::Wanted).await;
        }
        assert_eq!(scene.waiting(), 100 - 32 - 32, "32 reads are in flight, and 32 batches are ready");
        drop(scene.asked.try_recv());
        scene.prompt("a:100".into(), PromptReason::Wanted).await;
        assert_eq!(scene.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_eight_mebibytes_of_keys_that_are_gathered_prompts_wait_until_these_are_read() {
        let scene = Scene::start();
        for number in 0..3000 {
            let key = Bytes::from(format!("a:{number:04094}"));
            let pending = scene.deadlines.pend(&key, 4_000_000_000_000, ServerTime::from_ms(1));
            scene.deadlines.confirm(pending.expect("there is room"));
            scene.prompt(key, PromptReason::Changed).await;
        }
        assert_eq!(scene.waiting(), 3000 - (8 << 20) / 4096);
        tokio::time::sleep(2 * GATHER).await;
        assert_eq!(scene.waiting(), 0);
    }

    #[test]
    fn deadlines_are_read_before_values_and_each_in_their_order() {
        let mut ready = ReadyBatches::default();
        for (partition, cap) in [(0, 64), (1, 0), (2, 0), (3, 64), (4, 0)] {
            let capture = CopySpec { cap, ..CopySpec::default() };
            ready.push(PromptBatch { partition, keys: Vec::new(), capture, known: cap == 0 });
        }
        assert_eq!(ready.len(), 5);
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).map(|batch| batch.partition).collect();
        assert_eq!(order, [1, 2, 4, 0, 3]);
    }
}
