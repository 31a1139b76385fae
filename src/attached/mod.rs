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
//! ```

pub(crate) mod agreement;
#[allow(unreachable_pub, reason = "the model in tests/protocol compiles the same file")]
pub(crate) mod decision;
mod duties;
mod ear;
mod known;
#[cfg_attr(not(test), allow(dead_code, reason = "of use where there are several servers"))]
mod node_stream;
mod prompter;
mod reader;
mod request;
mod room;
mod scanner;
pub(crate) mod stream;
pub(crate) mod topic;
mod turn;
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

use crate::attached::agreement::Agreement;
use crate::attached::duties::Duties;
use crate::attached::known::KnownDeadlines;
use crate::attached::prompter::Prompter;
use crate::attached::reader::StreamReader;
use crate::attached::request::Context;
use crate::attached::room::Room;
use crate::attached::scanner::Scanner;
use crate::attached::watcher::Watcher;
use crate::attached::writer::Writer;
use crate::events::{Prompts, Touch};
use crate::id::SlotId;
use crate::runtime::{Partition, Runtime};

/// Requests that may wait for the reader.
const REQUESTS: usize = 1024;

/// What the attached topics of a listener hear, and those who ask about it.
pub(crate) struct AttachedRoles {
    /// Passes on to the reader what is heard.
    pub(crate) ear: Ear,
    /// The partitions for whose topics this listener may have duties, and as whom.
    pub(crate) scanners: Vec<(Arc<Partition>, SlotId)>,
}

impl AttachedRoles {
    /// Starts the reader, writers, watchers and the scanner, for as long as attempts run or claims are made.
    pub(crate) fn start(
        runtime: &Arc<Runtime>,
        touches: mpsc::Sender<Touch>,
        prompts: &Arc<Prompts>,
        roles: &mut JoinSet<()>,
        writing: &mut JoinSet<()>,
    ) -> Self {
        let (asking, requests) = mpsc::channel(REQUESTS);
        let (deadlines, room) = (Arc::new(KnownDeadlines::new()), Room::new(runtime.waiting.reads.clone()));
        let (mut writers, mut scanners, slot) = (HashMap::new(), Vec::new(), SlotId::random());
        for topic in runtime.attached_topics() {
            for (number, partition) in runtime.partitions_of(topic).iter().enumerate() {
                let index = topic.partition(number);
                let (partition, known) = (partition.clone(), runtime.stream_state.subscribe());
                let (requests, prompts) = (asking.clone(), prompts.clone());
                let (deadlines, room) = (deadlines.clone(), room.clone());
                let context = Context { index, partition, known, requests, prompts, deadlines, room };
                let (writer, writes, waiting) = Writer::new(context.clone(), runtime.waiting.writes.clone());
                writers.insert(index, writes);
                writing.spawn(writer.run(waiting));
                roles.spawn(Watcher::new(context).run());
            }
            let first = runtime.partitions_of(topic)[0].clone();
            scanners.push((first.clone(), slot));
            roles.spawn(Agreement { runtime: runtime.clone(), partition: first }.run());
        }
        let duties = Duties::new(runtime.clone(), slot);
        roles.spawn(Scanner::new(runtime.clone(), asking.clone(), duties.scans()).run());
        roles.spawn(duties.run());
        let (ear, heard) = Ear::new(runtime.clone());
        let prompter = Prompter::new(runtime.clone(), prompts.clone(), deadlines.clone(), asking, room);
        roles.spawn(prompter.run());
        let reader = StreamReader::new(runtime.clone(), touches, prompts.clone(), deadlines, writers);
        roles.spawn(reader.run(heard, requests));
        Self { ear, scanners }
    }
}
