//! Reads keys that were heard to change. One for each listener.
//!
//! A session is extended with each request: of a key whose deadline the index has already, nothing but the deadline
//! is read, together with all that were written in the same fraction of a second, and mostly that is all. A key
//! that is new is read at once, with its value.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::attached::reader::Desk;
use crate::attached::request::{Read, Readers, Request, Room};
use crate::events::Prompt;
use crate::log::warn;
use crate::policy::Capture;
use crate::rounds::until_due;

/// For so long keys are gathered of which the deadline alone is read.
const GATHER: Duration = Duration::from_millis(50);
/// Or until there are so many. Where that is sooner, few were written twice, and what the server needs to find each
/// is still in its processor's cache.
const ENOUGH: usize = 250;
/// Readings on their way, until what they have led to is written: enough for a machine on which each step of the way
/// waits for its turn. Of readings with values, there are as many as there is room for.
const AT_ONCE: usize = 32;
/// Beyond so many that are ready to be read, or bytes that are gathered, prompts wait where they are heard.
const READY: usize = 32;
const GATHERED: usize = 8 << 20;
/// How long a reading may take before others are made.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Prompts that found no room are made good by a scan; the next no sooner than after this.
const RESCAN: Duration = Duration::from_secs(10);
/// How often somebody looks who enrols which topic.
const LOOK: Duration = Duration::from_secs(1);

/// Keys of one partition that are read together.
#[derive(Debug)]
struct Batch {
    partition: usize,
    keys: Vec<Bytes>,
    capture: Capture,
    /// Whether they are known, so that one glance at their deadlines may do.
    known: bool,
}

/// What is ready to be read: a logout does not wait for the values of new sessions, and neither for those that log out
/// after it.
#[derive(Debug, Default)]
struct Ready {
    deadlines: VecDeque<Batch>,
    values: VecDeque<Batch>,
}

impl Ready {
    fn push(&mut self, batch: Batch) {
        let queue = if batch.capture.cap > 0 { &mut self.values } else { &mut self.deadlines };
        queue.push_back(batch);
    }

    fn pop(&mut self) -> Option<Batch> {
        self.deadlines.pop_front().or_else(|| self.values.pop_front())
    }

    fn len(&self) -> usize {
        self.deadlines.len() + self.values.len()
    }
}

/// Reads what is prompted.
pub(crate) struct Prompter {
    desk: Desk,
    room: Room,
    /// By partition, and since when the first of them waits.
    gathered: BTreeMap<usize, HashSet<Bytes>>,
    bytes: usize,
    since: Option<Instant>,
    ready: Ready,
    reading: JoinSet<()>,
    /// Whether each attached topic was this listener's to enrol, when somebody last looked.
    enrolling: Vec<bool>,
    rescanned: Option<Instant>,
    missing: bool,
}

impl Prompter {
    pub(crate) fn new(desk: Desk, room: Room) -> Self {
        Self {
            desk,
            room,
            gathered: BTreeMap::new(),
            bytes: 0,
            since: None,
            ready: Ready::default(),
            reading: JoinSet::new(),
            enrolling: Vec::new(),
            rescanned: None,
            missing: false,
        }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut state = self.desk.runtime.stream_state.subscribe();
        let prompts = self.desk.prompts.clone();
        loop {
            // Until then keys are still gathered, each once.
            let is_free = self.ready.deadlines.is_empty();
            let due = self.since.filter(|_| is_free).map(|since| since + GATHER);
            tokio::select! {
                () = prompts.news(), if self.ready.len() < READY && self.bytes < GATHERED => self.sort(),
                () = until_due(due) => self.ready_gathered(),
                Some(_) = self.reading.join_next() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            self.look();
            // What is read in a gap has no position, and what waits is read after it.
            if state.wait_for(|known| known.can_enrol).await.is_err() {
                return;
            }
            self.read();
            self.rescan();
        }
    }

    /// A topic that others have enrolled meanwhile is not what it was.
    fn look(&mut self) {
        let enrolling: Vec<_> =
            self.desk.runtime.attached_topics().map(|topic| topic.scanning.load(Ordering::Relaxed)).collect();
        let before = std::mem::replace(&mut self.enrolling, enrolling);
        if self.enrolling.iter().zip(before).any(|(now, before)| *now && !before) {
            self.desk.deadlines.doubt();
        }
    }

    /// Tells what is read at once from what can wait, and both from what is not ours to read.
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
            let wanted = why == Prompt::Wanted;
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
        if keys.len() >= ENOUGH {
            let keys: Vec<_> = keys.drain().collect();
            self.make_ready(partition, &keys, &Capture::default(), true);
        }
    }

    fn ready_gathered(&mut self) {
        (self.since, self.bytes) = (None, 0);
        for (partition, keys) in std::mem::take(&mut self.gathered) {
            self.make_ready(partition, &keys.into_iter().collect::<Vec<_>>(), &Capture::default(), true);
        }
    }

    fn make_ready(&mut self, partition: usize, keys: &[Bytes], capture: &Capture, known: bool) {
        for keys in keys.chunks(capture.keys_in_touch()) {
            self.ready.push(Batch { partition, keys: keys.to_vec(), capture: capture.clone(), known });
        }
    }

    fn read(&mut self) {
        while self.reading.len() < AT_ONCE
            && let Some(batch) = self.ready.pop()
        {
            self.reading.spawn(batch.read(self.desk.readers.clone(), self.room.clone()));
        }
    }

    /// Has the database scanned for what found no room.
    fn rescan(&mut self) {
        if self.missing && self.rescanned.is_none_or(|at| at.elapsed() >= RESCAN) {
            self.missing = false;
            self.rescanned = Some(Instant::now());
            warn!("attached keys change faster than they can be read: a scan finds what was left out");
            for node in self.desk.runtime.nodes.all() {
                self.desk.runtime.learn(&node, |known| known.gaps += 1);
            }
        }
    }
}

impl Batch {
    /// Until it is written what follows from it, or that cannot be.
    async fn read(self, readers: Readers, room: Room) {
        let Self { partition, keys, capture, known } = self;
        let room = room.take(keys.len(), keys.iter().map(Bytes::len).sum(), &capture).await;
        let mut all_written = Vec::new();
        for (reader, keys) in readers.share_out(keys, |key| key) {
            let (done, written) = oneshot::channel();
            let (capture, room) = (capture.clone(), room.clone());
            let read = Read { prompted: true, done: Some(done), room, ..Read::of(partition, keys, capture) };
            let _ = reader.send(if known { Request::Glance(read) } else { Request::Read(read) }).await;
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
    use crate::runtime::{Gauge, NodeState};
    use crate::time::ServerTime;
    use crate::wire::NodeId;
    use crate::{Attached, Done, Expired, Failure, Lapse, Listener, Topic};

    /// The prompter of the topic `a:{id}`, which runs; and what it asks for, which nobody answers.
    struct Scene {
        prompts: Arc<Prompts>,
        deadlines: Arc<KnownDeadlines>,
        asked: mpsc::Receiver<Request>,
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
            runtime.learn(&node, |known| known.can_enrol = true);
            runtime.attached_topics().for_each(|topic| topic.scanning.store(true, Ordering::Relaxed));
            let (asking, asked) = mpsc::channel(1000);
            let readers = Readers::new(runtime.client.store.topology());
            readers.add(NodeId::NONE, None, asking);
            let (prompts, deadlines) = (Arc::<Prompts>::default(), Arc::new(KnownDeadlines::new()));
            let room = Room::new(Gauge::default());
            let (prompts_read, known) = (prompts.clone(), deadlines.clone());
            let desk =
                Desk { runtime, prompts: prompts_read, deadlines: known, writers: Arc::default(), readers };
            let prompter = Prompter::new(desk, room);
            let mut running = JoinSet::new();
            running.spawn(prompter.run());
            Self { prompts, deadlines, asked, _running: running }
        }

        /// No time passes.
        async fn prompt(&self, key: Bytes, why: Prompt) {
            self.prompts.add(key, why);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        /// Prompts that wait where they are heard.
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
            scene.prompt(format!("a:{number}").into(), Prompt::Wanted).await;
        }
        assert_eq!(scene.waiting(), 100 - 32 - 32, "some are on their way, and some are ready");
        drop(scene.asked.try_recv());
        scene.prompt("a:100".into(), Prompt::Wanted).await;
        assert_eq!(scene.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_eight_mebibytes_of_keys_that_are_gathered_prompts_wait_until_these_are_read() {
        let scene = Scene::start();
        for number in 0..3000 {
            let key = Bytes::from(format!("a:{number:04094}"));
            let pending = scene.deadlines.pend(&key, 4_000_000_000_000, ServerTime::from_ms(1));
            scene.deadlines.confirm(pending.expect("there is room"));
            scene.prompt(key, Prompt::Changed).await;
        }
        assert_eq!(scene.waiting(), 3000 - (8 << 20) / 4096);
        tokio::time::sleep(2 * GATHER).await;
        assert_eq!(scene.waiting(), 0);
    }

    #[test]
    fn deadlines_are_read_before_values_and_each_in_their_order() {
        let mut ready = Ready::default();
        for (partition, cap) in [(0, 64), (1, 0), (2, 0), (3, 64), (4, 0)] {
            let capture = Capture { cap, ..Capture::default() };
            ready.push(Batch { partition, keys: Vec::new(), capture, known: cap == 0 });
        }
        assert_eq!(ready.len(), 5);
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).map(|batch| batch.partition).collect();
        assert_eq!(order, [1, 2, 4, 0, 3]);
    }
}
