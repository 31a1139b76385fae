//! Keys of another program, beside the timers of a test: what costs those nothing must cost these nothing either.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keylapse::health::EventMode;
use keylapse_support::eventually;
use keylapse_testing::{LocalCluster, LocalNode, SentinelGroup};
use tokio::task::JoinHandle;

use crate::attached::scene::{Notes, Running, Writer};
use crate::support::PATIENCE;

const EVERY: Duration = Duration::from_millis(25);
/// In ms, and up to twice as long: so that most are enrolled before a fault, and many expire during it.
const LIFE: u64 = 2000;
/// Longer than a scan waits until it is settled whether a new primary announces anything: 6 s on an idle machine, up to
/// 15 s on a busy one. Then comes the time from one scan to the next.
const LONG_LIFE: u64 = 20_000;

/// A program that writes keys, and a listener that they are attached to.
pub(crate) struct Beside {
    notes: Notes,
    listener: Running,
    writer: Writer,
    life: u64,
    /// Answers which it may have written more than once.
    writing: JoinHandle<HashSet<String>>,
    written_again: HashSet<String>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    begun: AtomicUsize,
    enough: AtomicBool,
}

impl Beside {
    pub(crate) async fn start(cluster: &LocalCluster) -> Self {
        Self::at(&cluster.url(), Writer::new(cluster), LIFE, EventMode::Changes).await
    }

    /// Keys live long enough to be found where nothing is said of them, now (in this mode) or after a fault. A key counts
    /// once a replica has it, too.
    pub(crate) async fn scanned(cluster: &LocalCluster, mode: EventMode) -> Self {
        Self::at(&cluster.url(), Writer::durable(cluster, 1), LONG_LIFE, mode).await
    }

    /// On servers that sentinels watch.
    pub(crate) async fn watched(group: &SentinelGroup) -> Self {
        let servers = group.servers().iter().map(LocalNode::url).collect();
        Self::at(&group.url(), Writer::among(servers, 0), LIFE, EventMode::Changes).await
    }

    /// Begins when it is settled what the listener hears.
    async fn at(url: &str, writer: Writer, life: u64, mode: EventMode) -> Self {
        let (notes, state) = (Notes::default(), Arc::<State>::default());
        let listener = notes.listen(url);
        listener.until_anchored().await;
        let hears = async || listener.stats.mode() == mode;
        eventually(PATIENCE, "it to hear all servers", hears).await;
        let writing = writer.another().stream_of(state.clone().numbers(), EVERY, life);
        Self { notes, listener, writer, life, writing, written_again: HashSet::new(), state }
    }

    /// Does this harm to servers while nobody writes, and when all that was written is enrolled: of a key that was not, and
    /// that expires before there is an answer again, nobody knows.
    pub(crate) async fn harm<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.pause().await;
        let begun = self.state.begun.load(Ordering::Relaxed) as u64;
        let enrolled = || self.listener.stats.attached("orders").map_or(0, |stats| stats.tracked);
        eventually(PATIENCE, "all to be enrolled", async || enrolled() >= begun).await;
        let done = self.notes.harm(work).await;
        self.state.enough.store(false, Ordering::Relaxed);
        self.writing = self.writer.another().stream_of(self.state.clone().numbers(), EVERY, self.life);
        done
    }

    /// Does this harm while keys are written that live long enough to be found after it.
    pub(crate) async fn while_written<T>(&self, work: impl Future<Output = T>) -> T {
        self.notes.harm(work).await
    }

    async fn pause(&mut self) {
        self.state.enough.store(true, Ordering::Relaxed);
        let written_again = (&mut self.writing).await.unwrap();
        self.written_again.extend(written_again);
    }

    /// Waits until all that was written has expired and run: once, but for those whose handlers were told why again, or that
    /// began at the time of harm.
    pub(crate) async fn end(mut self) -> Notes {
        self.pause().await;
        let keys = self.state.begun.load(Ordering::Relaxed);
        self.notes.until_all(keys).await;
        self.listener.stop().await.unwrap();
        self.notes.assert_explained(keys, &self.written_again);
        self.notes
    }
}

impl State {
    /// From where the last have ended, until there are enough.
    fn numbers(self: Arc<Self>) -> impl Iterator<Item = usize> + Send {
        (self.begun.load(Ordering::Relaxed)..).take_while(move |number| {
            let enough = self.enough.load(Ordering::Relaxed);
            if !enough {
                self.begun.store(number + 1, Ordering::Relaxed);
            }
            !enough
        })
    }
}
