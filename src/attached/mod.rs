//! Attached topics: topics whose keys other programs write.
//!
//! The key in Redis is the truth, and keylapse tracks the deadline of each key that it has read. An announced expiry
//! becomes one lapse, identified by its position in the event stream of its server. Claims, leases, retries and dead
//! letters work as for all topics. docs/attach.md is the guide, and docs/attach-protocol.md explains why the protocol
//! is correct.
//!
//! A *heartbeat* (`Canary` in the code) is the expiry of a key that listeners create with a TTL of 1 ms. Heartbeats
//! prove that events arrive, and number the event stream. A listener is *anchored* while it has received all events
//! since some heartbeat. A *gap* is a time in which it may have missed events.
//!
//! ```text
//! events ─► reader ─ stream (positions, anchor) ──┐
//!   ▲         │ reads        decision (the table) │ expiries, deadlines, check results
//! session ◄───┘                                   ▼
//! watcher (deadlines) ─► reader                writer ─► store ─► `due`: an ordinary lapse
//! scanner (scans)     ─► reader      duties: which listener scans, and which ones track written keys
//! prompter (changes)  ─► reader
//! ```
//!
//! In Redis Cluster each server has a session, a reader and a scanner. `request` finds the reader of a key. `held`
//! keeps expiries that a server announced and that its successor may have announced, too. Each partition has a writer.

#[allow(unreachable_pub, reason = "the model in tests/protocol compiles the same file")]
pub(crate) mod decision;
mod duties;
mod held;
mod known;
mod prompter;
mod reader;
mod request;
mod scanner;
pub(crate) mod stream;
pub(crate) mod topic;
pub(crate) mod value;
pub(crate) mod watcher;
pub(crate) mod writer;

pub(crate) use self::reader::{Peers, ReaderEvent, ReaderQueue};
pub(crate) use self::topic::Attached;
pub(crate) use self::value::Expired;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::attached::duties::Duties;
use crate::attached::known::KnownDeadlines;
use crate::attached::prompter::Prompter;
use crate::attached::reader::{ReaderContext, StreamReader};
use crate::attached::request::{PartitionContext, ReadBudget, Readers};
use crate::attached::scanner::Scanner;
use crate::attached::watcher::Watcher;
use crate::attached::writer::Writer;
use crate::connection::Server;
use crate::events::{KeyRead, Prompts};
use crate::id::SlotId;
use crate::runtime::{NodeState, Partition, Runtime};

/// The parts of attached topics that all servers of a listener share.
pub(crate) struct AttachedRoles {
    desk: ReaderContext,
    /// The indices of the topics that this listener scans for.
    ours: watch::Receiver<BTreeSet<usize>>,
    /// The first partition of each topic, with the ID under which this listener holds its duty for the topic.
    pub(crate) scanners: Vec<(Arc<Partition>, SlotId)>,
}

/// The reader of one server, with its queue of events.
pub(crate) struct ServerReader {
    /// Queues events for the reader.
    pub(crate) ear: ReaderQueue,
    pub(crate) reader: BoxFuture<'static, ()>,
}

impl AttachedRoles {
    /// Starts the writers in `writing`. Starts the watchers, the prompter, the duties and the comparison of policies in
    /// `roles`.
    pub(crate) fn start(runtime: &Arc<Runtime>, roles: &mut JoinSet<()>, writing: &mut JoinSet<()>) -> Self {
        let readers = Readers::new(runtime.client.store.topology());
        let prompts = Arc::<Prompts>::default();
        let (deadlines, room) =
            (Arc::new(KnownDeadlines::new()), ReadBudget::new(runtime.waiting.reads.clone()));
        let (mut writers, mut scanners, slot) = (HashMap::new(), Vec::new(), SlotId::random());
        for topic in runtime.attached_topics() {
            for (number, partition) in runtime.partitions_of(topic).iter().enumerate() {
                let index = topic.partition(number);
                let (partition, known) = (partition.clone(), runtime.stream_state.subscribe());
                let (readers, prompts) = (readers.clone(), prompts.clone());
                let (deadlines, room) = (deadlines.clone(), room.clone());
                let context = PartitionContext { index, partition, known, readers, prompts, deadlines, room };
                let (writer, writes, waiting) = Writer::new(context.clone(), runtime.waiting.writes.clone());
                writers.insert(index, writes);
                writing.spawn(writer.run(waiting));
                roles.spawn(Watcher::new(context).run());
            }
            scanners.push((runtime.partitions_of(topic)[0].clone(), slot));
        }
        roles.spawn(topic::keep_comparing(runtime.clone()));
        let duties = Duties::new(runtime.clone(), slot);
        let ours = duties.scans();
        roles.spawn(duties.run());
        let desk = ReaderContext {
            runtime: runtime.clone(),
            prompts,
            deadlines,
            writers: Arc::new(writers),
            readers,
        };
        roles.spawn(Prompter::new(desk.clone(), room).run());
        Self { desk, ours, scanners }
    }

    /// Returns the keys that wait to be read after a change. The subscriptions of all servers add keys to them.
    pub(crate) fn prompts(&self) -> Arc<Prompts> {
        self.desk.prompts.clone()
    }

    /// Creates the reader of a server. `peers` are the other servers, which report the role of this one.
    pub(crate) fn open_reader(
        &self,
        node: &Arc<NodeState>,
        peers: Option<Peers>,
        touches: mpsc::Sender<KeyRead>,
    ) -> ServerReader {
        let endpoint = peers.as_ref().and_then(Peers::endpoint);
        let (reader, requests) = StreamReader::new(self.desk.clone(), node.clone(), peers, touches);
        self.desk.readers.add(node.name(), endpoint, reader.requests());
        let (ear, heard) = ReaderQueue::new(self.desk.runtime.clone());
        ServerReader { ear, reader: reader.run(heard, requests).boxed() }
    }

    /// Scans a server until it is dropped. Ends immediately if the server has no reader.
    pub(crate) fn scan(&self, node: &Arc<NodeState>, server: &Server) -> impl Future<Output = ()> + use<> {
        let requests = self.desk.readers.of_node(node.name());
        let (runtime, ours) = (self.desk.runtime.clone(), self.ours.clone());
        let (node, server) = (node.clone(), server.clone());
        async move {
            if let Some(requests) = requests {
                Scanner::new(runtime, node, server, requests, ours).run().await;
            }
        }
    }
}
