//! Attached topics: topics whose keys other programs write.
//!
//! The key in Redis is the truth, and keylapse tracks the deadline of each key that it has read. An announced expiry
//! becomes one lapse, identified by its position in the event stream of its server. Claims, leases, retries and dead
//! letters work as for all topics. docs/attach.md is the guide, and docs/internals/attach-protocol.md explains why the
//! protocol is correct.
//!
//! - *Heartbeat* (`canary` in the code): the expiry of a key that listeners create with a TTL of 1 ms. Heartbeats prove
//!   that events arrive, and number the event stream.
//! - *Anchored*: a listener that has received all events since some heartbeat, its *anchor*.
//! - *Gap*: a time in which a listener may have missed events.
//! - *Read* (`KeyRead`): a read of deadlines and values on the connection that receives events. The answer has a position
//!   among the events.
//! - *Track* (`TrackedKey`): write a key's deadline to the index, so that the key is checked at that deadline.
//! - *Check*: a read of a tracked key at its deadline, and the verdict that follows.
//! - *Record*: write an announced expiry to the index, where it becomes a lapse.
//! - *Confirmed*: a server that another one has named a primary since the last gap. The only server always is.
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
//! In Redis Cluster each server has a session, a reader and a scanner. `request` finds the reader of a key. `pending`
//! keeps expiries that cannot be recorded yet. `known` has the deadlines that need not be tracked again. Each partition
//! has a watcher and a writer.

#[allow(unreachable_pub, reason = "the model in tests/protocol compiles the same file")]
pub(crate) mod decision;
mod duties;
mod known;
mod pending;
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
    context: ReaderContext,
    /// The indices of the topics that this listener scans for.
    scanned_topics: watch::Receiver<BTreeSet<usize>>,
    /// The first partition of each topic, with the ID under which this listener may have a duty for the topic. The duties
    /// are given up when the listener stops.
    pub(crate) duty_slots: Vec<(Arc<Partition>, SlotId)>,
}

/// The reader of one server, with its queue of events.
pub(crate) struct ServerReader {
    /// Queues events for the reader.
    pub(crate) queue: ReaderQueue,
    pub(crate) reader: BoxFuture<'static, ()>,
}

impl AttachedRoles {
    /// Starts the writers in `writing`, and all other roles in `roles`: the watchers, the prompter, the duties and the
    /// comparison of policies.
    pub(crate) fn start(runtime: &Arc<Runtime>, roles: &mut JoinSet<()>, writing: &mut JoinSet<()>) -> Self {
        let readers = Readers::new(runtime.client.store.topology());
        let prompts = Arc::<Prompts>::default();
        let (deadlines, budget) =
            (Arc::new(KnownDeadlines::new()), ReadBudget::new(runtime.backlog.reads.clone()));
        let (mut writers, mut duty_slots, slot) = (HashMap::new(), Vec::new(), SlotId::random());
        for topic in runtime.attached_topics() {
            for (number, partition) in runtime.partitions_of(topic).iter().enumerate() {
                let index = topic.partition_index(number);
                let (partition, known) = (partition.clone(), runtime.stream_state.subscribe());
                let (readers, prompts) = (readers.clone(), prompts.clone());
                let (deadlines, budget) = (deadlines.clone(), budget.clone());
                let context =
                    PartitionContext { index, partition, known, readers, prompts, deadlines, budget };
                let (writer, writes, waiting) = Writer::new(context.clone(), runtime.backlog.writes.clone());
                writers.insert(index, writes);
                writing.spawn(writer.run(waiting));
                roles.spawn(Watcher::new(context).run());
            }
            duty_slots.push((runtime.partitions_of(topic)[0].clone(), slot));
        }
        roles.spawn(topic::keep_comparing(runtime.clone()));
        let duties = Duties::new(runtime.clone(), slot);
        let scanned_topics = duties.scanned_topics();
        roles.spawn(duties.run());
        let context = ReaderContext {
            runtime: runtime.clone(),
            prompts,
            deadlines,
            writers: Arc::new(writers),
            readers,
        };
        roles.spawn(Prompter::new(context.clone(), budget).run());
        Self { context, scanned_topics, duty_slots }
    }

    /// Returns the keys that wait to be read after a change. The subscriptions of all servers add keys to them.
    pub(crate) fn prompts(&self) -> Arc<Prompts> {
        self.context.prompts.clone()
    }

    /// Creates the reader of a server. `peers` report the role of the server. It sends its reads to `key_reads`.
    pub(crate) fn open_reader(
        &self,
        node: &Arc<NodeState>,
        peers: Option<Peers>,
        key_reads: mpsc::Sender<KeyRead>,
    ) -> ServerReader {
        let endpoint = peers.as_ref().and_then(Peers::endpoint);
        let (reader, requests) = StreamReader::new(self.context.clone(), node.clone(), peers, key_reads);
        self.context.readers.add(node.name(), endpoint, reader.request_sender());
        let (queue, events) = ReaderQueue::new(self.context.runtime.clone());
        ServerReader { queue, reader: reader.run(events, requests).boxed() }
    }

    /// Scans a server until it is dropped. Ends immediately if the server has no reader.
    pub(crate) fn scan(&self, node: &Arc<NodeState>, server: &Server) -> impl Future<Output = ()> + use<> {
        let requests = self.context.readers.of_node(node.name());
        let (runtime, scanned_topics) = (self.context.runtime.clone(), self.scanned_topics.clone());
        let (node, server) = (node.clone(), server.clone());
        async move {
            if let Some(requests) = requests {
                Scanner::new(runtime, node, server, requests, scanned_topics).run().await;
            }
        }
    }
}
