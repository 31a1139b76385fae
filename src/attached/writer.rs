//! Writes the results of the reader for one partition: expiries, deadlines and results of checks.
//!
//! Expiries go first: a handler waits for each of them, and nothing waits for a deadline. The writes of one key keep
//! their order, because recording an expiry ends the tracking that was written before it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::discriminant;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::attached::known::PendingDeadline;
use crate::attached::request::{PartitionContext, ReadReservation, ReaderRequest};
use crate::connection::retry;
use crate::error::Error;
use crate::events::PromptReason;
use crate::lapse::LapseSource;
use crate::log::{LogThrottle, error, warn};
use crate::runtime::{ByteGauge, ByteGaugeGuard, Partition};
use crate::wire::{AnnouncedExpiry, CheckAction, CheckResult, DeadlineReading, RecordedExpiry, TrackResult};

/// Maximum bytes of waiting expiries for each partition, and of all other waiting writes. Beyond that the reader waits.
/// Its own queue is bounded, and a drop there starts a gap.
const NOTES: usize = 8 << 20;
const OTHERS: usize = 4 << 20;
/// Estimated bytes that a write takes in addition to its key. Values count in the `ReadBudget` of `attached/request`.
const WRITE_OVERHEAD: usize = 160;
/// A partition that records no expiry for this long is parked.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// How long to wait before a refused key is read again, if other listeners have received later events of it.
const REREAD_DELAY: Duration = Duration::from_millis(50);
/// How long to wait before a refused key is read again, if no heartbeats arrive.
const REREAD_DELAY_WITHOUT_EVENTS: Duration = Duration::from_secs(3);
/// Maximum bytes of keys that wait to be read again.
const AGAIN_BYTES: usize = 4 << 20;

/// A write to the partition.
#[derive(Debug)]
pub(crate) enum Write {
    /// Records an announced expiry.
    Note(AnnouncedExpiry),
    /// Tracks a deadline. A pending entry is confirmed once the deadline is written.
    Enrol(DeadlineReading, Option<PendingDeadline>),
    /// Applies the result of a check.
    Judge(CheckResult),
    /// Notifies a requester that its earlier writes were made.
    Done(oneshot::Sender<()>),
}

impl Write {
    fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Note(note) => Some(&note.key),
            Self::Enrol(one, _) => Some(&one.key),
            Self::Judge(one) => Some(&one.watch.key),
            Self::Done(_) => None,
        }
    }

    /// Returns the bytes that the write takes while it waits, without a value.
    fn waiting_bytes(&self) -> usize {
        self.key().map_or(0, |key| key.len() + WRITE_OVERHEAD)
    }

    /// Returns the bytes that the write takes in a call.
    fn bytes(&self) -> usize {
        let copy = if let Self::Enrol(one, _) = self { one.copy.len() } else { 0 };
        self.waiting_bytes() + copy
    }
}

/// A write in the queue, with the reservations that it frees once it is written.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(super) what: Write,
    _waits: (Option<OwnedSemaphorePermit>, ByteGaugeGuard),
    _read: ReadReservation,
}

/// The sending end of a writer's queue, for readers.
#[derive(Debug)]
pub(crate) struct Writes {
    sender: mpsc::UnboundedSender<QueuedWrite>,
    notes: Arc<Semaphore>,
    others: Arc<Semaphore>,
    waiting: ByteGauge,
}

impl Writes {
    /// Creates the queue of a writer, and returns both of its ends.
    pub(super) fn new(waiting: ByteGauge) -> (Self, mpsc::UnboundedReceiver<QueuedWrite>) {
        let (sender, writes) = mpsc::unbounded_channel();
        let room = |bytes| Arc::new(Semaphore::new(bytes));
        (Self { sender, notes: room(NOTES), others: room(OTHERS), waiting }, writes)
    }

    /// Adds a write, and waits until there is space for it.
    pub(super) async fn send(&self, what: Write, read: ReadReservation) {
        let bytes = what.waiting_bytes();
        let amount = self.waiting.add(bytes);
        let room = if matches!(what, Write::Note(_)) { &self.notes } else { &self.others };
        let units = u32::try_from(bytes).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let taken = room.clone().acquire_many_owned(units).await.ok();
        let _ = self.sender.send(QueuedWrite { what, _waits: (taken, amount), _read: read });
    }
}

/// The writer of one partition.
pub(crate) struct Writer {
    context: PartitionContext,
    full: bool,
    trouble: LogThrottle,
    /// Limits the keys that wait to be read again.
    again: Arc<Semaphore>,
}

impl Writer {
    pub(crate) fn new(
        context: PartitionContext,
        waiting: ByteGauge,
    ) -> (Self, Writes, mpsc::UnboundedReceiver<QueuedWrite>) {
        let again = Arc::new(Semaphore::new(AGAIN_BYTES));
        let writer = Self { context, full: false, trouble: LogThrottle::default(), again };
        let (writes, waiting) = Writes::new(waiting);
        (writer, writes, waiting)
    }

    /// Writes until the sending end is dropped.
    pub(crate) async fn run(mut self, mut writes: mpsc::UnboundedReceiver<QueuedWrite>) {
        let mut waiting = WriteQueue::default();
        while let Some(first) = writes.recv().await {
            waiting.push(first);
            loop {
                while let Ok(more) = writes.try_recv() {
                    waiting.push(more);
                }
                let call = waiting.next();
                if call.is_empty() {
                    break;
                }
                self.write(call, &mut waiting, &mut writes).await;
            }
        }
    }

    /// Makes the writes of one call.
    async fn write(
        &mut self,
        call: Vec<QueuedWrite>,
        waiting: &mut WriteQueue,
        writes: &mut mpsc::UnboundedReceiver<QueuedWrite>,
    ) {
        let (mut notes, mut read, mut judged, mut awaited) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut room = Vec::with_capacity(call.len());
        for QueuedWrite { what, _waits: waits, _read: taken } in call {
            room.push((waits, taken));
            match what {
                Write::Note(note) => notes.push(note),
                Write::Enrol(one, pending) => read.push((one, pending)),
                Write::Judge(one) => judged.push(one),
                Write::Done(done) => awaited.push(done),
            }
        }
        let began = Instant::now();
        if !notes.is_empty() {
            self.write_notes_until_done(notes, waiting, writes).await;
            waiting.noting = began.elapsed();
        } else if !(read.is_empty() && judged.is_empty()) {
            self.track_keys(read).await;
            self.judge(judged).await;
            waiting.writing = began.elapsed();
        }
        awaited.into_iter().for_each(|done| _ = done.send(()));
    }

    /// Records expiries. If that takes longer than `PARK_AFTER`, it drops all other writes of this partition, as other
    /// partitions need the memory. The next scan finds the keys to track, and checks become due again.
    async fn write_notes_until_done(
        &self,
        notes: Vec<AnnouncedExpiry>,
        waiting: &mut WriteQueue,
        writes: &mut mpsc::UnboundedReceiver<QueuedWrite>,
    ) {
        let mut noting = pin!(self.note(notes));
        if timeout(PARK_AFTER, &mut noting).await.is_ok() {
            return;
        }
        loop {
            waiting.others.clear();
            tokio::select! {
                () = &mut noting => return,
                Some(more) = writes.recv() => waiting.push(more),
            }
        }
    }

    /// Records expiries, and retries without a limit: later records would be wrong if an earlier one were missing.
    async fn note(&self, notes: Vec<AnnouncedExpiry>) {
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let throttle = LogThrottle::default();
        let heals = |reason: &Error, _| {
            if throttle.should_log(reason) {
                warn!(topic = %topic.config.name, error = %reason, "expiries of attached keys cannot be recorded: retrying");
            }
            true
        };
        let note = |_| store.record_expiries(names, topic.policy(), &notes);
        if let Ok(replies) = retry(None, Error::maybe_done, heals, note).await {
            self.noted(&notes, &replies);
        }
    }

    fn noted(&self, notes: &[AnnouncedExpiry], replies: &[RecordedExpiry]) {
        let topic = &self.context.partition.topic;
        let stats = &topic.attached;
        let count = |what| replies.iter().filter(|reply| **reply == what).count();
        let (superseding, stale) = (count(RecordedExpiry::Superseding), count(RecordedExpiry::Stale));
        let lapses = count(RecordedExpiry::Lapse) + superseding;
        stats.recorded.add(lapses);
        topic.stats.superseded.add(superseding);
        stats.known.add(count(RecordedExpiry::Known));
        stats.recovered_before.add(count(RecordedExpiry::Recovered));
        stats.ignored.add(count(RecordedExpiry::Ignored));
        stats.returned.add(count(RecordedExpiry::Returned));
        stats.stale.add(stale);
        if lapses > 0 {
            self.wake();
        }
        if stale > 0 {
            error!(topic = %topic.config.name, count = stale, "expiries of attached keys arrived too late to detect repeats: treating this as a gap");
            let late = notes.iter().zip(replies).filter(|(_, reply)| **reply == RecordedExpiry::Stale);
            let nodes: BTreeSet<_> = late.map(|(note, _)| note.identity.node()).collect();
            for reader in nodes.into_iter().filter_map(|node| self.context.readers.of_node(node)) {
                let _ = reader.try_send(ReaderRequest::Late);
            }
        }
    }

    async fn track_keys(&mut self, read: Vec<(DeadlineReading, Option<PendingDeadline>)>) {
        if read.is_empty() {
            return;
        }
        let (read, pending): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let deadlines = &self.context.deadlines;
        match store.track_keys(names, topic.policy(), &read).await {
            Ok((next, replies)) => {
                for (reply, pending) in replies.iter().zip(pending) {
                    use TrackResult::{CopyWanted, Known, New};
                    let Some(pending) = pending else { continue };
                    let stands = matches!(reply, New | Known | CopyWanted);
                    if stands { deadlines.confirm(pending) } else { deadlines.refuse(pending) }
                }
                self.trouble = LogThrottle::default();
                self.look_at(next);
                self.count_tracked(&read, &replies);
            }
            Err(reason) => {
                pending.into_iter().flatten().for_each(|pending| deadlines.refuse(pending));
                self.not_written(&reason, "attached keys could not be tracked: the next scan finds them");
            }
        }
    }

    fn count_tracked(&mut self, read: &[DeadlineReading], replies: &[TrackResult]) {
        let topic = &self.context.partition.topic;
        let count = |what| replies.iter().filter(|reply| **reply == what).count();
        let (new, full) = (count(TrackResult::New), count(TrackResult::Full));
        topic.attached.tracked.add(new + count(TrackResult::CopyWanted));
        topic.attached.over_limit.add(full);
        if full > 0 && !self.full {
            error!(
                topic = %topic.config.name, cap = topic.policy().cap,
                "the topic tracks its maximum number of keys: other keys fire only if their expiry is announced"
            );
        }
        self.full = full > 0 || self.full && new == 0;
        let (mut behind, mut blind) = (Vec::new(), Vec::new());
        for (one, reply) in read.iter().zip(replies) {
            match reply {
                // Without heartbeats, a key is refused until ten seconds after its last recorded position, however
                // often it is read.
                TrackResult::Stale if one.at.canary == 0 => blind.push(one.key.clone()),
                TrackResult::Stale => behind.push(one.key.clone()),
                TrackResult::CopyWanted => self.context.prompts.add(one.key.clone(), PromptReason::Wanted),
                _ => {}
            }
        }
        self.read_again(behind, REREAD_DELAY);
        self.read_again(blind, REREAD_DELAY_WITHOUT_EVENTS);
    }

    /// Reads keys again after a delay. If there is no space for them, a scan finds them, as it does for dropped
    /// prompts.
    fn read_again(&self, keys: Vec<Bytes>, after: Duration) {
        if keys.is_empty() {
            return;
        }
        let bytes = keys.iter().map(|key| key.len() + WRITE_OVERHEAD).sum::<usize>();
        let room = self.again.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let Ok(room) = room else { return self.context.prompts.leave_out(keys.len()) };
        let prompts = self.context.prompts.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            keys.into_iter().for_each(|key| prompts.add(key, PromptReason::Wanted));
            drop(room);
        });
    }

    async fn judge(&mut self, judged: Vec<CheckResult>) {
        if judged.is_empty() {
            return;
        }
        let Partition { store, names, topic, .. } = &*self.context.partition;
        match store.apply_checks(names, topic.policy(), &judged).await {
            Ok((next, _)) => {
                self.look_at(next);
                if judged.iter().any(|one| matches!(one.deed, CheckAction::Fire { .. })) {
                    self.wake();
                }
            }
            // The checks become due again.
            Err(reason) => self.not_written(
                &reason,
                "results of checks could not be written: the attached keys are checked again",
            ),
        }
    }

    /// Counts a failed write, and logs each reason once in a row.
    fn not_written(&mut self, reason: &Error, what: &str) {
        let topic = &self.context.partition.topic;
        topic.attached.write_errors.add(1);
        if self.trouble.should_log(reason) {
            warn!(topic = %topic.config.name, error = %reason, "{what}");
        }
    }

    /// Wakes the partition directly if no events are received. The wake-up that the script has published may not arrive
    /// then.
    fn wake(&self) {
        if self.context.known.borrow().mode.receives_nothing() {
            self.context.partition.wakeup.look(Instant::now(), LapseSource::Timer);
        }
    }

    fn look_at(&self, next: Option<u64>) {
        if let Some(ms) = next {
            self.context.partition.checks.head(ms);
        }
    }
}

/// Maximum number of writes in one call. All other calls wait for the server during it, also the claims and acks of
/// lapses that were recorded before.
const MAX_WRITES_PER_CALL: usize = 64;
/// Maximum number of writes in one call if the connection is slow. They take about 5 ms of the server's time.
const MAX_WRITES_PER_SLOW_CALL: usize = 250;
/// The connection counts as slow if the last call took this long.
const SLOW_CALL: Duration = Duration::from_millis(20);
/// The duration from which a call that records expiries counts as slow. It is longer, as a flooded server is slow with
/// few expiries, too.
const LONG_FOR_NOTES: Duration = Duration::from_millis(100);
/// Approximate maximum of bytes in one call.
const CALL_BYTES: usize = 1 << 20;

/// The writes that wait, each with the number of its arrival.
#[derive(Debug, Default)]
struct WriteQueue {
    notes: VecDeque<(u64, QueuedWrite)>,
    others: VecDeque<(u64, QueuedWrite)>,
    arrived: u64,
    /// The duration of the last call that recorded expiries.
    noting: Duration,
    /// The duration of the last other call.
    writing: Duration,
}

impl WriteQueue {
    fn push(&mut self, writing: QueuedWrite) {
        self.arrived += 1;
        let queue = if matches!(writing.what, Write::Note(_)) { &mut self.notes } else { &mut self.others };
        queue.push_back((self.arrived, writing));
    }

    /// Takes the writes of the next call, which are of one kind. Returns none if none wait.
    fn next(&mut self) -> Vec<QueuedWrite> {
        if self.notes.is_empty() {
            return first_call(&mut self.others, most(self.writing, SLOW_CALL));
        }
        let (count, named) = self.named();
        let before = self.take_before(&named);
        if before.is_empty() { self.notes.drain(..count).map(|(_, note)| note).collect() } else { before }
    }

    /// Returns how many expiries the next call records, and the arrival number of each key's first one. The call ends
    /// before a key's second expiry if another write of that key arrived between the two.
    fn named(&self) -> (usize, HashMap<Bytes, u64>) {
        let most = most(self.noting, LONG_FOR_NOTES);
        let mut named = HashMap::new();
        for (number, writing) in self.notes.iter().take(most) {
            if let Some(key) = writing.what.key() {
                named.entry(key.clone()).or_insert(*number);
            }
        }
        // The first other write that arrived after the first expiry of its key. If it arrived after all expiries of the
        // key, it separates none of them.
        let mut parted: HashMap<&Bytes, u64> = HashMap::new();
        for (number, writing) in &self.others {
            let key = writing.what.key().filter(|key| named.get(*key).is_some_and(|first| first < number));
            key.map(|key| parted.entry(key).or_insert(*number));
        }
        let is_next = |(number, writing): &&(u64, QueuedWrite)| {
            let other = writing.what.key().and_then(|key| parted.get(key));
            other.is_none_or(|other| number < other)
        };
        let count = self.notes.iter().take(most).take_while(is_next).count();
        (count, named)
    }

    /// Takes the writes that arrived before the expiries of their keys, as many as fit into one call.
    fn take_before(&mut self, named: &HashMap<Bytes, u64>) -> Vec<QueuedWrite> {
        let goes_before = |(number, writing): &(u64, QueuedWrite)| {
            writing.what.key().and_then(|key| named.get(key)).is_some_and(|note| number < note)
        };
        let (mut before, mut rest) = (VecDeque::new(), VecDeque::new());
        if !self.others.iter().any(goes_before) {
            return Vec::new();
        }
        for one in self.others.drain(..) {
            if goes_before(&one) { before.push_back(one) } else { rest.push_back(one) }
        }
        let call = first_call(&mut before, most(self.writing, SLOW_CALL));
        rest.extend(before);
        rest.make_contiguous().sort_by_key(|(number, _)| *number);
        self.others = rest;
        call
    }
}

/// Returns the maximum number of writes in a call, by the duration of the last one.
fn most(took: Duration, long: Duration) -> usize {
    if took < long { MAX_WRITES_PER_CALL } else { MAX_WRITES_PER_SLOW_CALL }
}

/// Takes the first writes of one kind, as many as fit into one call. A `Done` goes into the call with them, as
/// otherwise reads of single keys would take a call each.
fn first_call(queue: &mut VecDeque<(u64, QueuedWrite)>, most: usize) -> Vec<QueuedWrite> {
    let (mut call, mut writes, mut bytes, mut kind) = (Vec::new(), 0, 0, None);
    while let Some((_, writing)) = queue.front() {
        if !matches!(writing.what, Write::Done(_)) {
            writes += 1;
            bytes += writing.what.bytes();
            let is_of_its_kind =
                *kind.get_or_insert(discriminant(&writing.what)) == discriminant(&writing.what);
            let fits = writes == 1 || writes <= most && bytes <= CALL_BYTES;
            if !(is_of_its_kind && fits) {
                break;
            }
        }
        call.extend(queue.pop_front().map(|(_, writing)| writing));
    }
    call
}

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
