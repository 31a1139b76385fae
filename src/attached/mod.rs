//! Attached topics: keys that other programs write, and that know nothing of us.
//!
//! The key in Redis is the truth, and a *watch* is our memory of its deadline. An expiry that is heard is
//! noted by its identity, which makes it a lapse, once; claims, leases, retries and dead letters are
//! those of all topics. docs/attach.md is the guide, docs/attach-protocol.md says why it is right.
//!
//! ```text
//! events ─► reader ─ stream (positions, anchor) ──┐
//!   ▲         │ touches      decision (the table) │ notes, enrolments, verdicts
//! session ◄───┘                                   ▼
//! watcher (deadlines) ─► reader                writer ─► store ─► `due`: an ordinary lapse
//! scanner (scans)     ─► reader      duties: who scans, and who enrols
//! prompter (changes)  ─► reader
//!
//! In a cluster each server has a session, a reader and a scanner; `request` knows which of them is asked about a key,
//! `held` keeps what one has announced that may have been replaced, and a writer has a partition, wherever its keys are.
//! ```

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

pub(crate) use self::reader::{Ear, Heard, Peers};
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
use crate::attached::reader::{Desk, StreamReader};
use crate::attached::request::{Context, Readers, Room};
use crate::attached::scanner::Scanner;
use crate::attached::watcher::Watcher;
use crate::attached::writer::Writer;
use crate::connection::Server;
use crate::events::{Prompts, Touch};
use crate::id::SlotId;
use crate::runtime::{NodeState, Partition, Runtime};

/// What attached topics need of a listener, whatever servers there are.
pub(crate) struct AttachedRoles {
    desk: Desk,
    /// The indices of the topics that this listener is to scan for.
    ours: watch::Receiver<BTreeSet<usize>>,
    /// The partitions for whose topics it may have duties, and as whom.
    pub(crate) scanners: Vec<(Arc<Partition>, SlotId)>,
}

/// What is heard of one server, and those who see to it.
pub(crate) struct Hearing {
    /// Passes on to the reader what is heard.
    pub(crate) ear: Ear,
    pub(crate) reader: BoxFuture<'static, ()>,
}

impl AttachedRoles {
    /// Starts writers, watchers and those who say what is to be read, for as long as attempts run or claims are made.
    pub(crate) fn start(runtime: &Arc<Runtime>, roles: &mut JoinSet<()>, writing: &mut JoinSet<()>) -> Self {
        let readers = Readers::new(runtime.client.store.topology());
        let prompts = Arc::<Prompts>::default();
        let (deadlines, room) = (Arc::new(KnownDeadlines::new()), Room::new(runtime.waiting.reads.clone()));
        let (mut writers, mut scanners, slot) = (HashMap::new(), Vec::new(), SlotId::random());
        for topic in runtime.attached_topics() {
            for (number, partition) in runtime.partitions_of(topic).iter().enumerate() {
                let index = topic.partition(number);
                let (partition, known) = (partition.clone(), runtime.stream_state.subscribe());
                let (readers, prompts) = (readers.clone(), prompts.clone());
                let (deadlines, room) = (deadlines.clone(), room.clone());
                let context = Context { index, partition, known, readers, prompts, deadlines, room };
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
        let desk = Desk { runtime: runtime.clone(), prompts, deadlines, writers: Arc::new(writers), readers };
        roles.spawn(Prompter::new(desk.clone(), room).run());
        Self { desk, ours, scanners }
    }

    /// Where keys are gathered that are heard to be written, on whatever server.
    pub(crate) fn prompts(&self) -> Arc<Prompts> {
        self.desk.prompts.clone()
    }

    /// What is heard of a server; `peers`: the others, who say what it is.
    pub(crate) fn hear(
        &self,
        node: &Arc<NodeState>,
        peers: Option<Peers>,
        touches: mpsc::Sender<Touch>,
    ) -> Hearing {
        let endpoint = peers.as_ref().and_then(Peers::endpoint);
        let (reader, requests) = StreamReader::new(self.desk.clone(), node.clone(), peers, touches);
        self.desk.readers.add(node.name(), endpoint, reader.requests());
        let (ear, heard) = Ear::new(self.desk.runtime.clone());
        Hearing { ear, reader: reader.run(heard, requests).boxed() }
    }

    /// Scans a server that keys are heard on.
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
