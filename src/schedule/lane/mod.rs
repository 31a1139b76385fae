//! Lanes: calls of producers for one partition, which share script calls.
//!
//! A call that finds no other in flight is sent immediately by the caller's own task, without the overhead of a
//! queue. Calls that arrive while one is in flight gather in a queue and are sent together. A task of the lane sends
//! them, the driver, so a caller that is dropped or polled late delays no other.

mod driver;

use std::collections::{HashSet, VecDeque};
use std::mem::{self, discriminant};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::driver::{LaneBatch, LaneDriver};
use crate::connection::retry_until_answered;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::wire::{Op, OpCall, OpFlags, OpReply, PartitionNames, Store};

/// The maximum number of timers in a call.
pub(super) const BATCH: usize = 250;
/// The approximate maximum of bytes of keys and payloads in a call.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Abandoned requests are removed when the queue reaches this length and twice its length after the last removal.
const CLEANUP_THRESHOLD: usize = 1000;
/// How long a single call delays later calls for its key, to keep their order. The caller polls the call and may have
/// stopped doing so, hence the limit.
const SINGLE_CALL_HOLD: Duration = Duration::from_secs(1);
/// The minimum number of queued timers that are worth a second call while one is in flight.
const MIN_SECOND_CALL: usize = 8;

/// The calls of producers for one partition. Clones share a queue.
#[derive(Clone, Debug)]
pub(super) struct Lane(Arc<SharedLane>);

#[derive(Debug)]
struct SharedLane {
    at: PartitionNames,
    store: Store,
    queue: Mutex<LaneQueue>,
    /// Wakes the driver when the queue is worth another call.
    enough: Notify,
}

impl Lane {
    pub(super) fn new(store: Store, at: PartitionNames) -> Self {
        Self(Arc::new(SharedLane { at, store, queue: Mutex::default(), enough: Notify::new() }))
    }

    pub(super) fn at(&self) -> &PartitionNames {
        &self.0.at
    }

    /// Makes one call, alone or in a batch with others.
    pub(super) async fn call(&self, retry_for: Duration, request: OpRequest) -> Result<OpReply> {
        let until = Instant::now() + retry_for;
        match self.enter(request, until) {
            Entry::Single(guard, request) => {
                let answer = self.send_single(retry_for, &request).await;
                drop(guard);
                answer.and_then(single_answer)
            }
            Entry::Queued(answer) => wait_for_answers(answer).await.and_then(single_answer),
        }
    }

    /// Queues a request. It is sent even if the returned future is not polled.
    pub(super) fn enqueue(
        &self,
        retry_for: Duration,
        request: OpRequest,
    ) -> impl Future<Output = Answers> + use<> {
        let until = Instant::now() + retry_for;
        wait_for_answers(self.push(lock(&self.0.queue), request, until))
    }

    /// Lets the caller make a single call, if no call is in flight. Otherwise, queues the request.
    fn enter(&self, request: OpRequest, until: Instant) -> Entry {
        let mut queue = lock(&self.0.queue);
        if queue.single_call.is_none() && !queue.driven {
            queue.single_call = SingleCall::with(&request);
            return Entry::Single(SingleCallGuard(self.0.clone()), request);
        }
        Entry::Queued(self.push(queue, request, until))
    }

    /// Adds a request to the locked queue, and starts a driver if none runs.
    fn push(
        &self,
        mut queue: MutexGuard<'_, LaneQueue>,
        request: OpRequest,
        until: Instant,
    ) -> oneshot::Receiver<Answers> {
        let (waiting, receiver) = QueuedRequest::new(request, until);
        let was_empty = queue.is_empty();
        queue.push(waiting);
        if queue.driven {
            // The driver also wakes when `retry_for` of the first request ends.
            if was_empty || queue.is_worth_a_call() {
                self.0.enough.notify_one();
            }
            return receiver;
        }
        queue.driven = true;
        // In virtual time, a runtime that shuts down drops the driver immediately, which takes the lock.
        drop(queue);
        self.0.store.home().spawn(driver::drive(LaneDriver::of(self.0.clone())));
        receiver
    }

    /// Makes a single call from the caller's own task.
    async fn send_single(&self, retry_for: Duration, request: &OpRequest) -> Answers {
        let SharedLane { at, store, .. } = &*self.0;
        let call = async |repeat| {
            let flags = OpFlags { repeat, ..request.flags };
            let mut answers = store.produce(at, &[OpCall { flags, ops: request.ops.iter().collect() }]).await;
            answers.pop().unwrap_or_else(|| Ok(Vec::new()))
        };
        retry_until_answered(retry_for, call).await.map_err(|error| request.error_with_key(error))
    }
}

/// Waits for the answers to a queued request.
async fn wait_for_answers(answer: oneshot::Receiver<Answers>) -> Answers {
    answer.await.unwrap_or_else(|_| Err(no_answer()))
}

/// The error after the driver has ended, by a panic or with its runtime. The call may have been executed.
fn no_answer() -> Error {
    let message = "the task that sends this program's calls has ended: the call may have been executed";
    Error::new(ErrorKind::Internal, message).unanswered()
}

/// The way in which a request is sent.
enum Entry {
    /// By the caller itself. The guard marks the call as in flight.
    Single(SingleCallGuard, OpRequest),
    /// By the driver, in a batch.
    Queued(oneshot::Receiver<Answers>),
}

/// Marks a single call as in flight until it is answered or dropped.
struct SingleCallGuard(Arc<SharedLane>);

impl Drop for SingleCallGuard {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.single_call = None;
        if !queue.is_empty() {
            self.0.enough.notify_one();
        }
    }
}

/// Returns the answer to a call for one timer.
fn single_answer(answers: Vec<Result<OpReply>>) -> Result<OpReply> {
    answers.into_iter().next().unwrap_or_else(|| Err(no_answer()))
}

/// Ops of one kind from one caller, without a duplicate key.
#[derive(Debug)]
pub(super) struct OpRequest {
    pub(super) flags: OpFlags,
    pub(super) ops: Vec<Op>,
}

/// One answer for each op, or one error for all.
type Answers = Result<Vec<Result<OpReply>>>;

impl OpRequest {
    /// Returns whether both requests fit in one script call.
    fn fits_one_call_with(&self, other: &Self) -> bool {
        let kind = |request: &Self| request.ops.first().map(discriminant);
        self.flags == other.flags && kind(self) == kind(other)
    }

    /// Returns the bytes of keys and payloads.
    fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }

    fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.ops.iter().map(Op::key)
    }

    /// Adds the key of a request with one op to the error of a whole call.
    fn error_with_key(&self, error: Error) -> Error {
        if let [only] = &self.ops[..] { only.failed(error) } else { error }
    }
}

/// A request that waits to be sent, or for its answer.
#[derive(Debug)]
struct QueuedRequest {
    request: OpRequest,
    answer: oneshot::Sender<Answers>,
    /// When the caller's `retry_for` ends.
    until: Instant,
    /// The runtime on which the caller waits.
    runtime: Handle,
}

impl QueuedRequest {
    fn new(request: OpRequest, until: Instant) -> (Self, oneshot::Receiver<Answers>) {
        let (answer, receiver) = oneshot::channel();
        (Self { request, answer, until, runtime: Handle::current() }, receiver)
    }

    /// Returns whether the caller was dropped.
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Passes the answers to the caller.
    fn answer(self, answers: Answers) {
        // This fails if the caller was dropped.
        let _ = self.answer.send(answers.map_err(|error| self.request.error_with_key(error)));
    }
}

/// Requests that wait to be sent, in the order of their arrival.
#[derive(Debug, Default)]
struct LaneQueue {
    /// The single call in flight, if any.
    single_call: Option<SingleCall>,
    /// True while a driver runs.
    driven: bool,
    waiting: VecDeque<QueuedRequest>,
    /// The number of queued timers.
    count: usize,
    /// The bytes of the queued timers' keys and payloads.
    bytes: usize,
    /// How many requests were left after the last removal of abandoned ones.
    left: usize,
    /// How many queued timers are worth another call while others are in flight. The driver updates this.
    worth_a_call: usize,
}

/// A call that its caller sends without the driver.
#[derive(Debug)]
struct SingleCall {
    key: Bytes,
    /// Until when later calls for the key wait.
    until: Instant,
}

impl SingleCall {
    fn with(request: &OpRequest) -> Option<Self> {
        Some(Self { key: request.keys().next()?.clone(), until: Instant::now() + SINGLE_CALL_HOLD })
    }
}

impl LaneQueue {
    fn push(&mut self, waiting: QueuedRequest) {
        if self.waiting.len() >= CLEANUP_THRESHOLD.max(2 * self.left) || self.bytes > 64 * BATCH_BYTES {
            self.remove_abandoned();
        }
        self.count += waiting.request.ops.len();
        self.bytes += waiting.request.bytes();
        self.waiting.push_back(waiting);
    }

    /// Returns whether the queue is worth another call while others are in flight.
    fn is_worth_a_call(&self) -> bool {
        self.count >= self.worth_a_call.min(BATCH) || self.bytes >= BATCH_BYTES
    }

    /// Returns how many of the queued timers to send now. `none_in_flight` is true if the driver has no batch in flight.
    fn send_limit(&self, none_in_flight: bool) -> usize {
        // Two halves overlap: the second is encoded and sent while the server executes the first.
        if none_in_flight && self.count >= 2 * MIN_SECOND_CALL {
            self.count.div_ceil(2).min(BATCH)
        } else {
            BATCH
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns when the driver must wake without an event: when the oldest request times out, or when the single call
    /// stops delaying others. All requests have the same `retry_for`, so the oldest times out first.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let first = self.waiting.front()?.until;
        let alone = self.single_call.as_ref().map(|alone| alone.until).filter(|until| *until > now);
        Some(alone.map_or(first, |alone| alone.min(first)))
    }

    /// Removes the first request if its time is over.
    fn pop_expired(&mut self, now: Instant) -> Option<QueuedRequest> {
        self.waiting.front().filter(|waiting| waiting.until <= now)?;
        self.pop()
    }

    /// Takes requests from the front, up to `most` timers and the limits of a call, and adds their keys to
    /// `keys_in_flight`.
    ///
    /// A request stays in the queue if one of its keys is in flight, or in a request that stays. This keeps the order
    /// of the calls for each key.
    fn take_batch(&mut self, most: usize, now: Instant, keys_in_flight: &mut HashSet<Bytes>) -> LaneBatch {
        let (mut batch, mut stays, mut kept) = (LaneBatch::default(), VecDeque::new(), HashSet::new());
        kept.extend(
            self.single_call.as_ref().filter(|alone| alone.until > now).map(|alone| alone.key.clone()),
        );
        let (mut count, mut bytes) = (0, 0);
        while let Some(first) = self.waiting.front() {
            if first.is_abandoned() {
                self.pop();
                continue;
            }
            let request = &first.request;
            count += request.ops.len();
            bytes += request.bytes();
            if count > most.max(request.ops.len()) || bytes > BATCH_BYTES.max(request.bytes()) {
                break;
            }
            let waits = request.keys().any(|key| keys_in_flight.contains(key) || kept.contains(key));
            if waits {
                kept.extend(request.keys().cloned());
            } else {
                keys_in_flight.extend(request.keys().cloned());
            }
            match self.waiting.pop_front() {
                Some(first) if waits => stays.push_back(first),
                Some(first) => {
                    self.uncount(&first.request);
                    batch.add(first);
                }
                None => break,
            }
        }
        while let Some(last) = stays.pop_back() {
            self.waiting.push_front(last);
        }
        batch
    }

    /// Marks the driver as ended, and removes all requests.
    fn stop_driving(&mut self) -> VecDeque<QueuedRequest> {
        (self.driven, self.count, self.bytes) = (false, 0, 0);
        mem::take(&mut self.waiting)
    }

    fn pop(&mut self) -> Option<QueuedRequest> {
        let waiting = self.waiting.pop_front()?;
        self.uncount(&waiting.request);
        Some(waiting)
    }

    /// Subtracts a request that leaves the queue from the counts.
    fn uncount(&mut self, request: &OpRequest) {
        self.count -= request.ops.len();
        self.bytes -= request.bytes();
    }

    fn remove_abandoned(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_abandoned());
        self.count = self.waiting.iter().map(|waiting| waiting.request.ops.len()).sum();
        self.bytes = self.waiting.iter().map(|waiting| waiting.request.bytes()).sum();
        self.left = self.waiting.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error must not read as a refusal: a program would then do something else, and both would happen.
    #[tokio::test]
    async fn a_call_whose_driver_has_ended_may_have_been_done() {
        let request = OpRequest { flags: OpFlags::default(), ops: Vec::new() };
        let (waiting, answer) = QueuedRequest::new(request, Instant::now());
        drop(waiting);
        let error = wait_for_answers(answer).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Internal && error.maybe_done(), "{error:?}");
    }
}
