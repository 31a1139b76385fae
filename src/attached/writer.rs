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

/// Maximum bytes of expiries that wait for one writer. Beyond that the reader waits. Its own queue is bounded, and a drop
/// there begins a gap.
const MAX_WAITING_EXPIRY_BYTES: usize = 8 << 20;
/// Maximum bytes of other writes that wait for one writer.
const MAX_OTHER_WAITING_BYTES: usize = 4 << 20;
/// Estimated bytes that a write takes in addition to its key. Values count in the `ReadBudget` of `attached/request`.
const WRITE_OVERHEAD: usize = 160;
/// A partition is parked, and its other waiting writes are dropped, if a call that records expiries takes this long.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// How long to wait before a refused key is read again, if other listeners have received later events of it.
const REREAD_DELAY: Duration = Duration::from_millis(50);
/// How long to wait before a refused key is read again, if no heartbeats arrive.
const REREAD_DELAY_WITHOUT_EVENTS: Duration = Duration::from_secs(3);
/// Maximum bytes of refused keys that wait to be read again.
const MAX_REREAD_BYTES: usize = 4 << 20;

/// A write to the partition.
#[derive(Debug)]
pub(crate) enum Write {
    /// Records an announced expiry.
    RecordExpiry(AnnouncedExpiry),
    /// Tracks a deadline. A pending entry is confirmed once the deadline is written.
    Track(DeadlineReading, Option<PendingDeadline>),
    /// Applies the result of a check.
    ApplyCheck(CheckResult),
    /// Notifies a requester that its earlier writes were made.
    Notify(oneshot::Sender<()>),
}

impl Write {
    fn key(&self) -> Option<&Bytes> {
        match self {
            Self::RecordExpiry(note) => Some(&note.key),
            Self::Track(one, _) => Some(&one.key),
            Self::ApplyCheck(one) => Some(&one.watch.key),
            Self::Notify(_) => None,
        }
    }

    /// Returns the bytes that the write takes while it waits, without a value.
    fn waiting_bytes(&self) -> usize {
        self.key().map_or(0, |key| key.len() + WRITE_OVERHEAD)
    }

    /// Returns the bytes that the write takes in a call.
    fn bytes(&self) -> usize {
        let copy = if let Self::Track(one, _) = self { one.copy.len() } else { 0 };
        self.waiting_bytes() + copy
    }
}

/// A write in the queue, with the reservations that it frees once it is written.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(super) write: Write,
    _waits: (Option<OwnedSemaphorePermit>, ByteGaugeGuard),
    _read: ReadReservation,
}

/// The sending end of a writer's queue, which limits the waiting writes.
#[derive(Debug)]
pub(crate) struct WriteSender {
    sender: mpsc::UnboundedSender<QueuedWrite>,
    expiry_room: Arc<Semaphore>,
    other_room: Arc<Semaphore>,
    gauge: ByteGauge,
}

impl WriteSender {
    /// Creates the queue of a writer, and returns both of its ends.
    pub(super) fn new(gauge: ByteGauge) -> (Self, mpsc::UnboundedReceiver<QueuedWrite>) {
        let (sender, writes) = mpsc::unbounded_channel();
        let room = |bytes| Arc::new(Semaphore::new(bytes));
        (
            Self {
                sender,
                expiry_room: room(MAX_WAITING_EXPIRY_BYTES),
                other_room: room(MAX_OTHER_WAITING_BYTES),
                gauge,
            },
            writes,
        )
    }

    /// Adds a write, and waits until there is space for it.
    pub(super) async fn send(&self, write: Write, read: ReadReservation) {
        let bytes = write.waiting_bytes();
        let amount = self.gauge.add(bytes);
        let room = if matches!(write, Write::RecordExpiry(_)) { &self.expiry_room } else { &self.other_room };
        let units = u32::try_from(bytes).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let taken = room.clone().acquire_many_owned(units).await.ok();
        let _ = self.sender.send(QueuedWrite { write, _waits: (taken, amount), _read: read });
    }
}

/// The writer of one partition.
pub(crate) struct Writer {
    context: PartitionContext,
    /// True once it was logged that the topic tracks its maximum number of keys, until a new key fits.
    is_full: bool,
    throttle: LogThrottle,
    /// The space in `MAX_REREAD_BYTES` that is left.
    reread_room: Arc<Semaphore>,
}

impl Writer {
    pub(crate) fn new(
        context: PartitionContext,
        gauge: ByteGauge,
    ) -> (Self, WriteSender, mpsc::UnboundedReceiver<QueuedWrite>) {
        let reread_room = Arc::new(Semaphore::new(MAX_REREAD_BYTES));
        let writer = Self { context, is_full: false, throttle: LogThrottle::default(), reread_room };
        let (writes, waiting) = WriteSender::new(gauge);
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
                let call = waiting.next_call();
                if call.is_empty() {
                    break;
                }
                self.write(call, &mut waiting, &mut writes).await;
            }
        }
    }

    /// Makes the writes of one call, and notifies requesters.
    async fn write(
        &mut self,
        call: Vec<QueuedWrite>,
        waiting: &mut WriteQueue,
        writes: &mut mpsc::UnboundedReceiver<QueuedWrite>,
    ) {
        let (mut expiries, mut read, mut judged, mut awaited) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut room = Vec::with_capacity(call.len());
        for QueuedWrite { write, _waits: waits, _read: taken } in call {
            room.push((waits, taken));
            match write {
                Write::RecordExpiry(note) => expiries.push(note),
                Write::Track(one, pending) => read.push((one, pending)),
                Write::ApplyCheck(one) => judged.push(one),
                Write::Notify(done) => awaited.push(done),
            }
        }
        let began = Instant::now();
        if !expiries.is_empty() {
            self.record_or_park(expiries, waiting, writes).await;
            waiting.last_expiry_call = began.elapsed();
        } else if !(read.is_empty() && judged.is_empty()) {
            self.track_keys(read).await;
            self.apply_checks(judged).await;
            waiting.last_other_call = began.elapsed();
        }
        awaited.into_iter().for_each(|done| _ = done.send(()));
    }

    /// Records expiries. After `PARK_AFTER` it drops all other writes of this partition until they are recorded, as other
    /// partitions need the memory. The next scan finds the keys to track, and checks become due again.
    async fn record_or_park(
        &self,
        expiries: Vec<AnnouncedExpiry>,
        waiting: &mut WriteQueue,
        writes: &mut mpsc::UnboundedReceiver<QueuedWrite>,
    ) {
        let mut recording = pin!(self.record_expiries(expiries));
        if timeout(PARK_AFTER, &mut recording).await.is_ok() {
            return;
        }
        loop {
            waiting.others.clear();
            tokio::select! {
                () = &mut recording => return,
                Some(more) = writes.recv() => waiting.push(more),
            }
        }
    }

    /// Records expiries, and retries without a limit: later records would be wrong if an earlier one were missing.
    async fn record_expiries(&self, expiries: Vec<AnnouncedExpiry>) {
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let throttle = LogThrottle::default();
        let heals = |reason: &Error, _| {
            if throttle.should_log(reason) {
                warn!(topic = %topic.config.name, error = %reason, "expiries of attached keys cannot be recorded: retrying");
            }
            true
        };
        let note = |_| store.record_expiries(names, topic.policy(), &expiries);
        if let Ok(replies) = retry(None, Error::maybe_done, heals, note).await {
            self.on_recorded(&expiries, &replies);
        }
    }

    /// Counts recorded expiries, and wakes the partition if they became lapses. Begins a gap in the reader of each server
    /// with an expiry that came too late.
    fn on_recorded(&self, expiries: &[AnnouncedExpiry], replies: &[RecordedExpiry]) {
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
            self.wake_partition();
        }
        if stale > 0 {
            error!(topic = %topic.config.name, count = stale, "expiries of attached keys arrived too late to detect repeats: treating this as a gap");
            let late = expiries.iter().zip(replies).filter(|(_, reply)| **reply == RecordedExpiry::Stale);
            let nodes: BTreeSet<_> = late.map(|(note, _)| note.identity.node()).collect();
            for reader in nodes.into_iter().filter_map(|node| self.context.readers.of_node(node)) {
                let _ = reader.try_send(ReaderRequest::BeginGap);
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
                    let is_tracked = matches!(reply, New | Known | CopyWanted);
                    if is_tracked { deadlines.confirm(pending) } else { deadlines.remove_pending(pending) }
                }
                self.throttle = LogThrottle::default();
                self.schedule_check(next);
                self.on_tracked(&read, &replies);
            }
            Err(reason) => {
                pending.into_iter().flatten().for_each(|pending| deadlines.remove_pending(pending));
                self.report_failure(&reason, "attached keys could not be tracked: the next scan finds them");
            }
        }
    }

    /// Counts tracked keys. Prompts reads of keys that were refused, or whose value is wanted.
    fn on_tracked(&mut self, read: &[DeadlineReading], replies: &[TrackResult]) {
        let topic = &self.context.partition.topic;
        let count = |what| replies.iter().filter(|reply| **reply == what).count();
        let (new, full) = (count(TrackResult::New), count(TrackResult::Full));
        topic.attached.tracked.add(new + count(TrackResult::CopyWanted));
        topic.attached.over_limit.add(full);
        if full > 0 && !self.is_full {
            error!(
                topic = %topic.config.name, cap = topic.policy().cap,
                "the topic tracks its maximum number of keys: other keys fire only if their expiry is announced"
            );
        }
        self.is_full = full > 0 || self.is_full && new == 0;
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

    /// Prompts reads of keys after a delay. Without space for them they count as dropped prompts, which a scan finds.
    fn read_again(&self, keys: Vec<Bytes>, after: Duration) {
        if keys.is_empty() {
            return;
        }
        let bytes = keys.iter().map(|key| key.len() + WRITE_OVERHEAD).sum::<usize>();
        let room = self.reread_room.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let Ok(room) = room else { return self.context.prompts.count_dropped(keys.len()) };
        let prompts = self.context.prompts.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            keys.into_iter().for_each(|key| prompts.add(key, PromptReason::Wanted));
            drop(room);
        });
    }

    async fn apply_checks(&mut self, judged: Vec<CheckResult>) {
        if judged.is_empty() {
            return;
        }
        let Partition { store, names, topic, .. } = &*self.context.partition;
        match store.apply_checks(names, topic.policy(), &judged).await {
            Ok((next, _)) => {
                self.schedule_check(next);
                if judged.iter().any(|one| matches!(one.deed, CheckAction::Fire { .. })) {
                    self.wake_partition();
                }
            }
            // The checks become due again.
            Err(reason) => self.report_failure(
                &reason,
                "results of checks could not be written: the attached keys are checked again",
            ),
        }
    }

    /// Counts a failed call, and logs it unless the last one failed for the same reason.
    fn report_failure(&mut self, reason: &Error, what: &str) {
        let topic = &self.context.partition.topic;
        topic.attached.write_errors.add(1);
        if self.throttle.should_log(reason) {
            warn!(topic = %topic.config.name, error = %reason, "{what}");
        }
    }

    /// Wakes the claimer of the partition if no events are received, as the wake-up that the script has published may not
    /// arrive then.
    fn wake_partition(&self) {
        if self.context.known.borrow().mode.receives_nothing() {
            self.context.partition.due_wakeup.request(Instant::now(), LapseSource::Timer);
        }
    }

    /// Wakes the watcher of the partition at the earliest due check.
    fn schedule_check(&self, next: Option<u64>) {
        if let Some(ms) = next {
            self.context.partition.check_wakeup.announce_deadline(ms);
        }
    }
}

/// Maximum number of writes in one call. The server makes all other calls wait during it, also the claims and acks of
/// lapses that were recorded before.
const MAX_WRITES_PER_CALL: usize = 64;
/// Maximum number of writes in one call if the connection is slow. They take about 5 ms of the server's time.
const MAX_WRITES_PER_SLOW_CALL: usize = 250;
/// The connection counts as slow if the last call took this long. Calls that record expiries have their own limit.
const SLOW_CALL: Duration = Duration::from_millis(20);
/// The connection counts as slow if the last call that recorded expiries took this long. The time is longer, as a flooded
/// server is slow with few expiries, too.
const SLOW_EXPIRY_CALL: Duration = Duration::from_millis(100);
/// Approximate maximum of bytes in one call.
const MAX_CALL_BYTES: usize = 1 << 20;

/// The writes that wait, each with the number of its arrival.
#[derive(Debug, Default)]
struct WriteQueue {
    expiries: VecDeque<(u64, QueuedWrite)>,
    others: VecDeque<(u64, QueuedWrite)>,
    /// The number of the last write that arrived.
    arrived: u64,
    /// The duration of the last call that recorded expiries.
    last_expiry_call: Duration,
    /// The duration of the last other call.
    last_other_call: Duration,
}

impl WriteQueue {
    fn push(&mut self, queued: QueuedWrite) {
        self.arrived += 1;
        let queue = if matches!(queued.write, Write::RecordExpiry(_)) {
            &mut self.expiries
        } else {
            &mut self.others
        };
        queue.push_back((self.arrived, queued));
    }

    /// Takes the writes of the next call, which are of one kind. Returns none if none wait.
    fn next_call(&mut self) -> Vec<QueuedWrite> {
        if self.expiries.is_empty() {
            return take_call(&mut self.others, max_writes(self.last_other_call, SLOW_CALL));
        }
        let (count, first_of_key) = self.next_expiries();
        let before = self.take_before(&first_of_key);
        if before.is_empty() { self.expiries.drain(..count).map(|(_, note)| note).collect() } else { before }
    }

    /// Returns how many expiries the next call records, and the arrival number of each key's first one. The call ends
    /// before a key's second expiry if another write of that key arrived between the two.
    fn next_expiries(&self) -> (usize, HashMap<Bytes, u64>) {
        let limit = max_writes(self.last_expiry_call, SLOW_EXPIRY_CALL);
        let mut first_of_key = HashMap::new();
        for (number, queued) in self.expiries.iter().take(limit) {
            if let Some(key) = queued.write.key() {
                first_of_key.entry(key.clone()).or_insert(*number);
            }
        }
        // For each key, the first other write that arrived after the key's first expiry. If it arrived after all expiries
        // of the key, it separates none of them.
        let mut separators: HashMap<&Bytes, u64> = HashMap::new();
        for (number, queued) in &self.others {
            let key =
                queued.write.key().filter(|key| first_of_key.get(*key).is_some_and(|first| first < number));
            key.map(|key| separators.entry(key).or_insert(*number));
        }
        let is_next = |(number, queued): &&(u64, QueuedWrite)| {
            let other = queued.write.key().and_then(|key| separators.get(key));
            other.is_none_or(|other| number < other)
        };
        let count = self.expiries.iter().take(limit).take_while(is_next).count();
        (count, first_of_key)
    }

    /// Takes other writes that arrived before the first expiry of their key, as many as fit into one call.
    fn take_before(&mut self, first_of_key: &HashMap<Bytes, u64>) -> Vec<QueuedWrite> {
        let goes_before = |(number, queued): &(u64, QueuedWrite)| {
            queued.write.key().and_then(|key| first_of_key.get(key)).is_some_and(|note| number < note)
        };
        let (mut before, mut rest) = (VecDeque::new(), VecDeque::new());
        if !self.others.iter().any(goes_before) {
            return Vec::new();
        }
        for one in self.others.drain(..) {
            if goes_before(&one) { before.push_back(one) } else { rest.push_back(one) }
        }
        let call = take_call(&mut before, max_writes(self.last_other_call, SLOW_CALL));
        rest.extend(before);
        rest.make_contiguous().sort_by_key(|(number, _)| *number);
        self.others = rest;
        call
    }
}

/// Returns the maximum number of writes in a call, by the duration of the last one, which was slow from `slow` on.
fn max_writes(took: Duration, slow: Duration) -> usize {
    if took < slow { MAX_WRITES_PER_CALL } else { MAX_WRITES_PER_SLOW_CALL }
}

/// Takes the first writes of one kind, as many as fit into one call. `Write::Notify` goes into the call with them, as
/// otherwise each read of a single key would take a call.
fn take_call(queue: &mut VecDeque<(u64, QueuedWrite)>, limit: usize) -> Vec<QueuedWrite> {
    let (mut call, mut writes, mut bytes, mut kind) = (Vec::new(), 0, 0, None);
    while let Some((_, queued)) = queue.front() {
        if !matches!(queued.write, Write::Notify(_)) {
            writes += 1;
            bytes += queued.write.bytes();
            let is_of_its_kind =
                *kind.get_or_insert(discriminant(&queued.write)) == discriminant(&queued.write);
            let fits = writes == 1 || writes <= limit && bytes <= MAX_CALL_BYTES;
            if !(is_of_its_kind && fits) {
                break;
            }
        }
        call.extend(queue.pop_front().map(|(_, queued)| queued));
    }
    call
}

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
