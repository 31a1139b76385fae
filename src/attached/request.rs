//! What writers, watchers and scanners ask of a reader, and readers of each other; which reader is asked about a key; and
//! the room that what was asked for takes until it is written.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::attached::known::KnownDeadlines;
use crate::connection::{Endpoint, Topology};
use crate::events::Prompts;
use crate::lock::lock;
use crate::policy::Capture;
use crate::runtime::{Amount, Gauge, Known, Partition};
use crate::wire::{Found, NodeId, Position, Watch};

/// So many bytes are read ahead of what is written.
const BYTES: usize = 8 << 20;
/// The least that is taken.
const UNIT: usize = 1 << 10;
/// What a key takes beside itself and its value, about.
const EACH: usize = 128;
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

/// The readers of all servers, shared by those who ask. The owner of a key's slot says which of them is asked about it.
#[derive(Clone)]
pub(crate) struct Readers(Arc<Shared>);

struct Shared {
    topology: Topology,
    all: Mutex<Vec<Entry>>,
}

#[derive(Clone)]
struct Entry {
    node: NodeId,
    /// None: it is the only one.
    endpoint: Option<Endpoint>,
    requests: mpsc::Sender<Request>,
}

impl Readers {
    pub(super) fn new(topology: &Topology) -> Self {
        Self(Arc::new(Shared { topology: topology.clone(), all: Mutex::default() }))
    }

    pub(super) fn add(&self, node: NodeId, endpoint: Option<Endpoint>, requests: mpsc::Sender<Request>) {
        let mut all = lock(&self.0.all);
        // One that has ended is nobody's any more.
        all.retain(|one| !one.requests.is_closed());
        all.push(Entry { node, endpoint, requests });
    }

    /// A reader hears another server from now on.
    pub(super) fn rename(&self, reader: &mpsc::Sender<Request>, node: NodeId) {
        let mut all = lock(&self.0.all);
        let its = all.iter_mut().filter(|one| one.requests.same_channel(reader));
        its.for_each(|one| one.node = node);
    }

    /// That of this server: the last, as one that heard it at an address which it has left may not have ended yet.
    pub(super) fn of_node(&self, node: NodeId) -> Option<mpsc::Sender<Request>> {
        let all = lock(&self.0.all);
        let live = |one: &&Entry| one.node == node && !one.requests.is_closed();
        all.iter().rfind(live).map(|one| one.requests.clone())
    }

    /// What is to be asked of each, by the keys of these. What nobody has at present is left out: it comes again.
    pub(super) fn share_out<T>(
        &self,
        all: Vec<T>,
        key: impl Fn(&T) -> &Bytes,
    ) -> Vec<(mpsc::Sender<Request>, Vec<T>)> {
        let entries = lock(&self.0.all).clone();
        let Some(map) = self.0.topology.map() else {
            return entries.into_iter().next().map(|one| (one.requests, all)).into_iter().collect();
        };
        let mut shares: Vec<Vec<T>> = entries.iter().map(|_| Vec::new()).collect();
        for one in all {
            let owner = map.owner(self.0.topology.slot_of(key(&one)));
            let place = entries.iter().rposition(|entry| owner.is_some() && entry.endpoint.as_ref() == owner);
            if let Some(place) = place {
                shares[place].push(one);
            }
        }
        let requests = entries.into_iter().map(|entry| entry.requests);
        requests.zip(shares).filter(|(_, share)| !share.is_empty()).collect()
    }
}

/// Room for what was asked for and is not written yet: values above all. One for each listener. Whoever asks the reader takes
/// some before.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    taken: Gauge,
}

/// Some of it, until the last who has it is done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Arc<(OwnedSemaphorePermit, Amount)>>,
);

impl Room {
    pub(crate) fn new(taken: Gauge) -> Self {
        Self { free: Arc::new(Semaphore::new(BYTES / UNIT)), taken }
    }

    /// Waits until there is room for so many keys of so many bytes together, and what is read of them.
    pub(crate) async fn take(&self, keys: usize, bytes: usize, capture: &Capture) -> Taken {
        let all = bytes + keys * (EACH + capture.cap);
        let units = u32::try_from(all.min(BYTES).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let taken = self.taken.add(all);
        // It is never closed.
        Taken(self.free.clone().acquire_many_owned(units).await.ok().map(|free| Arc::new((free, taken))))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_read_ahead_is_bounded_in_bytes() {
        let gauge = Gauge::default();
        let (room, large) = (Room::new(gauge.clone()), Capture { cap: 1 << 20, ..Capture::default() });
        let mut taken: Vec<_> = (0..7).map(|_| room.take(1, 100, &large).now_or_never().unwrap()).collect();
        assert!(room.take(1, 100, &large).now_or_never().is_none(), "eight values and their keys do not fit");
        let shared = taken.pop();
        let both = shared.clone();
        drop(shared);
        assert!(room.take(1, 100, &large).now_or_never().is_none(), "somebody still has it");
        drop(both);
        assert!(room.take(1, 100, &large).now_or_never().is_some());
        assert_eq!(gauge.get(), 6 * (100 + EACH + (1 << 20)));
        drop(taken);
        assert_eq!(gauge.get(), 0);
        let largest = Capture { cap: 8 << 20, ..Capture::default() };
        assert!(room.take(1, 4096, &largest).now_or_never().is_some(), "one always fits");
    }
}
