//! Attached topics: keys that other programs write, and that know nothing of us.
//!
//! The key in Redis is the truth, and a *watch* is our memory of its deadline. An expiry that is heard is
//! noted by its identity, which makes it a lapse, once; claims, leases, retries and dead letters are
//! those of all topics. docs/attach.md is the guide, docs/attach-protocol.md says why it is right.
//!
//! ```text
//! events ─► reader ─ stream (permits, anchor) ─┐
//!   ▲         │ touches      decide (the table)│ notes, enrolments, verdicts
//! session ◄───┘                                ▼
//! looker (deadlines) ─► reader            writer ─► store ─► `due`: an ordinary lapse
//! scanner (scans)     ─► reader
//! ```

mod writer;
#[allow(unreachable_pub, reason = "the model in tests/protocol compiles the same file")]
mod decide;
mod expired;
mod scanner;
mod looker;
mod mode;
mod reader;
mod restore;
mod stream_state;
mod stream;
mod policy;

pub(crate) use expired::value_of;
pub use expired::{Expired, Expiry, Value};
pub use mode::Mode;
pub(crate) use reader::StreamReader;
pub(crate) use restore::{Presence, bumped, presence};
pub(crate) use stream_state::StreamState;
pub(crate) use policy::Policy;
pub use policy::{Attached, Unenrolled, Vanished, WriteBack};

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::id::SlotId;
use crate::runtime::Runtime;
use crate::wire::attached::ForeignKeys;
use crate::events::event::Touch;
use writer::Writer;
use scanner::Scanner;
use looker::Watcher;
pub(crate) use reader::Request;

/// Questions that may wait for the reader.
const ASKS: usize = 1024;

/// What the attached topics of a listener hear, and those who ask about it.
pub(crate) struct AttachedRoles {
    /// Reads the stream.
    pub(crate) reader: StreamReader,
    /// What it is asked.
    pub(crate) asks: mpsc::Receiver<Request>,
    scanners: Vec<(usize, SlotId)>,
}

impl AttachedRoles {
    /// Starts writers, lookers and scanners, for as long as attempts run or claims are made.
    pub(crate) fn start(
        runtime: &Arc<Runtime>,
        foreign: &Arc<dyn ForeignKeys>,
        touches: mpsc::Sender<Touch>,
        roles: &mut JoinSet<()>,
        writing: &mut JoinSet<()>,
    ) -> Self {
        let (asking, asks) = mpsc::channel(ASKS);
        let mut writers = HashMap::new();
        let mut scanners = Vec::new();
        for topic in runtime.topics.iter().filter(|topic| topic.config.attach.is_some()) {
            let partitions: Vec<_> =
                (0..topic.config.partitions as usize).map(|at| runtime.partitions[topic.partition(at)].clone()).collect();
            for (at, partition) in partitions.iter().enumerate() {
                let index = topic.partition(at);
                let (write, writes) = mpsc::channel(writer::WAITING);
                writers.insert(index, write);
                let (foreign, asks) = (foreign.clone(), asking.clone());
                let writer = Writer::new(
                    index,
                    partition.clone(),
                    foreign.clone(),
                    writes,
                    asks.clone(),
                    runtime.stream_state.clone(),
                );
                writing.spawn(writer.run());
                let stream_state = runtime.stream_state.clone();
                roles.spawn(
                    Watcher { index, partition: partition.clone(), foreign, stream_state, asks, slot: SlotId::random() }.run(),
                );
            }
            let slot = SlotId::random();
            scanners.push((topic.partition(0), slot));
            let (runtime, topic, foreign) = (runtime.clone(), topic.clone(), foreign.clone());
            roles.spawn(Scanner { runtime, topic, partitions, foreign, asks: asking.clone(), slot }.run());
        }
        let reader = StreamReader::new(runtime.clone(), touches, writers);
        Self { reader, asks, scanners }
    }

    /// The partitions whose topics' scanner this listener may be.
    pub(crate) fn scanners(&self) -> Vec<(usize, SlotId)> {
        self.scanners.clone()
    }
}
