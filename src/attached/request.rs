//! What writers, watchers and scanners ask of the reader.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::attached::known::KnownDeadlines;
use crate::attached::room::{Room, Taken};
use crate::events::Prompts;
use crate::policy::Capture;
use crate::runtime::{Known, Partition};
use crate::wire::Watch;

/// How often a key is read again because something happened to it meanwhile.
const TRIES: u8 = 4;

/// What the reader is asked for; mostly it has keys touched for that.
#[derive(Debug)]
pub(crate) enum Request {
    /// The server's time, after the first canary; and whether keys are gone that were heard to expire before it.
    Anchor(Vec<Bytes>),
    /// Look at keys whose deadlines have come.
    Look(Look),
    /// Read the deadlines of keys that are known already, and what may have to be enrolled as below.
    Glance(Read),
    /// Read keys, and enrol those that have a deadline.
    Read(Read),
    /// A note was older than the history: whoever is so late has missed something.
    Late,
}

/// Keys to be looked at, no more than one touch reads.
#[derive(Debug)]
pub(crate) struct Look {
    pub(super) partition: usize,
    pub(super) watches: Vec<Watch>,
    pub(super) capture: Capture,
    /// Values are read of those alone that still have a deadline up to this, in ms.
    pub(super) horizon: u64,
    pub(super) room: Taken,
}

/// Keys to be enrolled.
#[derive(Debug)]
pub(crate) struct Read {
    pub(super) partition: usize,
    pub(super) keys: Vec<Bytes>,
    pub(super) capture: Capture,
    pub(super) tries: u8,
    /// Whether they were heard to change.
    pub(super) prompted: bool,
    /// Told when it is done; dropped when it cannot be.
    pub(super) done: Option<oneshot::Sender<()>>,
    pub(super) room: Taken,
}

impl Read {
    pub(crate) fn of(partition: usize, keys: Vec<Bytes>, capture: Capture) -> Self {
        Self { partition, keys, capture, tries: TRIES, prompted: false, done: None, room: Taken::default() }
    }
}

/// What the roles of one partition share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(super) index: usize,
    pub(super) partition: Arc<Partition>,
    pub(super) known: watch::Receiver<Known>,
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) prompts: Arc<Prompts>,
    pub(super) deadlines: Arc<KnownDeadlines>,
    pub(super) room: Room,
}
