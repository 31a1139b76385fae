//! Starts attempts at their deadlines, to a fraction of a millisecond.
//!
//! The runtime's timer ticks in milliseconds (measured: p50 1.4 ms, p99 1.9 ms
//! late); a thread that waits on a heap until the next start does 0.08 and 0.15.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::roles::attempt::Job;

/// Holds jobs until they may start.
#[derive(Clone, Debug)]
pub(crate) struct Starter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Mutex<Queue>,
    changed: Condvar,
    runtime: Handle,
    /// Jobs wait on the runtime's timer, whose time tests may pause.
    virtual_time: bool,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: BinaryHeap<Reverse<Waiting>>,
    armed: u64,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    at: Instant,
    order: u64,
    job: Job,
}

impl Starter {
    /// A starter for the current runtime.
    pub(crate) fn new(virtual_time: bool) -> std::io::Result<Self> {
        let starter = Self(Arc::new(Inner {
            queue: Mutex::default(),
            changed: Condvar::new(),
            runtime: Handle::current(),
            virtual_time,
        }));
        if !virtual_time {
            let inner = starter.0.clone();
            std::thread::Builder::new().name("keylapse-starter".into()).spawn(move || inner.run())?;
        }
        Ok(starter)
    }

    /// Starts each job at its time.
    pub(crate) fn hold(&self, jobs: impl Iterator<Item = (Instant, Job)>) {
        let now = Instant::now();
        let (ready, early): (Vec<_>, Vec<_>) = jobs.partition(|(at, _)| *at <= now);
        for (_, job) in ready {
            self.0.runtime.spawn(job.run());
        }
        if early.is_empty() {
            return;
        }
        let mut queue = self.0.lock();
        let first = queue.jobs.peek().map(|Reverse(waiting)| waiting.at);
        for (at, job) in early {
            queue.armed += 1;
            let order = queue.armed;
            queue.jobs.push(Reverse(Waiting { at, order, job }));
        }
        let now_first = queue.jobs.peek().map(|Reverse(waiting)| waiting.at);
        drop(queue);
        if now_first != first {
            self.0.changed.notify_one();
            self.0.start_on_runtime(now_first);
        }
    }

    /// Takes back everything that has not started, and ends the thread.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut queue = self.0.lock();
        queue.closed = true;
        self.0.changed.notify_one();
        std::mem::take(&mut queue.jobs).into_iter().map(|Reverse(waiting)| waiting.job).collect()
    }
}

impl Inner {
    fn run(&self) {
        wake_exactly();
        let mut queue = self.lock();
        while !queue.closed {
            let ready = queue.take_ready();
            if ready.is_empty() {
                queue = self.wait(queue);
                continue;
            }
            drop(queue);
            for job in ready {
                self.runtime.spawn(job.run());
            }
            queue = self.lock();
        }
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        match queue.jobs.peek() {
            None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            Some(Reverse(next)) => {
                let left = next.at.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// In virtual time a task does what the thread does otherwise.
    fn start_on_runtime(self: &Arc<Self>, first: Option<Instant>) {
        let Some(at) = first.filter(|_| self.virtual_time) else { return };
        let inner = self.clone();
        self.runtime.spawn(async move {
            let mut next = Some(at);
            while let Some(at) = next {
                tokio::time::sleep_until(at).await;
                let ready = inner.lock().take_ready();
                for job in ready {
                    tokio::spawn(job.run());
                }
                next = inner.lock().jobs.peek().map(|Reverse(waiting)| waiting.at);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Linux puts a thread's wake-ups off by up to 50 µs to gather them, unless it is asked not to
/// (`PR_SET_TIMERSLACK` in `prctl(2)`). Where that is refused they come a little later.
fn wake_exactly() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl Queue {
    fn take_ready(&mut self) -> Vec<Job> {
        let now = Instant::now();
        let mut ready = Vec::new();
        while self.jobs.peek().is_some_and(|Reverse(next)| next.at <= now) {
            ready.extend(self.jobs.pop().map(|Reverse(waiting)| waiting.job));
        }
        ready
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
