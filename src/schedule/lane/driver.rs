//! The driver of a lane: the task that sends queued requests in batches.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, timeout};

use super::{Answers, BATCH, MIN_SECOND_CALL, OpRequest, QueuedRequest, SharedLane};
use crate::connection::{RetryDelays, is_retryable, unknown_outcome};
use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::wire::{OpCall, OpFlags};

/// The maximum number of batches in flight. More than two are sent only if the queue fills a whole call, because
/// later requests can still join an unsent batch.
const MAX_CALLS_IN_FLIGHT: usize = 4;
/// How long the runtime of callers may take to receive answers. A runtime that takes longer is blocked or not driven.
const REPLY_DELIVERY_TIMEOUT: Duration = Duration::from_millis(2);

/// Sends batches until the queue is empty.
pub(super) async fn drive(mut driver: LaneDriver) {
    let lane = driver.lane.clone();
    let (mut in_flight, mut keys_in_flight) = (FuturesUnordered::new(), HashSet::<Bytes>::new());
    // The callers that are being woken with their answers. Their next calls are sent together.
    let (mut turns, mut callers_in_turn) = (FuturesUnordered::new(), 0);
    loop {
        while let Some(batch) = next_batch(&lane, in_flight.len(), callers_in_turn, &mut keys_in_flight) {
            in_flight.push(batch.send_until_answered(&lane));
        }
        if in_flight.is_empty() && turns.is_empty() && driver.stop_if_idle() {
            return;
        }
        let wake_at = lock(&lane.queue).next_wake(Instant::now());
        tokio::select! {
            Some((keys, answered)) = in_flight.next() => {
                keys.iter().for_each(|key| {
                    keys_in_flight.remove(key);
                });
                callers_in_turn += answered.len();
                turns.push(answered.deliver_replies());
            }
            Some(answered) = turns.next() => callers_in_turn -= answered,
            () = lane.enough.notified() => {}
            () = sleep_until(wake_at) => {}
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Returns the next batch if it is worth sending now. `in_flight` batches are unanswered. `callers_in_turn` callers were
/// just answered, and may call again.
fn next_batch(
    lane: &SharedLane,
    in_flight: usize,
    callers_in_turn: usize,
    keys_in_flight: &mut HashSet<Bytes>,
) -> Option<LaneBatch> {
    let mut queue = lock(&lane.queue);
    let now = Instant::now();
    while let Some(expired) = queue.pop_expired(now) {
        let message =
            "the call was not sent: earlier calls of this program for the same partition have no answer";
        expired.answer(Err(Error::new(ErrorKind::Timeout, message)));
    }
    // A second call needs as many timers as the first, so that one is encoded while the other is executed.
    queue.worth_a_call =
        if in_flight > 1 { BATCH } else { keys_in_flight.len().max(callers_in_turn).max(MIN_SECOND_CALL) };
    if in_flight + callers_in_turn > 0 && (in_flight >= MAX_CALLS_IN_FLIGHT || !queue.is_worth_a_call()) {
        return None;
    }
    let limit = queue.send_limit(in_flight == 0);
    let batch = queue.take_batch(limit, now, keys_in_flight);
    (!batch.is_empty()).then_some(batch)
}

/// A running driver. If it is dropped before it has stopped, by a panic or with its runtime, all queued requests fail.
pub(super) struct LaneDriver {
    lane: Arc<SharedLane>,
    has_stopped: bool,
}

impl LaneDriver {
    pub(super) fn of(lane: Arc<SharedLane>) -> Self {
        Self { lane, has_stopped: false }
    }

    /// Stops the driver if the queue is empty, and returns whether it was.
    fn stop_if_idle(&mut self) -> bool {
        let mut queue = lock(&self.lane.queue);
        self.has_stopped = queue.is_empty();
        queue.driven = !self.has_stopped;
        self.has_stopped
    }
}

impl Drop for LaneDriver {
    fn drop(&mut self) {
        if !self.has_stopped {
            let left = lock(&self.lane.queue).stop_driving();
            drop(left);
        }
    }
}

/// Calls of several kinds, without a duplicate key.
#[derive(Debug, Default)]
pub(super) struct LaneBatch {
    calls: Vec<LaneCall>,
}

/// Requests of one kind, which are sent in one script call.
#[derive(Debug)]
struct LaneCall {
    /// Includes whether the call may have been executed before.
    flags: OpFlags,
    requests: Vec<QueuedRequest>,
}

impl LaneBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn add(&mut self, waiting: QueuedRequest) {
        match self.calls.iter_mut().find(|call| call.accepts(&waiting.request)) {
            Some(call) => call.requests.push(waiting),
            None => self.calls.push(LaneCall { flags: waiting.request.flags, requests: vec![waiting] }),
        }
    }

    /// Sends the calls until each request is answered or its `retry_for` has passed. Returns the keys of all requests, and
    /// the answers of the last try. Earlier answers were delivered.
    async fn send_until_answered(mut self, lane: &SharedLane) -> (Vec<Bytes>, ReplyBatch) {
        let requests = self.calls.iter().flat_map(|call| &call.requests);
        let keys = requests.flat_map(|waiting| waiting.request.keys().cloned()).collect();
        let mut delays = RetryDelays::default();
        loop {
            let answers = {
                let calls: Vec<_> = self.calls.iter().map(LaneCall::as_sent).collect();
                lane.store.produce(&lane.at, &calls).await
            };
            let wait = delays.next();
            let mut answered = ReplyBatch::default();
            let calls = self.calls.drain(..).zip(answers);
            self.calls =
                calls.filter_map(|(call, answer)| call.apply_reply(answer, wait, &mut answered)).collect();
            if self.calls.is_empty() {
                return (keys, answered);
            }
            answered.deliver_replies().await;
            tokio::time::sleep(wait).await;
        }
    }
}

impl LaneCall {
    fn accepts(&self, request: &OpRequest) -> bool {
        self.requests.first().is_some_and(|first| first.request.fits_one_call_with(request))
    }

    fn as_sent(&self) -> OpCall<'_> {
        let ops = self.requests.iter().flat_map(|waiting| &waiting.request.ops).collect();
        OpCall { flags: self.flags, ops }
    }

    /// Adds the answered requests to `answered`. Returns those that are to be sent again after `wait`.
    fn apply_reply(mut self, answer: Answers, wait: Duration, answered: &mut ReplyBatch) -> Option<Self> {
        let error = match answer {
            Ok(each) => {
                let mut each = each.into_iter();
                for waiting in self.requests {
                    let count = waiting.request.ops.len();
                    answered.add(waiting, Ok(each.by_ref().take(count).collect()));
                }
                return None;
            }
            Err(error) => error,
        };
        self.flags.repeat |= error.maybe_done();
        let again = Instant::now() + wait;
        let (retried, given_up): (Vec<_>, Vec<_>) =
            self.requests.into_iter().partition(|waiting| is_retryable(&error) && waiting.until > again);
        for waiting in given_up {
            answered.add(waiting, Err(unknown_outcome(error.clone(), self.flags.repeat)));
        }
        self.requests = retried;
        (!self.requests.is_empty()).then_some(self)
    }
}

/// Answers that arrived together.
#[derive(Debug, Default)]
struct ReplyBatch(Vec<(QueuedRequest, Answers)>);

impl ReplyBatch {
    fn add(&mut self, waiting: QueuedRequest, answers: Answers) {
        self.0.push((waiting, answers));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Delivers the answers, and waits until the callers have run, so that their next calls can share a batch.
    /// Returns the number of callers.
    ///
    /// A task on the callers' runtime wakes them, because a runtime wakes its own tasks at a lower cost than those of
    /// another thread. If that runtime is blocked, the driver delivers the answers after [`REPLY_DELIVERY_TIMEOUT`].
    fn deliver_replies(self) -> impl Future<Output = usize> {
        let count = self.0.len();
        let runtime = self.0.first().map(|(first, _)| first.runtime.clone());
        let answered = Arc::new(Mutex::new(self.0));
        let there = answered.clone();
        let turn = async move {
            deliver_all(&there);
            tokio::task::yield_now().await;
        };
        let turn = runtime.map(|runtime| runtime.spawn(turn));
        async move {
            if let Some(turn) = turn {
                let _ = timeout(REPLY_DELIVERY_TIMEOUT, turn).await;
                deliver_all(&answered);
            }
            count
        }
    }
}

/// Delivers the answers that were not delivered yet.
fn deliver_all(answered: &Mutex<Vec<(QueuedRequest, Answers)>>) {
    let answered = mem::take(&mut *lock(answered));
    for (waiting, answers) in answered {
        waiting.answer(answers);
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Handle, Runtime};
    use tokio::sync::oneshot;

    use super::*;

    fn idle() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    /// Creates two answered requests of callers on a runtime.
    fn two(waiting_at: &Handle) -> (ReplyBatch, [oneshot::Receiver<Answers>; 2]) {
        let _guard = waiting_at.enter();
        let mut answered = ReplyBatch::default();
        let receivers = [1, 2].map(|_| {
            let request = OpRequest { flags: OpFlags::default(), ops: Vec::new() };
            let (waiting, receiver) = QueuedRequest::new(request, Instant::now());
            answered.add(waiting, Err(Error::invalid("this one")));
            receiver
        });
        (answered, receivers)
    }

    async fn all_are_answered(receivers: [oneshot::Receiver<Answers>; 2]) {
        for receiver in receivers {
            assert!(receiver.await.unwrap().unwrap_err().to_string().contains("this one"));
        }
    }

    #[tokio::test]
    async fn callers_have_run_when_their_turn_is_over() {
        let (answered, receivers) = two(&Handle::current());
        let callers = receivers.map(tokio::spawn);
        tokio::task::yield_now().await;
        assert_eq!(answered.deliver_replies().await, 2);
        for caller in callers {
            assert!(caller.is_finished());
        }
    }

    #[tokio::test]
    async fn a_runtime_that_nobody_drives_keeps_no_answer() {
        let idle = idle();
        let (answered, receivers) = two(idle.handle());
        assert_eq!(answered.deliver_replies().await, 2);
        all_are_answered(receivers).await;
        idle.shutdown_background();
    }

    #[tokio::test]
    async fn a_runtime_that_has_ended_keeps_no_answer() {
        let idle = idle();
        let (answered, receivers) = two(idle.handle());
        idle.shutdown_background();
        assert_eq!(answered.deliver_replies().await, 2);
        all_are_answered(receivers).await;
    }
}
