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
//! scanner (scans)     ─► reader
//! ```

#[allow(unreachable_pub, reason = "the model in tests/protocol compiles the same file")]
pub(crate) mod decision;
mod ear;
mod reader;
mod request;
mod scanner;
pub(crate) mod stream;
pub(crate) mod topic;
pub(crate) mod value;
pub(crate) mod watcher;
pub(crate) mod write_back;
pub(crate) mod writer;

pub(crate) use self::ear::{Ear, Heard};
pub(crate) use self::topic::Attached;
pub(crate) use self::value::Expired;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::attached::reader::StreamReader;
use crate::attached::request::Context;
use crate::attached::scanner::Scanner;
use crate::attached::watcher::Watcher;
use crate::attached::writer::Writer;
use crate::events::Touch;
use crate::id::SlotId;
use crate::runtime::{Partition, Runtime};

/// Requests that may wait for the reader.
const REQUESTS: usize = 1024;

/// What the attached topics of a listener hear, and those who ask about it.
pub(crate) struct AttachedRoles {
    /// Passes on to the reader what is heard.
    pub(crate) ear: Ear,
    /// The partitions for whose topics this listener may be scanning, and as whom.
    pub(crate) scanners: Vec<(Arc<Partition>, SlotId)>,
}

impl AttachedRoles {
    /// Starts the reader, writers, watchers and scanners, for as long as attempts run or claims are made.
    pub(crate) fn start(
        runtime: &Arc<Runtime>,
        touches: mpsc::Sender<Touch>,
        roles: &mut JoinSet<()>,
        writing: &mut JoinSet<()>,
    ) -> Self {
        let (asking, requests) = mpsc::channel(REQUESTS);
        let (mut writers, mut scanners) = (HashMap::new(), Vec::new());
        for topic in runtime.attached_topics() {
            for (number, partition) in runtime.partitions_of(topic).iter().enumerate() {
                let index = topic.partition(number);
                let (partition, known) = (partition.clone(), runtime.stream_state.subscribe());
                let context = Context { index, partition, known, requests: asking.clone() };
                let (write, writes) = mpsc::channel(writer::WAITING);
                writers.insert(index, write);
                writing.spawn(Writer::new(context.clone(), writes).run());
                roles.spawn(Watcher::new(context).run());
            }
            let slot = SlotId::random();
            scanners.push((runtime.partitions_of(topic)[0].clone(), slot));
            let (runtime, topic, requests) = (runtime.clone(), topic.clone(), asking.clone());
            roles.spawn(Scanner { runtime, topic, requests, slot }.run());
        }
        let (ear, heard) = Ear::new(runtime.clone());
        roles.spawn(StreamReader::new(runtime.clone(), touches, writers).run(heard, requests));
        Self { ear, scanners }
    }
}
