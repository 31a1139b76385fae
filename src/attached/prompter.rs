//! Requests reads of keys after events of their change. A listener has one prompter.
//!
//! A web session, for example, is extended with each HTTP request. If the index already has a deadline of a key, the
//! prompter requests only a read of the new deadline. One call reads all keys that changed within 50 ms. Usually nothing
//! else is needed. A new key is read immediately, with its value.

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

/// How long keys are gathered before their deadlines alone are read.
const GATHER_TIME: Duration = Duration::from_millis(50);
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
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest time between two scans that find the keys of dropped prompts.
const MIN_RESCAN_INTERVAL: Duration = Duration::from_secs(10);
/// How often the prompter checks for which topics this listener tracks keys.
const DUTY_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Keys of one partition that are read together.
#[derive(Debug)]
struct PromptBatch {
    partition: usize,
    keys: Vec<Bytes>,
    capture: CopySpec,
    /// True to read only deadlines first: see `ReaderRequest::TrackUncovered`.
    deadlines_only: bool,
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
    context: ReaderContext,
    budget: ReadBudget,
    /// Keys whose deadlines alone are to be read, by partition.
    gathered: BTreeMap<usize, HashSet<Bytes>>,
    /// The bytes of all keys that were gathered since `gathering_since`.
    gathered_bytes: usize,
    /// When the first of these keys was gathered.
    gathering_since: Option<Instant>,
    ready: ReadyBatches,
    reading: JoinSet<()>,
    /// For each attached topic, whether this listener tracked its written keys when that was last checked.
    tracked_topics: Vec<bool>,
    last_rescan: Option<Instant>,
    has_dropped_prompts: bool,
}

impl Prompter {
    pub(crate) fn new(context: ReaderContext, budget: ReadBudget) -> Self {
        Self {
            context,
            budget,
            gathered: BTreeMap::new(),
            gathered_bytes: 0,
            gathering_since: None,
            ready: ReadyBatches::default(),
            reading: JoinSet::new(),
            tracked_topics: Vec::new(),
            last_rescan: None,
            has_dropped_prompts: false,
        }
    }

    /// Requests reads until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut state = self.context.runtime.stream_state.subscribe();
        let prompts = self.context.prompts.clone();
        loop {
            // While batches of deadlines are ready, more keys are gathered, each of them once.
            let is_free = self.ready.deadlines.is_empty();
            let due = self.gathering_since.filter(|_| is_free).map(|since| since + GATHER_TIME);
            tokio::select! {
                () = prompts.wait_for_news(), if self.ready.len() < MAX_READY_BATCHES && self.gathered_bytes < MAX_GATHERED_BYTES => self.divide_prompts(),
                () = until_due(due) => self.make_gathered_ready(),
                Some(_) = self.reading.join_next() => {}
                () = tokio::time::sleep(DUTY_POLL_INTERVAL) => {}
            }
            self.update_tracked_topics();
            // A read in a gap has no position. The keys wait until the gap has ended.
            if state.wait_for(|known| known.can_track).await.is_err() {
                return;
            }
            self.start_reads();
            self.rescan_if_dropped();
        }
    }

    /// Checks for which topics this listener tracks written keys. Invalidates the known deadlines if it starts to track
    /// keys of one: until then, only other listeners have followed the changes of its keys.
    fn update_tracked_topics(&mut self) {
        let tracked_topics: Vec<_> = self
            .context
            .runtime
            .attached_topics()
            .map(|topic| topic.tracks_written_keys.load(Ordering::Relaxed))
            .collect();
        let before = std::mem::replace(&mut self.tracked_topics, tracked_topics);
        if self.tracked_topics.iter().zip(before).any(|(now, before)| *now && !before) {
            self.context.deadlines.invalidate_all();
        }
    }

    /// Takes all prompts. New and wanted keys become ready immediately, and other keys are gathered. Skips changed keys of
    /// topics whose keys other listeners track.
    fn divide_prompts(&mut self) {
        let prompted = self.context.prompts.take_all();
        if prompted.dropped > 0 {
            self.context.runtime.stats.prompts_dropped.add(prompted.dropped);
            self.has_dropped_prompts = true;
        }
        let mut fresh: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
        for (key, why) in prompted.keys {
            let Some(partition) = self.context.runtime.route(&key) else { continue };
            let topic = &self.context.runtime.partitions[partition].topic;
            let Some(policy) = &topic.config.attach else { continue };
            let wanted = why == PromptReason::Wanted;
            if !wanted && !topic.tracks_written_keys.load(Ordering::Relaxed) {
                continue;
            }
            if wanted || self.context.deadlines.is_new(&key) {
                fresh.entry(partition).or_default().push(key);
            } else if !(policy.only_extended && self.context.deadlines.is_covered_if_extended(&key)) {
                self.gather(partition, key);
            }
        }
        for (partition, keys) in fresh {
            let capture = self.context.runtime.partitions[partition].topic.policy().capture();
            self.push_batches(partition, &keys, &capture, false);
        }
    }

    fn gather(&mut self, partition: usize, key: Bytes) {
        self.gathered_bytes += key.len();
        self.gathering_since.get_or_insert_with(Instant::now);
        let keys = self.gathered.entry(partition).or_default();
        keys.insert(key);
        if keys.len() >= MAX_GATHERED_KEYS {
            let keys: Vec<_> = keys.drain().collect();
            self.push_batches(partition, &keys, &CopySpec::default(), true);
        }
    }

    fn make_gathered_ready(&mut self) {
        (self.gathering_since, self.gathered_bytes) = (None, 0);
        for (partition, keys) in std::mem::take(&mut self.gathered) {
            self.push_batches(partition, &keys.into_iter().collect::<Vec<_>>(), &CopySpec::default(), true);
        }
    }

    fn push_batches(&mut self, partition: usize, keys: &[Bytes], capture: &CopySpec, deadlines_only: bool) {
        for keys in keys.chunks(capture.keys_in_touch()) {
            self.ready.push(PromptBatch {
                partition,
                keys: keys.to_vec(),
                capture: capture.clone(),
                deadlines_only,
            });
        }
    }

    fn start_reads(&mut self) {
        while self.reading.len() < MAX_READS_IN_FLIGHT
            && let Some(batch) = self.ready.pop()
        {
            self.reading.spawn(batch.read(self.context.readers.clone(), self.budget.clone()));
        }
    }

    /// Requests a scan if prompts were dropped, to find their keys. A scan also runs after each gap, so a gap is counted.
    fn rescan_if_dropped(&mut self) {
        if self.has_dropped_prompts && self.last_rescan.is_none_or(|at| at.elapsed() >= MIN_RESCAN_INTERVAL) {
            self.has_dropped_prompts = false;
            self.last_rescan = Some(Instant::now());
            warn!("attached keys change faster than they can be read: a scan finds the dropped keys");
            for node in self.context.runtime.nodes.all() {
                self.context.runtime.update_stream(&node, |known| known.gaps += 1);
            }
        }
    }
}

impl PromptBatch {
    /// Requests reads of the keys. Returns when the results are written, or after `READ_TIMEOUT`.
    async fn read(self, readers: Readers, budget: ReadBudget) {
        let Self { partition, keys, capture, deadlines_only } = self;
        let room = budget.reserve(keys.len(), keys.iter().map(Bytes::len).sum(), &capture).await;
        let mut all_written = Vec::new();
        for (reader, keys) in readers.divide_by_reader(keys, |key| key) {
            let (done, written) = oneshot::channel();
            let (capture, room) = (capture.clone(), room.clone());
            let read = TrackRequest {
                prompted: true,
                done: Some(done),
                room,
                ..TrackRequest::of(partition, keys, capture)
            };
            let _ = reader
                .send(if deadlines_only {
                    ReaderRequest::TrackUncovered(read)
                } else {
                    ReaderRequest::Track(read)
                })
                .await;
            all_written.push(written);
        }
        let _ = timeout(READ_TIMEOUT, join_all(all_written)).await;
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
            runtime.update_stream(&node, |known| known.can_track = true);
            runtime
                .attached_topics()
                .for_each(|topic| topic.tracks_written_keys.store(true, Ordering::Relaxed));
            let (asking, asked) = mpsc::channel(1000);
            let readers = Readers::new(runtime.client.store.topology());
            readers.add(NodeId::NONE, None, asking);
            let (prompts, deadlines) = (Arc::<Prompts>::default(), Arc::new(KnownDeadlines::new()));
            let budget = ReadBudget::new(ByteGauge::default());
            let (prompts_read, known) = (prompts.clone(), deadlines.clone());
            let context = ReaderContext {
                runtime,
                prompts: prompts_read,
                deadlines: known,
                writers: Arc::default(),
                readers,
            };
            let prompter = Prompter::new(context, budget);
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
            let keys = self.prompts.take_all().keys;
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
            let pending = scene.deadlines.add_pending(&key, 4_000_000_000_000, ServerTime::from_ms(1));
            scene.deadlines.confirm(pending.expect("there is room"));
            scene.prompt(key, PromptReason::Changed).await;
        }
        assert_eq!(scene.waiting(), 3000 - (8 << 20) / 4096);
        tokio::time::sleep(2 * GATHER_TIME).await;
        assert_eq!(scene.waiting(), 0);
    }

    #[test]
    fn deadlines_are_read_before_values_and_each_in_their_order() {
        let mut ready = ReadyBatches::default();
        for (partition, cap) in [(0, 64), (1, 0), (2, 0), (3, 64), (4, 0)] {
            let capture = CopySpec { cap, ..CopySpec::default() };
            ready.push(PromptBatch { partition, keys: Vec::new(), capture, deadlines_only: cap == 0 });
        }
        assert_eq!(ready.len(), 5);
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).map(|batch| batch.partition).collect();
        assert_eq!(order, [1, 2, 4, 0, 3]);
    }
}
