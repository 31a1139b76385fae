//! Calls of producers for one partition, which share script calls while one is on its way.
//!
//! A call that finds nothing on its way is sent at once, by the caller's own task, and pays for nothing here. Those
//! that come meanwhile gather, and go together. They belong to a task of the lane's, the driver: a caller that is
//! dropped, or polls its future late, holds up nobody.

mod ask;
mod batch;
mod driver;
mod queue;
mod turn;

pub(super) use self::ask::{Ask, Jobs};

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::ask::{Answers, Waiting};
use self::driver::Driving;
use self::queue::{Alone, Queue};
use crate::connection::persist;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::wire::{Changed, PartitionNames, Store};

/// Timers in one call.
pub(super) const BATCH: usize = 250;
/// Bytes of keys and payloads in one call, roughly.
pub(super) const BATCH_BYTES: usize = 1 << 20;

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
    pub(super) async fn call(&self, patience: Duration, ask: Ask) -> Result<Changed> {
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
            let mut answers = store.change(at, &[ask.change(repeat)]).await;
            answers.pop().unwrap_or_else(|| Ok(Vec::new()))
        };
        persist(patience, call).await.map_err(|error| ask.name(error))
    }
}

/// Waits for the answer to what the driver sends.
async fn wait(answer: oneshot::Receiver<Answers>) -> Answers {
    answer.await.unwrap_or_else(|_| Err(Error::invalid("a call without an answer")))
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
fn only(answers: Vec<Result<Changed>>) -> Result<Changed> {
    answers.into_iter().next().unwrap_or_else(|| Err(Error::invalid("a call without an answer")))
}
