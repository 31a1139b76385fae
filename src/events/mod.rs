//! The subscription: hears wake-ups, fences and expired keys.
//!
//! A [`Supervisor`] keeps one [`Session`](session::Session) open to one node, for ever. `redis`' own ConnectionManager is
//! not fit for this: it hides gaps, discards errors of its resubscription and gives up after six tries.

mod calls;
mod chain;
pub(crate) mod decoder;
mod earshot;
pub mod event;
mod naming;
mod open;
mod prompts;
mod session;
mod share;
mod supervisor;
pub(crate) mod tail;

#[cfg(any(test, fuzzing))]
pub(crate) use self::decoder::Decoded;
pub(crate) use self::decoder::Decoder;
pub use self::earshot::{Earshot, Voice};
pub(crate) use self::event::{Answer, Canary, Change, Event, Gap, Question, Touch, Touched};
pub(crate) use self::prompts::{Prompt, Prompts};
pub(crate) use self::share::Share;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::connection::Server;
use crate::events::supervisor::Supervisor;
use crate::rounds::Rounds;
use crate::wire::NodeId;

/// Events that may wait for the listener. Beyond, the session waits.
const QUEUE: usize = 4096;
/// Touches that may wait for the connection; and so many that are on their way there.
const TOUCHES: usize = 1024;

/// A stream of events in which touches are answered.
#[derive(Debug)]
pub(crate) struct EventStream {
    /// What is heard.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Where touches are asked for; those that find no connection are answered with nothing.
    pub(crate) touches: mpsc::Sender<Touch>,
}

/// What is listened to.
#[derive(Clone)]
pub(crate) struct Source {
    /// The server, as calls are made there.
    pub(crate) server: Server,
    /// Whether its keys may be another's at another time.
    pub(crate) among: Among,
    /// Whether it may give slots away.
    pub(crate) slots_move: bool,
    /// What of its events is understood.
    pub(crate) decoder: Decoder,
    /// What it has of the work.
    pub(crate) share: watch::Receiver<Share>,
    /// Where keys are gathered that were heard to be written.
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) rounds: Rounds,
}

impl Source {
    /// The stream of its events, and what has to run for it. It lives until the receiver is dropped, and reconnects by
    /// itself.
    pub(crate) fn open(self) -> (EventStream, impl Future<Output = ()> + Send + use<>) {
        let (events, receiver) = mpsc::channel(QUEUE);
        let (touches, asked) = mpsc::channel(TOUCHES);
        (EventStream { events: receiver, touches }, Supervisor::new(self, events).run(asked))
    }

    /// Whether it is one of several that have keys at the same time.
    fn is_of_several(&self) -> bool {
        matches!(self.among, Among::Nodes(_))
    }

    /// Whether another may take its place.
    fn may_be_replaced(&self) -> bool {
        self.among != Among::Alone
    }
}

/// The servers among which a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// There are no others; or nobody asks for positions in its stream.
    Alone,
    /// Nodes of a cluster, of which it has this name.
    Nodes(NodeId),
    /// Those of which sentinels name one at a time.
    Successors,
}
