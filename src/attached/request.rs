//! What writers, watchers and scanners ask of the reader.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::policy::Capture;
use crate::runtime::{Known, Partition};
use crate::wire::Watch;

/// How often a key is read again because something happened to it meanwhile.
const TRIES: u8 = 4;

/// What the reader is asked for; mostly it has keys touched for that.
#[derive(Debug)]
pub(crate) enum Request {
    /// The server's time, after the first canary.
    Anchor,
    /// Look at keys whose deadlines have come.
    Look { partition: usize, watches: Vec<Watch>, capture: Capture },
    /// Read keys, and enrol those that have a deadline.
    Read(Read),
    /// A note was older than the history: whoever is so late has missed something.
    Late,
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
}

impl Read {
    pub(crate) fn of(partition: usize, keys: Vec<Bytes>, capture: Capture) -> Self {
        Self { partition, keys, capture, tries: TRIES, prompted: false, done: None }
    }
}

/// What the roles of one partition share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(super) index: usize,
    pub(super) partition: Arc<Partition>,
    pub(super) known: watch::Receiver<Known>,
    pub(super) requests: mpsc::Sender<Request>,
}
