//! Calls of producers for one partition, which share script calls while one is on its way.
//!
//! A call that finds nothing on its way is sent at once, by the caller's own task, and pays for nothing here. Those
//! that come meanwhile gather, and go together. They belong to a task of the lane's, the driver: a caller that is
//! dropped, or polls its future late, holds up nobody.

mod driver;

use std::collections::{HashSet, VecDeque};
use std::mem::{self, discriminant};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::driver::{Batch, Driving};
use crate::connection::persist;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::wire::{Op, OpCall, OpFlags, OpReply, PartitionNames, Store};

/// Timers in one call.
pub(super) const BATCH: usize = 250;
/// Bytes of keys and payloads in one call, roughly.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Asks that nobody waits for any more are cleared away when so many wait, and twice as many as the last time.
const MANY: usize = 1000;
/// So long a call that goes alone keeps others of its key from overtaking it. It is in the hands of its caller, who
/// may have stopped polling: so nobody waits for it any longer.
const KEPT: Duration = Duration::from_secs(1);
/// The fewest timers for which a call is made while another is on its way.
const HALF: usize = 8;

/// One partition, as producers see it. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Lane(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    at: PartitionNames,
    store: Store,
    queue: Mutex<Queue>,
    /// Enough waits for a call beside those that are on their way.
    enough: Notify,
}

impl Lane {
    pub(super) fn new(store: Store, at: PartitionNames) -> Self {
        Self(Arc::new(Shared { at, store, queue: Mutex::default(), enough: Notify::new() }))
    }

    pub(super) fn at(&self) -> &PartitionNames {
        &self.0.at
    }

    /// Makes one call, by itself or together with others.
    pub(super) async fn call(&self, patience: Duration, ask: Ask) -> Result<OpReply> {
        let until = Instant::now() + patience;
        match self.enter(ask, until) {
            Entered::Alone(going, ask) => {
                let answer = self.by_itself(patience, &ask).await;
                drop(going);
                answer.and_then(only)
            }
            Entered::Together(answer) => wait(answer).await.and_then(only),
        }
    }

    /// Puts down a call that shares others' in any case; the answer comes whether it is waited for or not.
    pub(super) fn put(&self, patience: Duration, ask: Ask) -> impl Future<Output = Answers> + use<> {
        let until = Instant::now() + patience;
        wait(self.queue(lock(&self.0.queue), ask, until))
    }

    fn enter(&self, ask: Ask, until: Instant) -> Entered {
        let mut queue = lock(&self.0.queue);
        if queue.alone.is_none() && !queue.driven {
            queue.alone = Alone::with(&ask);
            return Entered::Alone(Going(self.0.clone()), ask);
        }
        Entered::Together(self.queue(queue, ask, until))
    }

    fn queue(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        ask: Ask,
        until: Instant,
    ) -> oneshot::Receiver<Answers> {
        let (waiting, receiver) = Waiting::new(ask, until);
        let was_empty = queue.is_empty();
        queue.push(waiting);
        if queue.driven {
            // The driver looks when the patience of the first ends, too.
            if was_empty || queue.is_worth_a_call() {
                self.0.enough.notify_one();
            }
            return receiver;
        }
        queue.driven = true;
        // In virtual time a runtime that is ending drops the driver at once, and that needs the lock.
        drop(queue);
        self.0.store.home().spawn(driver::drive(Driving::of(self.0.clone())));
        receiver
    }

    async fn by_itself(&self, patience: Duration, ask: &Ask) -> Answers {
        let Shared { at, store, .. } = &*self.0;
        let call = async |repeat| {
            let flags = OpFlags { repeat, ..ask.flags };
            let mut answers = store.produce(at, &[OpCall { flags, ops: ask.ops.iter().collect() }]).await;
            answers.pop().unwrap_or_else(|| Ok(Vec::new()))
        };
        persist(patience, call).await.map_err(|error| ask.failed(error))
    }
}

/// Waits for the answer to what the driver sends.
async fn wait(answer: oneshot::Receiver<Answers>) -> Answers {
    answer.await.unwrap_or_else(|_| Err(no_answer()))
}

/// The driver has ended, by a panic or with its runtime: the call may have been sent.
fn no_answer() -> Error {
    let message = "the task that sends this program's calls has ended: what was asked may have been done";
    Error::new(ErrorKind::Internal, message).unanswered()
}

enum Entered {
    Alone(Going, Ask),
    Together(oneshot::Receiver<Answers>),
}

/// A call that goes alone, until it has its answer or is dropped.
struct Going(Arc<Shared>);

impl Drop for Going {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.alone = None;
        if !queue.is_empty() {
            self.0.enough.notify_one();
        }
    }
}

/// The answer to a call about one timer.
fn only(answers: Vec<Result<OpReply>>) -> Result<OpReply> {
    answers.into_iter().next().unwrap_or_else(|| Err(no_answer()))
}

/// Ops of one kind that one caller asks for; no key twice.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) flags: OpFlags,
    pub(super) ops: Vec<Op>,
}

/// One answer for each op, or one error for all.
type Answers = Result<Vec<Result<OpReply>>>;

impl Ask {
    /// Whether both can go in one script call.
    fn goes_with(&self, other: &Self) -> bool {
        let kind = |ask: &Self| ask.ops.first().map(discriminant);
        self.flags == other.flags && kind(self) == kind(other)
    }

    /// Bytes of keys and payloads.
    fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }

    fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.ops.iter().map(Op::key)
    }

    /// An error of the whole call, as this caller sees it.
    fn failed(&self, error: Error) -> Error {
        if let [only] = &self.ops[..] { only.failed(error) } else { error }
    }
}

/// An ask that waits to be sent, or for its answer.
#[derive(Debug)]
struct Waiting {
    ask: Ask,
    answer: oneshot::Sender<Answers>,
    /// The end of the caller's patience.
    until: Instant,
    /// The runtime on which the caller waits.
    runtime: Handle,
}

impl Waiting {
    fn new(ask: Ask, until: Instant) -> (Self, oneshot::Receiver<Answers>) {
        let (answer, receiver) = oneshot::channel();
        (Self { ask, answer, until, runtime: Handle::current() }, receiver)
    }

    /// Nobody waits for it any more.
    fn is_forsaken(&self) -> bool {
        self.answer.is_closed()
    }

    fn answer(self, answers: Answers) {
        // A caller that has gone needs none.
        let _ = self.answer.send(answers.map_err(|error| self.ask.failed(error)));
    }
}

/// What waits to be sent, in the order in which it was asked.
#[derive(Debug, Default)]
struct Queue {
    /// Somebody has sent a call alone, and waits for its answer.
    alone: Option<Alone>,
    /// There is a driver.
    driven: bool,
    waiting: VecDeque<Waiting>,
    /// Timers that are asked for, and bytes of their keys and payloads.
    count: usize,
    bytes: usize,
    /// How many asks were left when it was last cleared.
    left: usize,
    /// How many timers are worth a call of their own beside those that are on their way.
    worth: usize,
}

/// A call that goes alone.
#[derive(Debug)]
struct Alone {
    key: Bytes,
    /// So long others of its key wait for it.
    until: Instant,
}

impl Alone {
    fn with(ask: &Ask) -> Option<Self> {
        Some(Self { key: ask.keys().next()?.clone(), until: Instant::now() + KEPT })
    }
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        if self.waiting.len() >= MANY.max(2 * self.left) || self.bytes > 64 * BATCH_BYTES {
            self.clear_forsaken();
        }
        self.count += waiting.ask.ops.len();
        self.bytes += waiting.ask.bytes();
        self.waiting.push_back(waiting);
    }

    /// Whether enough waits for a call beside those that are on their way.
    fn is_worth_a_call(&self) -> bool {
        self.count >= self.worth.min(BATCH) || self.bytes >= BATCH_BYTES
    }

    /// How many timers are to go now, of those that wait.
    fn share(&self, alone: bool) -> usize {
        // In two halves, so that the second is put together and sent while the first is executed.
        if alone && self.count >= 2 * HALF { self.count.div_ceil(2).min(BATCH) } else { BATCH }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When to look again, though nothing has happened: when the patience of the first ends, who has the least, as
    /// all have the same, or when nobody waits for the call that goes alone any longer.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let first = self.waiting.front()?.until;
        let alone = self.alone.as_ref().map(|alone| alone.until).filter(|until| *until > now);
        Some(alone.map_or(first, |alone| alone.min(first)))
    }

    /// Takes out the first if its time is over.
    fn pop_expired(&mut self, now: Instant) -> Option<Waiting> {
        self.waiting.front().filter(|waiting| waiting.until <= now)?;
        self.pop()
    }

    /// Takes the first asks, up to so many timers and to the bounds of a call, and adds their keys to those on their
    /// way. Who names a key that is on its way stays, and so does who names one of theirs: of what concerns one key
    /// the later comes later, whatever it is.
    fn take(&mut self, most: usize, now: Instant, on_their_way: &mut HashSet<Bytes>) -> Batch {
        let (mut batch, mut stays, mut kept) = (Batch::default(), VecDeque::new(), HashSet::new());
        kept.extend(self.alone.as_ref().filter(|alone| alone.until > now).map(|alone| alone.key.clone()));
        let (mut count, mut bytes) = (0, 0);
        while let Some(first) = self.waiting.front() {
            if first.is_forsaken() {
                self.pop();
                continue;
            }
            let ask = &first.ask;
            count += ask.ops.len();
            bytes += ask.bytes();
            if count > most.max(ask.ops.len()) || bytes > BATCH_BYTES.max(ask.bytes()) {
                break;
            }
            let waits = ask.keys().any(|key| on_their_way.contains(key) || kept.contains(key));
            if waits {
                kept.extend(ask.keys().cloned());
            } else {
                on_their_way.extend(ask.keys().cloned());
            }
            match self.waiting.pop_front() {
                Some(first) if waits => stays.push_back(first),
                Some(first) => {
                    self.leave(&first.ask);
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

    /// Takes out everything that waits, as nobody drives it any more.
    fn abandon(&mut self) -> VecDeque<Waiting> {
        (self.driven, self.count, self.bytes) = (false, 0, 0);
        mem::take(&mut self.waiting)
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.leave(&waiting.ask);
        Some(waiting)
    }

    fn leave(&mut self, ask: &Ask) {
        self.count -= ask.ops.len();
        self.bytes -= ask.bytes();
    }

    fn clear_forsaken(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_forsaken());
        self.count = self.waiting.iter().map(|waiting| waiting.ask.ops.len()).sum();
        self.bytes = self.waiting.iter().map(|waiting| waiting.ask.bytes()).sum();
        self.left = self.waiting.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that takes it for refused would do something else instead, and both would happen.
    #[tokio::test]
    async fn a_call_whose_driver_has_ended_may_have_been_done() {
        let ask = Ask { flags: OpFlags::default(), ops: Vec::new() };
        let (waiting, answer) = Waiting::new(ask, Instant::now());
        drop(waiting);
        let error = wait(answer).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Internal && error.maybe_done(), "{error:?}");
    }
}
