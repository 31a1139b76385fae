//! What writers, watchers and scanners ask of a reader, and readers of each other.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::attached::known::KnownDeadlines;
use crate::attached::readers::Readers;
use crate::attached::room::{Room, Taken};
use crate::events::Prompts;
use crate::policy::Capture;
use crate::runtime::{Known, Partition};
use crate::wire::{Found, NodeId, Position, Watch};

/// How often a key is read again because something happened to it meanwhile.
const TRIES: u8 = 4;

/// What a reader is asked for; mostly it has keys touched for that.
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
    /// Keys that this server had when their deadlines were read, and another has looked at: what was heard of them here.
    Recall(Moved),
    /// That has been said: judge them.
    Judge(Moved),
    /// Keys that this server has now, and another has announced after it was replaced: which of them are gone.
    Replaced(NodeId, Vec<Bytes>),
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

    /// The last of its keys, in a vector of their own size; the first are read last, and say when all is done.
    pub(super) fn split_off(&mut self, most: usize) -> Self {
        let keys = self.keys.split_off(self.keys.len() - most);
        let (tries, prompted, room) = (self.tries, self.prompted, self.room.clone());
        Self { tries, prompted, room, ..Self::of(self.partition, keys, self.capture.clone()) }
    }
}

/// Keys that were looked at on another server than that on which their deadlines were read.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(super) partition: usize,
    pub(super) keys: Vec<MovedKey>,
    /// When they were looked at, and behind which canary of their server.
    pub(super) sent: Sent,
    pub(super) touched: u64,
    pub(super) room: Taken,
    /// Where they are judged.
    pub(super) back: mpsc::Sender<Request>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct MovedKey {
    pub(super) watch: Watch,
    pub(super) found: Found,
    /// What was heard where its deadline was read; none where nobody can say.
    pub(super) there: Option<There>,
}

/// What the server that had a key has said of it, up to when it was looked at elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct There {
    /// It has announced an expiry since the deadline was read.
    pub(super) expired: bool,
    /// Nothing of it was missed since then, or since the deadline.
    pub(super) whole: bool,
    /// Where its stream was.
    pub(super) at: Option<Position>,
}

/// When a touch was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// As a moment of its server's stream.
    pub(super) heard: u64,
    pub(super) at: Instant,
}

/// What the roles of one partition share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(super) index: usize,
    pub(super) partition: Arc<Partition>,
    pub(super) known: watch::Receiver<Known>,
    pub(super) readers: Readers,
    pub(super) prompts: Arc<Prompts>,
    pub(super) deadlines: Arc<KnownDeadlines>,
    pub(super) room: Room,
}
