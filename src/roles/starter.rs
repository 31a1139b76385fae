//! Starts attempts at their deadlines on the runtime of the handlers, to a fraction of a millisecond.
//!
//! The timer of tokio ticks in milliseconds: attempts would start 1.4 ms late (p50) or 1.9 ms (p99). With a thread
//! that waits for the next start, they are 0.08 ms and 0.15 ms late.
//!
//! A task that was never polled has not run its attempt. Each job therefore stays here until the first poll of its task
//! takes it. A job whose task is not polled in time, or is dropped, can be released, and a later poll finds no job.

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

/// The maximum number of attempts that one task spawns. A thread of the runtime queues 256 tasks, and moves its oldest ones
/// behind all others when the queue is full. Larger batches would delay those.
const SPAWN_BATCH: usize = 32;

/// Holds jobs until they may start, and until the runtime of the handlers polls them.
#[derive(Clone)]
pub(crate) struct Starter(Arc<Inner>);

struct Inner {
    runtime: Arc<Runtime>,
    queue: Mutex<StarterQueue>,
    /// Wakes the thread when it has to act earlier, or when the starter is closed.
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
    /// The number of jobs that were added so far.
    arrived: u64,
    unpolled: UnpolledBatches,
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

    /// Adds jobs, each of which starts at its time. If the starter is closed, releases them instead.
    pub(crate) fn add(&self, jobs: impl Iterator<Item = (Instant, Job)>) {
        // No lock is held between this check and the rest: the starter is closed on the thread of the claimers, which runs
        // this call.
        if lock(&self.0.queue).closed {
            return jobs.for_each(|(_, job)| job.release_unrun());
        }
        let now = Instant::now();
        let (ready, early): (Vec<_>, Vec<_>) = jobs.partition(|(at, _)| *at <= now);
        self.0.start(ready.into_iter().map(|(_, job)| job));
        let mut queue = lock(&self.0.queue);
        let first = queue.first_start();
        for (at, job) in early {
            queue.arrived += 1;
            let order = queue.arrived;
            queue.jobs.insert((at, order), job);
            if self.0.virtual_time {
                self.0.roles.spawn(self.0.clone().start_at(at));
            }
        }
        let now_first = queue.first_start();
        drop(queue);
        if now_first != first {
            self.0.changed.notify_one();
        }
    }

    /// Waits while the runtime of the handlers is stalled. Wakes the followers first, which can run the timers.
    pub(crate) async fn wait_while_stalled(&self, wake_followers: impl FnOnce()) {
        let stall = &self.0.runtime.stall;
        if stall.elapsed().is_some() {
            wake_followers();
            stall.wait_until_over().await;
        }
    }

    /// Returns a guard that closes the starter when it is dropped.
    pub(crate) fn close_on_drop(&self) -> StarterCloseGuard {
        StarterCloseGuard(self.clone())
    }

    /// Closes the starter, which ends its thread. Returns all jobs whose attempts have not started.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut queue = lock(&self.0.queue);
        queue.closed = true;
        self.0.changed.notify_one();
        let unpolled = queue.unpolled.take_all();
        mem::take(&mut queue.jobs).into_values().chain(unpolled).collect()
    }
}

/// Closes the starter when this is dropped, and drops all jobs whose attempts have not started.
pub(crate) struct StarterCloseGuard(Starter);

impl Drop for StarterCloseGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Inner {
    /// Starts jobs at their times, and checks that they are polled, until the starter is closed. Runs on its thread.
    fn run(self: &Arc<Self>) {
        reduce_timer_slack();
        let mut queue = lock(&self.queue);
        while !queue.closed {
            let now = Instant::now();
            if let Some(since) = queue.unpolled.check(now) {
                let unpolled = queue.unpolled.take_all();
                drop(queue);
                self.handle_stall(since, unpolled);
                queue = lock(&self.queue);
                continue;
            }
            let left = queue.next_action_at().map(|at| at.saturating_duration_since(now));
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

    /// Waits until `at`, and starts the jobs that are ready. In virtual time, such tasks replace the thread.
    async fn start_at(self: Arc<Self>, at: Instant) {
        tokio::time::sleep_until(at).await;
        let ready = lock(&self.queue).take_ready();
        self.start(ready);
    }

    /// Starts jobs immediately. Keys that were written back are checked first.
    fn start(self: &Arc<Self>, jobs: impl IntoIterator<Item = Job>) {
        let mut ready = Vec::new();
        for job in jobs {
            if write_back::may_be_written_back(&job.partition.topic, &job.record.payload, &job.state) {
                self.roles.spawn(self.clone().start_unless_superseded(job));
                continue;
            }
            ready.push(job);
            if ready.len() == SPAWN_BATCH {
                self.spawn(mem::take(&mut ready));
            }
        }
        if !ready.is_empty() {
            self.spawn(ready);
        }
    }

    /// Starts a job unless it is superseded. Runs on the runtime of the roles, which has the connection.
    async fn start_unless_superseded(self: Arc<Self>, job: Job) {
        if let Some(job) = job.unless_superseded().await {
            self.spawn(vec![job]);
        }
    }

    /// Spawns jobs on the runtime of the handlers. Releases them if the runtime is stalled or the starter is closed.
    fn spawn(self: &Arc<Self>, jobs: Vec<Job>) {
        let mut queue = lock(&self.queue);
        if queue.closed || self.runtime.stall.elapsed().is_some() {
            drop(queue);
            return jobs.into_iter().for_each(Job::release_unrun);
        }
        let count = jobs.len();
        let batch = SpawnedBatch::new(jobs);
        let is_earlier = queue.unpolled.add(batch.clone());
        drop(queue);
        if is_earlier {
            self.changed.notify_one();
        }
        let run = |index| self.clone().run_one(batch.clone(), index);
        if count == 1 {
            self.handlers.spawn(run(0));
        } else {
            let all: Vec<_> = (0..count).map(run).collect();
            self.handlers.spawn(spawn_all(all.into_iter()));
        }
    }

    /// Takes a job at the first poll, and runs it. If the poll came late, its lease is confirmed first. Runs on the runtime of
    /// the handlers.
    async fn run_one(self: Arc<Self>, batch: Arc<SpawnedBatch>, index: usize) {
        let Some(job) = batch.take(index) else { return };
        // Dropped early, to free the batch before the handler ends.
        drop(batch);
        if job.is_doubtful() {
            self.roles.spawn(self.clone().start_confirmed(job));
        } else {
            drop(self);
            job.run().await;
        }
    }

    /// Spawns a late job again, if the server confirms its lease. Runs on the runtime of the roles, where no handler delays
    /// the answer.
    async fn start_confirmed(self: Arc<Self>, job: Job) {
        if let Some(job) = job.confirm_lease().await {
            self.spawn(vec![job]);
        }
    }

    /// Marks the runtime of the handlers as stalled, and releases the unpolled jobs. No timer is claimed until the runtime
    /// polls a task again.
    fn handle_stall(&self, since: Instant, unpolled: Vec<Job>) {
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

/// Spawns tasks from inside the runtime, so that a running thread takes all of them. Each task that is spawned from outside
/// would wake a thread.
async fn spawn_all(tasks: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) {
    for task in tasks {
        tokio::spawn(task);
    }
    // A thread runs the task first that it spawned last. An empty task keeps the order of the others.
    tokio::spawn(async {});
}

/// Reduces the timer slack of this thread to 1 ns (`PR_SET_TIMERSLACK` in `prctl(2)`). By default, Linux delays
/// wake-ups by up to 50 µs to combine them. If the call fails, attempts start that much later.
fn reduce_timer_slack() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl StarterQueue {
    /// Returns when the thread has to start a job or check the batches.
    fn next_action_at(&self) -> Option<Instant> {
        self.first_start().into_iter().chain(self.unpolled.check_at).min()
    }

    /// Returns when the first job may start.
    fn first_start(&self) -> Option<Instant> {
        self.jobs.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes the jobs that may start now.
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
const STALLED_AFTER: Duration = Duration::from_millis(500);
/// A check that is this late shows that the process or its machine was suspended.
const SUSPENDED_AFTER: Duration = Duration::from_millis(100);

/// Jobs that were spawned together.
struct SpawnedBatch {
    /// When they were spawned.
    at: Instant,
    jobs: Mutex<BatchJobs>,
}

struct BatchJobs {
    /// The number of jobs that were not taken yet.
    left: usize,
    /// The jobs by index, without those that were taken.
    all: Vec<Option<Job>>,
}

impl SpawnedBatch {
    fn new(jobs: Vec<Job>) -> Arc<Self> {
        let (left, all) = (jobs.len(), jobs.into_iter().map(Some).collect());
        Arc::new(Self { at: Instant::now(), jobs: Mutex::new(BatchJobs { left, all }) })
    }

    /// Takes a job for its first poll. Returns `None` if it was released before.
    fn take(&self, index: usize) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.all.get_mut(index)?.take()?;
        jobs.left -= 1;
        Some(job)
    }

    fn take_all(&self) -> Vec<Job> {
        let mut jobs = lock(&self.jobs);
        jobs.left = 0;
        jobs.all.iter_mut().filter_map(Option::take).collect()
    }

    fn is_fully_polled(&self) -> bool {
        lock(&self.jobs).left == 0
    }
}

/// The batches with unpolled jobs, in the order in which they were spawned.
#[derive(Default)]
struct UnpolledBatches {
    batches: VecDeque<Arc<SpawnedBatch>>,
    /// When to check next whether the runtime polls them.
    check_at: Option<Instant>,
}

impl UnpolledBatches {
    /// Adds a new batch. Returns true if no check was planned before.
    fn add(&mut self, batch: Arc<SpawnedBatch>) -> bool {
        self.forget_polled();
        let at = batch.at + STALLED_AFTER;
        self.batches.push_back(batch);
        let is_news = self.check_at.is_none();
        self.check_at.get_or_insert(at);
        is_news
    }

    /// Checks the batches if a check is due. If the runtime is stalled, returns since when.
    fn check(&mut self, now: Instant) -> Option<Instant> {
        let planned = self.check_at.filter(|at| *at <= now)?;
        self.forget_polled();
        let first = self.batches.front().map(|batch| batch.at);
        self.check_at = first.map(|at| at + STALLED_AFTER);
        if now > planned + SUSPENDED_AFTER {
            // The runtime of the handlers could not poll either in this time.
            self.check_at = first.map(|_| now + STALLED_AFTER);
            return None;
        }
        first.filter(|at| *at + STALLED_AFTER <= now)
    }

    /// Removes all jobs that were not polled.
    fn take_all(&mut self) -> Vec<Job> {
        self.check_at = None;
        self.batches.drain(..).flat_map(|batch| batch.take_all()).collect()
    }

    /// Removes fully polled batches from the front.
    fn forget_polled(&mut self) {
        while self.batches.front().is_some_and(|batch| batch.is_fully_polled()) {
            self.batches.pop_front();
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
