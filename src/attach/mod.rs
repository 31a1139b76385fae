//! Attached topics: keys that other programs write, and that know nothing of us.
//!
//! The key in Redis is the truth, and a *watch* is our memory of its deadline. An expiry that is heard is
//! noted by its identity, which makes it a lapse, once; claims, leases, retries and dead letters are
//! those of all topics. docs/attach.md is the guide, docs/attach-protocol.md says why it is right.
//!
//! ```text
//! hints ─► observer ─ stream (places, anchor) ─┐
//!   ▲         │ touches      decide (the table)│ notes, enrolments, verdicts
//! session ◄───┘                                ▼
//! looker (deadlines) ─► observer            clerk ─► store ─► `due`: an ordinary lapse
//! keeper (scans)     ─► observer
//! ```

mod clerk;
#[allow(unreachable_pub, reason = "the model in tests/protocol compiles the same file")]
mod decide;
mod expired;
mod keeper;
mod looker;
mod mode;
mod observer;
mod restore;
mod standing;
mod stream;
mod terms;

pub(crate) use expired::value_of;
pub use expired::{Expired, Expiry, Value};
pub use mode::Mode;
pub(crate) use observer::Observer;
pub(crate) use restore::{Presence, bumped, presence};
pub(crate) use standing::Standing;
pub(crate) use terms::Terms;
pub use terms::{Attached, Unenrolled, Vanished, WriteBack};

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::id::Lane;
use crate::listener::Core;
use crate::store::foreign::{ForeignKeys, Touch};
use clerk::Clerk;
use keeper::Keeper;
use looker::Looker;
pub(crate) use observer::Ask;

/// Questions that may wait for the observer.
const ASKS: usize = 1024;

/// What the attached topics of a listener hear, and those who ask about it.
pub(crate) struct Attachment {
    /// Reads the stream.
    pub(crate) observer: Observer,
    /// What it is asked.
    pub(crate) asks: mpsc::Receiver<Ask>,
    keepers: Vec<(usize, Lane)>,
}

impl Attachment {
    /// Starts clerks, lookers and keepers, for as long as attempts run or claims are made.
    pub(crate) fn start(
        core: &Arc<Core>,
        foreign: &Arc<dyn ForeignKeys>,
        touches: mpsc::Sender<Touch>,
        roles: &mut JoinSet<()>,
        writing: &mut JoinSet<()>,
    ) -> Self {
        let (asking, asks) = mpsc::channel(ASKS);
        let mut clerks = HashMap::new();
        let mut keepers = Vec::new();
        for topic in core.topics.iter().filter(|topic| topic.shape.attach.is_some()) {
            let desks: Vec<_> =
                (0..topic.shape.partitions as usize).map(|at| core.desks[topic.desk(at)].clone()).collect();
            for (at, desk) in desks.iter().enumerate() {
                let index = topic.desk(at);
                let (errand, errands) = mpsc::channel(clerk::WAITING);
                clerks.insert(index, errand);
                let (foreign, asks) = (foreign.clone(), asking.clone());
                let clerk = Clerk::new(
                    index,
                    desk.clone(),
                    foreign.clone(),
                    errands,
                    asks.clone(),
                    core.standing.clone(),
                );
                writing.spawn(clerk.run());
                let standing = core.standing.clone();
                roles.spawn(
                    Looker { index, desk: desk.clone(), foreign, standing, asks, lane: Lane::random() }.run(),
                );
            }
            let lane = Lane::random();
            keepers.push((topic.desk(0), lane));
            let (core, topic, foreign) = (core.clone(), topic.clone(), foreign.clone());
            roles.spawn(Keeper { core, topic, desks, foreign, asks: asking.clone(), lane }.run());
        }
        let observer = Observer::new(core.clone(), touches, clerks);
        Self { observer, asks, keepers }
    }

    /// The partitions whose topics' keeper this listener may be.
    pub(crate) fn keepers(&self) -> Vec<(usize, Lane)> {
        self.keepers.clone()
    }
}
