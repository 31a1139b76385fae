//! The task that sends what has gathered, one batch after the other.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, timeout};

use super::{Answers, Ask, BATCH, HALF, Shared, Waiting};
use crate::connection::{RetryDelays, may_pass, refused};
use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::wire::{OpCall, OpFlags};

/// Batches on their way at a time. More than two only where there is more than one call takes: what is not sent yet
/// can still be joined.
const AT_A_TIME: usize = 4;
/// A runtime of callers that takes longer is blocked, or nobody drives it.
const TURN: Duration = Duration::from_millis(2);

/// Until nothing is left.
pub(super) async fn drive(mut driving: Driving) {
    let lane = driving.lane.clone();
    let (mut going, mut on_their_way) = (FuturesUnordered::new(), HashSet::<Bytes>::new());
    // Callers whose answers are being handed out: their next calls are to go together.
    let (mut turns, mut in_turn) = (FuturesUnordered::new(), 0);
    loop {
        while let Some(batch) = next(&lane, going.len(), in_turn, &mut on_their_way) {
            going.push(batch.carry(&lane));
        }
        if going.is_empty() && turns.is_empty() && driving.rest() {
            return;
        }
        let look = lock(&lane.queue).next_look(Instant::now());
        tokio::select! {
            Some((keys, answered)) = going.next() => {
                keys.iter().for_each(|key| {
                    on_their_way.remove(key);
                });
                in_turn += answered.len();
                turns.push(answered.hand_over());
            }
            Some(answered) = turns.next() => in_turn -= answered,
            () = lane.enough.notified() => {}
            () = sleep_until(look) => {}
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Returns the next batch, if one is worth sending now: `going` batches have no answer yet, and `in_turn` callers were
/// answered just now and may call again.
fn next(lane: &Shared, going: usize, in_turn: usize, on_their_way: &mut HashSet<Bytes>) -> Option<Batch> {
    let mut queue = lock(&lane.queue);
    let now = Instant::now();
    while let Some(expired) = queue.pop_expired(now) {
        let message =
            "it was not sent: calls of this program before it, for the same partition, have no answer";
        expired.answer(Err(Error::new(ErrorKind::Timeout, message)));
    }
    // As many as are on their way, for a second call: then both have their turns at being made and being executed.
    queue.worth = if going > 1 { BATCH } else { on_their_way.len().max(in_turn).max(HALF) };
    if going + in_turn > 0 && (going >= AT_A_TIME || !queue.is_worth_a_call()) {
        return None;
    }
    let share = queue.share(going == 0);
    let batch = queue.take(share, now, on_their_way);
    (!batch.is_empty()).then_some(batch)
}

/// While a driver is at work. Should it end before its time, with a runtime of virtual time, all that waits has no answer.
pub(super) struct Driving {
    lane: Arc<Shared>,
    rested: bool,
}

impl Driving {
    pub(super) fn of(lane: Arc<Shared>) -> Self {
        Self { lane, rested: false }
    }

    /// Ends the driver's work, if there is none.
    fn rest(&mut self) -> bool {
        let mut queue = lock(&self.lane.queue);
        self.rested = queue.is_empty();
        queue.driven = !self.rested;
        self.rested
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        if !self.rested {
            let left = lock(&self.lane.queue).abandon();
            drop(left);
        }
    }
}

/// Calls of a few kinds; no key twice in all of them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    calls: Vec<Call>,
}

/// The asks of one kind, which go in one script call.
#[derive(Debug)]
struct Call {
    /// These say, too, whether it may have been executed.
    flags: OpFlags,
    asks: Vec<Waiting>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn add(&mut self, waiting: Waiting) {
        match self.calls.iter_mut().find(|call| call.takes(&waiting.ask)) {
            Some(call) => call.asks.push(waiting),
            None => self.calls.push(Call { flags: waiting.ask.flags, asks: vec![waiting] }),
        }
    }

    /// Sends what is asked until each has an answer, or its caller's patience has run out. Returns the keys, and the answers
    /// that came last.
    async fn carry(mut self, lane: &Shared) -> (Vec<Bytes>, Answered) {
        let asks = self.calls.iter().flat_map(|call| &call.asks);
        let keys = asks.flat_map(|waiting| waiting.ask.keys().cloned()).collect();
        let mut delays = RetryDelays::default();
        loop {
            let answers = {
                let calls: Vec<_> = self.calls.iter().map(Call::as_sent).collect();
                lane.store.produce(&lane.at, &calls).await
            };
            let wait = delays.next();
            let mut answered = Answered::default();
            let calls = self.calls.drain(..).zip(answers);
            self.calls = calls.filter_map(|(call, answer)| call.heard(answer, wait, &mut answered)).collect();
            if self.calls.is_empty() {
                return (keys, answered);
            }
            answered.hand_over().await;
            tokio::time::sleep(wait).await;
        }
    }
}

impl Call {
    fn takes(&self, ask: &Ask) -> bool {
        self.asks.first().is_some_and(|first| first.ask.goes_with(ask))
    }

    fn as_sent(&self) -> OpCall<'_> {
        let ops = self.asks.iter().flat_map(|waiting| &waiting.ask.ops).collect();
        OpCall { flags: self.flags, ops }
    }

    /// Adds the answers to those that are `answered`. Returns the asks that are to be sent again after `wait`.
    fn heard(mut self, answer: Answers, wait: Duration, answered: &mut Answered) -> Option<Self> {
        let error = match answer {
            Ok(each) => {
                let mut each = each.into_iter();
                for waiting in self.asks {
                    let count = waiting.ask.ops.len();
                    answered.add(waiting, Ok(each.by_ref().take(count).collect()));
                }
                return None;
            }
            Err(error) => error,
        };
        self.flags.repeat |= error.maybe_done();
        let again = Instant::now() + wait;
        let (patient, given_up): (Vec<_>, Vec<_>) =
            self.asks.into_iter().partition(|waiting| may_pass(&error) && waiting.until > again);
        for waiting in given_up {
            answered.add(waiting, Err(refused(error.clone(), self.flags.repeat)));
        }
        self.asks = patient;
        (!self.asks.is_empty()).then_some(self)
    }
}

/// Answers that came together.
#[derive(Debug, Default)]
struct Answered(Vec<(Waiting, Answers)>);

impl Answered {
    fn add(&mut self, waiting: Waiting, answers: Answers) {
        self.0.push((waiting, answers));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Answers, and returns when the callers have run: their next calls, if they have any, can go together. Returns the
    /// number of callers.
    ///
    /// A task on the callers' runtime wakes them: a runtime wakes its own tasks for less than another thread does. Where
    /// that runtime stands still, callers on other runtimes have their answers after [`TURN`].
    fn hand_over(self) -> impl Future<Output = usize> {
        let count = self.0.len();
        let runtime = self.0.first().map(|(first, _)| first.runtime.clone());
        let answered = Arc::new(Mutex::new(self.0));
        let there = answered.clone();
        let turn = async move {
            send(&there);
            tokio::task::yield_now().await;
        };
        let turn = runtime.map(|runtime| runtime.spawn(turn));
        async move {
            if let Some(turn) = turn {
                let _ = timeout(TURN, turn).await;
                send(&answered);
            }
            count
        }
    }
}

/// Sends the answers that were not sent yet.
fn send(answered: &Mutex<Vec<(Waiting, Answers)>>) {
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

    /// Two asks of callers who wait there, with their answers.
    fn two(waiting_at: &Handle) -> (Answered, [oneshot::Receiver<Answers>; 2]) {
        let _guard = waiting_at.enter();
        let mut answered = Answered::default();
        let receivers = [1, 2].map(|_| {
            let ask = Ask { flags: OpFlags::default(), ops: Vec::new() };
            let (waiting, receiver) = Waiting::new(ask, Instant::now());
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
        assert_eq!(answered.hand_over().await, 2);
        for caller in callers {
            assert!(caller.is_finished());
        }
    }

    #[tokio::test]
    async fn a_runtime_that_nobody_drives_keeps_no_answer() {
        let idle = idle();
        let (answered, receivers) = two(idle.handle());
        assert_eq!(answered.hand_over().await, 2);
        all_are_answered(receivers).await;
        idle.shutdown_background();
    }

    #[tokio::test]
    async fn a_runtime_that_has_ended_keeps_no_answer() {
        let idle = idle();
        let (answered, receivers) = two(idle.handle());
        idle.shutdown_background();
        assert_eq!(answered.hand_over().await, 2);
        all_are_answered(receivers).await;
    }
}
