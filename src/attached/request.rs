//! Requests to readers, from the prompter, watchers, scanners, writers and other readers. `Readers` finds the reader of a
//! key, and `ReadBudget` limits the memory of reads until their results are written.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::attached::known::KnownDeadlines;
use crate::connection::{Endpoint, Topology};
use crate::events::Prompts;
use crate::lock::lock;
use crate::policy::CopySpec;
use crate::runtime::{ByteGauge, ByteGaugeGuard, Partition, StreamSnapshot};
use crate::wire::{KeySnapshot, NodeId, Position, TrackedKey};

/// Maximum bytes of reads whose results are not written yet.
const MAX_READ_AHEAD_BYTES: usize = 8 << 20;
/// The unit in which the budget is reserved, in bytes.
const BUDGET_UNIT: usize = 1 << 10;
/// Estimated bytes that a key takes in addition to its name and its value.
const READ_KEY_OVERHEAD: usize = 128;
/// Maximum number of times that a key is read again: because an event of it arrived during the read, or because another
/// server has it.
const MAX_REREADS: u8 = 4;

/// A request to the reader of a server. The reader answers most of them by a read on the server.
#[derive(Debug)]
pub(crate) enum ReaderRequest {
    /// Read the server's time after the first heartbeat. Also read keys that expired in the gap before it, to find out
    /// which of them are gone.
    Anchor(Vec<Bytes>),
    /// Check keys at their deadlines.
    Check(DeadlineCheck),
    /// Read the deadlines alone. Keys whose deadlines are not covered by `KnownDeadlines` are then read as with `Track`.
    TrackUncovered(TrackRequest),
    /// Read deadlines and values, and track the keys that have a deadline.
    Track(TrackRequest),
    /// Begin a gap: an expiry was older than the recorded history, so this listener is late and has missed events.
    BeginGap,
    /// Report the events of keys that have moved. This server had them when their deadlines were read, and another
    /// server has checked them.
    ReportMoved(MovedKeys),
    /// The answer to `ReportMoved`: decide on these keys.
    DecideMoved(MovedKeys),
    /// Find out which of these keys are gone. A replaced server announced their expiries, and this server now has their
    /// slots.
    CheckReplaced(NodeId, Vec<Bytes>),
}

/// Keys to check at their deadlines, at most as many as one call reads.
#[derive(Debug)]
pub(crate) struct DeadlineCheck {
    pub(super) partition: usize,
    pub(super) keys: Vec<TrackedKey>,
    pub(super) capture: CopySpec,
    /// Values are read only of keys whose deadline is at most this, in ms.
    pub(super) horizon: u64,
    pub(super) room: ReadReservation,
}

/// Keys to track.
#[derive(Debug)]
pub(crate) struct TrackRequest {
    pub(super) partition: usize,
    pub(super) keys: Vec<Bytes>,
    pub(super) capture: CopySpec,
    pub(super) rereads_left: u8,
    /// True if events reported changes of the keys. False for keys that a scan found.
    pub(super) prompted: bool,
    /// Notified when the results are written. Dropped without a notice if they cannot be written.
    pub(super) done: Option<oneshot::Sender<()>>,
    pub(super) room: ReadReservation,
}

impl TrackRequest {
    pub(crate) fn of(partition: usize, keys: Vec<Bytes>, capture: CopySpec) -> Self {
        Self {
            partition,
            keys,
            capture,
            rereads_left: MAX_REREADS,
            prompted: false,
            done: None,
            room: ReadReservation::default(),
        }
    }

    /// Splits off the last `count` keys, in a vector of their own size. The remaining keys are read last, and keep `done`.
    pub(super) fn split_off_last(&mut self, count: usize) -> Self {
        let keys = self.keys.split_off(self.keys.len() - count);
        let (rereads_left, prompted, room) = (self.rereads_left, self.prompted, self.room.clone());
        Self { rereads_left, prompted, room, ..Self::of(self.partition, keys, self.capture.clone()) }
    }
}

/// Keys that were checked on another server than the one on which their deadlines were read.
#[derive(Debug)]
pub(crate) struct MovedKeys {
    pub(super) partition: usize,
    pub(super) keys: Vec<MovedKey>,
    /// When the read of the check was sent.
    pub(super) sent: SentAt,
    /// The number of the last heartbeat before the answer to the check.
    pub(super) checked_after: u64,
    pub(super) room: ReadReservation,
    /// The sending end of the requests to the reader that decides on the keys.
    pub(super) back: mpsc::Sender<ReaderRequest>,
}

#[derive(Debug)]
pub(crate) struct MovedKey {
    pub(super) tracked: TrackedKey,
    pub(super) found: KeySnapshot,
    /// The report of the server on which its deadline was read. None if it cannot be obtained.
    pub(super) former_report: Option<FormerOwnerReport>,
}

/// The events of a key on the server on which its deadline was read, up to its check on another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormerOwnerReport {
    /// True if that server announced an expiry after the deadline was read.
    pub(super) expired: bool,
    /// True if none of that server's events was missed since the read, or since the deadline.
    pub(super) unbroken: bool,
    /// The present position in that server's event stream, if the stream is anchored.
    pub(super) at: Option<Position>,
}

/// When a read was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    /// The number of key events that had been received by then: see `Stream::event_count`.
    pub(super) event_count: u64,
    pub(super) at: Instant,
}

/// The state that the watcher and the writer of a partition share.
#[derive(Clone)]
pub(crate) struct PartitionContext {
    pub(super) index: usize,
    pub(super) partition: Arc<Partition>,
    pub(super) known: watch::Receiver<StreamSnapshot>,
    pub(super) readers: Readers,
    pub(super) prompts: Arc<Prompts>,
    pub(super) deadlines: Arc<KnownDeadlines>,
    pub(super) budget: ReadBudget,
}

/// The readers of all servers. A key belongs to the reader of the server that owns its slot.
#[derive(Clone)]
pub(crate) struct Readers(Arc<SharedReaders>);

struct SharedReaders {
    topology: Topology,
    all: Mutex<Vec<ReaderEntry>>,
}

/// A reader and its server.
#[derive(Clone)]
struct ReaderEntry {
    node: NodeId,
    /// None for the only server.
    endpoint: Option<Endpoint>,
    requests: mpsc::Sender<ReaderRequest>,
}

impl Readers {
    pub(super) fn new(topology: &Topology) -> Self {
        Self(Arc::new(SharedReaders { topology: topology.clone(), all: Mutex::default() }))
    }

    pub(super) fn add(
        &self,
        node: NodeId,
        endpoint: Option<Endpoint>,
        requests: mpsc::Sender<ReaderRequest>,
    ) {
        let mut all = lock(&self.0.all);
        all.retain(|one| !one.requests.is_closed());
        all.push(ReaderEntry { node, endpoint, requests });
    }

    /// Sets the server of a reader, which is another one after a failover under Sentinel.
    pub(super) fn set_node(&self, reader: &mpsc::Sender<ReaderRequest>, node: NodeId) {
        let mut all = lock(&self.0.all);
        let its = all.iter_mut().filter(|one| one.requests.same_channel(reader));
        its.for_each(|one| one.node = node);
    }

    /// Returns the sending end of the requests to the reader of this server. If the server has several, the last one is
    /// right: a reader of the server's former address may not have ended yet.
    pub(super) fn of_node(&self, node: NodeId) -> Option<mpsc::Sender<ReaderRequest>> {
        let all = lock(&self.0.all);
        let live = |one: &&ReaderEntry| one.node == node && !one.requests.is_closed();
        all.iter().rfind(live).map(|one| one.requests.clone())
    }

    /// Divides items among the readers of their keys' servers. Leaves out items whose key has no reader at present: they
    /// are requested again later.
    pub(super) fn divide_by_reader<T>(
        &self,
        all: Vec<T>,
        key: impl Fn(&T) -> &Bytes,
    ) -> Vec<(mpsc::Sender<ReaderRequest>, Vec<T>)> {
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

/// The memory for reads whose results are not written yet, mainly for values. A listener has one budget. Watchers and the
/// prompter reserve a part of it before they request a read.
#[derive(Clone, Debug)]
pub(crate) struct ReadBudget {
    free: Arc<Semaphore>,
    gauge: ByteGauge,
}

/// A part of the budget. It is free again when the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadReservation(
    #[expect(dead_code, reason = "it frees its part of the budget when it is dropped")]
    Option<Arc<(OwnedSemaphorePermit, ByteGaugeGuard)>>,
);

impl ReadBudget {
    pub(crate) fn new(gauge: ByteGauge) -> Self {
        Self { free: Arc::new(Semaphore::new(MAX_READ_AHEAD_BYTES / BUDGET_UNIT)), gauge }
    }

    /// Waits until the budget has space for this number of keys, their names of `bytes` in total, and the copies of
    /// their values.
    pub(crate) async fn reserve(&self, keys: usize, bytes: usize, capture: &CopySpec) -> ReadReservation {
        let all = bytes + keys * (READ_KEY_OVERHEAD + capture.cap);
        let units = u32::try_from(all.min(MAX_READ_AHEAD_BYTES).div_ceil(BUDGET_UNIT)).unwrap_or(u32::MAX);
        let taken = self.gauge.add(all);
        // The semaphore is never closed.
        ReadReservation(
            self.free.clone().acquire_many_owned(units).await.ok().map(|free| Arc::new((free, taken))),
        )
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_read_ahead_is_bounded_in_bytes() {
        let gauge = ByteGauge::default();
        let (budget, large) =
            (ReadBudget::new(gauge.clone()), CopySpec { cap: 1 << 20, ..CopySpec::default() });
        let mut taken: Vec<_> =
            (0..7).map(|_| budget.reserve(1, 100, &large).now_or_never().unwrap()).collect();
        assert!(
            budget.reserve(1, 100, &large).now_or_never().is_none(),
            "eight values and their keys do not fit"
        );
        let shared = taken.pop();
        let both = shared.clone();
        drop(shared);
        assert!(budget.reserve(1, 100, &large).now_or_never().is_none(), "a clone still holds it");
        drop(both);
        assert!(budget.reserve(1, 100, &large).now_or_never().is_some());
        assert_eq!(gauge.get(), 6 * (100 + READ_KEY_OVERHEAD + (1 << 20)));
        drop(taken);
        assert_eq!(gauge.get(), 0);
        let largest = CopySpec { cap: 8 << 20, ..CopySpec::default() };
        assert!(budget.reserve(1, 4096, &largest).now_or_never().is_some(), "a single read always fits");
    }
}
