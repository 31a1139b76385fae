//! Starts attempts at their deadlines on the runtime of the handlers, to a fraction of a millisecond.
//!
//! The timer of tokio ticks in milliseconds: attempts would start 1.4 ms late (p50) or 1.9 ms (p99). With a thread
//! that waits for the next start, they are 0.08 ms and 0.15 ms late.
//!
//! An attempt that was never polled did not run, so a job stays here until its first poll takes it. A job that the
//! runtime never polls, or drops, can still be released, and a poll that comes later finds no job.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::lock::lock;
use crate::log::{info, warn};
use crate::roles::attempt::Job;
use crate::roles::write_back;
use crate::runtime::Runtime;

/// The number of attempts that one task spawns. A thread of the runtime queues 256 tasks, and moves its oldest ones
/// behind all others when the queue is full. Larger batches would delay those.
const TOGETHER: usize = 32;

/// Holds jobs until they may start, and until the runtime of the handlers polls them.
#[derive(Clone)]
pub(crate) struct Starter(Arc<Inner>);

struct Inner {
    runtime: Arc<Runtime>,
    queue: Mutex<StarterQueue>,
    changed: Condvar,
    /// The runtime of the handlers.
    handlers: Handle,
    /// The runtime of the roles.
    roles: Handle,
    /// Set in tests: jobs wait for tokio's timer, whose time a test may pause.
    virtual_time: bool,
}

#[derive(Default)]
struct StarterQueue {
    /// Jobs by the time at which they may start, and by order of arrival.
    jobs: BTreeMap<(Instant, u64), Job>,
    armed: u64,
    unpolled: Unpolled,
    closed: bool,
}

impl Starter {
    /// Creates a starter. Must be called on the runtime of the roles.
    pub(crate) fn new(runtime: &Arc<Runtime>, handlers: Handle) -> std::io::Result<Self> {
        let virtual_time = runtime.client.virtual_time();
        let inner = Arc::new(Inner {
            runtime: runtime.clone(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            handlers,
            roles: Handle::current(),
            virtual_time,
        });
        let starter = Self(inner.clone());
        if !virtual_time {
            std::thread::Builder::new().name("keylapse-starter".into()).spawn(move || inner.run())?;
        }
        Ok(starter)
    }

    /// Starts each job at its time. Releases the jobs if the starter is closed.
    pub(crate) fn hold(&self, jobs: impl Iterator<Item = (Instant, Job)>) {
        // The starter is closed on the thread that runs the claimers, so never during this call.
        if lock(&self.0.queue).closed {
            return jobs.for_each(|(_, job)| job.release_unrun());
        }
        let now = Instant::now();
        let (ready, early): (Vec<_>, Vec<_>) = jobs.partition(|(at, _)| *at <= now);
        self.0.start(ready.into_iter().map(|(_, job)| job));
        let mut queue = lock(&self.0.queue);
        let first = queue.first();
        for (at, job) in early {
            queue.armed += 1;
            let order = queue.armed;
            queue.jobs.insert((at, order), job);
            if self.0.virtual_time {
                self.0.roles.spawn(self.0.clone().start_at(at));
            }
        }
        let now_first = queue.first();
        drop(queue);
        if now_first != first {
            self.0.changed.notify_one();
        }
    }

    /// Waits while the runtime of the handlers is stalled. Calls other listeners first, which can run the timers.
    pub(crate) async fn until_it_runs(&self, call_others: impl FnOnce()) {
        let stall = &self.0.runtime.stall;
        if stall.lasts().is_some() {
            call_others();
            stall.is_over().await;
        }
    }

    /// Returns a guard that closes the starter when it is dropped.
    pub(crate) fn closing(&self) -> StarterCloseGuard {
        StarterCloseGuard(self.clone())
    }

    /// Ends the thread. Returns all jobs that have not started, or were never polled.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut queue = lock(&self.0.queue);
        queue.closed = true;
        self.0.changed.notify_one();
        let unpolled = queue.unpolled.take_all();
        mem::take(&mut queue.jobs).into_values().chain(unpolled).collect()
    }
}

/// Closes the starter when it is dropped, and drops all jobs that have not started.
pub(crate) struct StarterCloseGuard(Starter);

impl Drop for StarterCloseGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Inner {
    fn run(self: &Arc<Self>) {
        wake_exactly();
        let mut queue = lock(&self.queue);
        while !queue.closed {
            let now = Instant::now();
            if let Some(since) = queue.unpolled.look(now) {
                let unpolled = queue.unpolled.take_all();
                drop(queue);
                self.stand_still(since, unpolled);
                queue = lock(&self.queue);
                continue;
            }
            let left = queue.next().map(|at| at.saturating_duration_since(now));
            queue = match left {
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    let ready = queue.take_ready();
                    drop(queue);
                    self.start(ready);
                    lock(&self.queue)
                }
                Some(left) => {
                    self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Starts jobs at this time. In virtual time, tasks replace the thread.
    async fn start_at(self: Arc<Self>, at: Instant) {
        tokio::time::sleep_until(at).await;
        let ready = lock(&self.queue).take_ready();
        self.start(ready);
    }

    fn start(self: &Arc<Self>, jobs: impl IntoIterator<Item = Job>) {
        let mut ready = Vec::new();
        for job in jobs {
            if write_back::may_be_back(&job.partition.topic, &job.record.payload, &job.state) {
                self.roles.spawn(self.clone().start_unless_superseded(job));
                continue;
            }
            ready.push(job);
            if ready.len() == TOGETHER {
                self.spawn(mem::take(&mut ready));
            }
        }
        if !ready.is_empty() {
            self.spawn(ready);
        }
    }

    /// Starts a job unless it is superseded. Runs on the runtime of the roles, which has the connection.
    async fn start_unless_superseded(self: Arc<Self>, job: Job) {
        if let Some(job) = job.settle_if_superseded().await {
            self.spawn(vec![job]);
        }
    }

    /// Spawns jobs on the runtime of the handlers. Releases them if the runtime is stalled or the starter is closed.
    fn spawn(self: &Arc<Self>, jobs: Vec<Job>) {
        let mut queue = lock(&self.queue);
        if queue.closed || self.runtime.stall.lasts().is_some() {
            drop(queue);
            return jobs.into_iter().for_each(Job::release_unrun);
        }
        let count = jobs.len();
        let begun = SpawnedBatch::new(jobs);
        let is_earlier = queue.unpolled.add(begun.clone());
        drop(queue);
        if is_earlier {
            self.changed.notify_one();
        }
        let run = |place| self.clone().run_one(begun.clone(), place);
        if count == 1 {
            self.handlers.spawn(run(0));
        } else {
            let all: Vec<_> = (0..count).map(run).collect();
            self.handlers.spawn(spawn_all(all.into_iter()));
        }
    }

    /// Runs a job, if the first poll is in time. Runs on the runtime of the handlers.
    async fn run_one(self: Arc<Self>, begun: Arc<SpawnedBatch>, place: usize) {
        let Some(job) = begun.take(place) else { return };
        // Dropped early, to free the batch before the handler ends.
        drop(begun);
        if job.is_doubtful() {
            self.roles.spawn(self.clone().start_confirmed(job));
        } else {
            drop(self);
            job.run().await;
        }
    }

    /// Starts a late job, once the server has confirmed its lease. Runs on the runtime of the roles, where no handler
    /// delays the answer.
    async fn start_confirmed(self: Arc<Self>, job: Job) {
        if let Some(job) = job.confirmed().await {
            self.spawn(vec![job]);
        }
    }

    /// Marks the runtime of the handlers as stalled, and releases its jobs. No timer is claimed until a task on this
    /// runtime shows that it polls again.
    fn stand_still(&self, since: Instant, unpolled: Vec<Job>) {
        let count = unpolled.len();
        if self.runtime.stall.begin(since) {
            warn!(
                count,
                "the runtime of the handlers polls no attempts, so the listener releases its timers and claims none: \
                 do handlers block its threads, or does no thread drive it?"
            );
            let runtime = self.runtime.clone();
            self.handlers.spawn(async move {
                if let Some(after) = runtime.stall.end() {
                    info!(?after, "the runtime of the handlers polls again");
                }
            });
        }
        unpolled.into_iter().for_each(Job::release_unrun);
    }
}

/// Spawns tasks from inside the runtime, so that a running thread takes all of them. From outside, each would wake a
/// thread.
async fn spawn_all(tasks: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) {
    for task in tasks {
        tokio::spawn(task);
    }
    // A thread runs the task first that it spawned last. An empty task keeps the order of the others.
    tokio::spawn(async {});
}

/// Reduces the timer slack of this thread to 1 ns (`PR_SET_TIMERSLACK` in `prctl(2)`). By default, Linux delays
/// wake-ups by up to 50 µs to combine them. If the call fails, attempts start that much later.
fn wake_exactly() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl StarterQueue {
    /// Returns when the thread has to act next.
    fn next(&self) -> Option<Instant> {
        self.first().into_iter().chain(self.unpolled.look).min()
    }

    fn first(&self) -> Option<Instant> {
        self.jobs.first_key_value().map(|((at, _), _)| *at)
    }

    fn take_ready(&mut self) -> Vec<Job> {
        let now = Instant::now();
        let mut ready = Vec::new();
        while let Some(first) = self.jobs.first_entry().filter(|first| first.key().0 <= now) {
            ready.push(first.remove());
        }
        ready
    }
}

/// A runtime that has not polled an attempt for this long is stalled. Another listener can then start it less than a
/// second late.
const UNPOLLED: Duration = Duration::from_millis(500);
/// A check that is this late shows that the process or its machine was suspended.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// Jobs that were spawned together.
struct SpawnedBatch {
    at: Instant,
    jobs: Mutex<Jobs>,
}

struct Jobs {
    left: usize,
    all: Vec<Option<Job>>,
}

impl SpawnedBatch {
    fn new(jobs: Vec<Job>) -> Arc<Self> {
        let (left, all) = (jobs.len(), jobs.into_iter().map(Some).collect());
        Arc::new(Self { at: Instant::now(), jobs: Mutex::new(Jobs { left, all }) })
    }

    /// Takes a job for its first poll. Returns `None` if it was released before.
    fn take(&self, place: usize) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.all.get_mut(place)?.take()?;
        jobs.left -= 1;
        Some(job)
    }

    fn take_all(&self) -> Vec<Job> {
        let mut jobs = lock(&self.jobs);
        jobs.left = 0;
        jobs.all.iter_mut().filter_map(Option::take).collect()
    }

    fn is_polled(&self) -> bool {
        lock(&self.jobs).left == 0
    }
}

/// Batches with jobs that were not polled yet, and the time of the next check.
#[derive(Default)]
struct Unpolled {
    begun: VecDeque<Arc<SpawnedBatch>>,
    look: Option<Instant>,
}

impl Unpolled {
    /// Adds a new batch. Returns whether this makes the next check earlier.
    fn add(&mut self, begun: Arc<SpawnedBatch>) -> bool {
        self.forget_polled();
        let at = begun.at + UNPOLLED;
        self.begun.push_back(begun);
        let is_news = self.look.is_none();
        self.look.get_or_insert(at);
        is_news
    }

    /// Checks the batches, if it is time. Returns since when the runtime has been stalled, if it is.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        let planned = self.look.filter(|at| *at <= now)?;
        self.forget_polled();
        let first = self.begun.front().map(|begun| begun.at);
        self.look = first.map(|at| at + UNPOLLED);
        if now > planned + OVERSLEPT {
            // The runtime of the handlers could not poll either in this time.
            self.look = first.map(|_| now + UNPOLLED);
            return None;
        }
        first.filter(|at| *at + UNPOLLED <= now)
    }

    /// Takes all jobs that were not polled.
    fn take_all(&mut self) -> Vec<Job> {
        self.look = None;
        self.begun.drain(..).flat_map(|begun| begun.take_all()).collect()
    }

    fn forget_polled(&mut self) {
        while self.begun.front().is_some_and(|begun| begun.is_polled()) {
            self.begun.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spawned_together_starts_in_its_order() {
        let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let one = tokio::runtime::Builder::new_current_thread().build();
        for runtime in [many.expect("a runtime"), one.expect("a runtime")] {
            let (note, mut noted) = tokio::sync::mpsc::unbounded_channel();
            let task = move |number: i32| {
                let note = note.clone();
                async move { note.send(number).expect("the test reads them") }
            };
            let order = runtime.block_on(async {
                tokio::spawn(spawn_all((0..100).map(task)));
                let mut order = Vec::new();
                while let Some(number) = noted.recv().await {
                    order.push(number);
                }
                order
            });
            assert!(order.iter().copied().eq(0..100), "{order:?}");
        }
    }
}
