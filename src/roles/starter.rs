//! Starts attempts at their deadlines, to a fraction of a millisecond, where handlers run.
//!
//! The runtime's timer ticks in milliseconds (measured: p50 1.4 ms, p99 1.9 ms
//! late); a thread that waits for the next start does 0.08 and 0.15.
//!
//! An attempt that was never polled was not run. So a job stays here until the first poll takes it: one that the
//! runtime never polls, or drops, can still be handed back, and a poll that comes too late finds nothing.

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

/// So many are spawned by one task. Of more those that wait longest would give way to the rest: what a thread of the
/// runtime has no room for, which is 256, goes to the end of what all share.
const TOGETHER: usize = 32;

/// Holds jobs until they may start, and until the runtime of the handlers polls them.
#[derive(Clone)]
pub(crate) struct Starter(Arc<Inner>);

struct Inner {
    runtime: Arc<Runtime>,
    queue: Mutex<StarterQueue>,
    changed: Condvar,
    /// Where handlers run.
    handlers: Handle,
    /// Where roles do.
    roles: Handle,
    /// Jobs wait on the runtime's timer, whose time tests may pause.
    virtual_time: bool,
}

#[derive(Default)]
struct StarterQueue {
    /// By the moments at which they may start, and in the order in which they came.
    jobs: BTreeMap<(Instant, u64), Job>,
    armed: u64,
    unpolled: Unpolled,
    closed: bool,
}

impl Starter {
    /// A starter of attempts on the runtime of the handlers, to be made where the roles run.
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

    /// Starts each job at its time; once it is closed, hands it back.
    pub(crate) fn hold(&self, jobs: impl Iterator<Item = (Instant, Job)>) {
        // Closed by whoever runs the claimers, so not while one is here.
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

    /// Returns once attempts run: while the runtime of the handlers stands still, they do not. Calls others first, who
    /// may run them.
    pub(crate) async fn until_it_runs(&self, call_others: impl FnOnce()) {
        let stall = &self.0.runtime.stall;
        if stall.lasts().is_some() {
            call_others();
            stall.is_over().await;
        }
    }

    /// Closes it when that is dropped.
    pub(crate) fn closing(&self) -> StarterCloseGuard {
        StarterCloseGuard(self.clone())
    }

    /// Takes back everything that has not started, or was never polled, and ends the thread.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut queue = lock(&self.0.queue);
        queue.closed = true;
        self.0.changed.notify_one();
        let unpolled = queue.unpolled.take_all();
        mem::take(&mut queue.jobs).into_values().chain(unpolled).collect()
    }
}

/// Ends the thread when it is dropped, and with it all that has not started.
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

    /// In virtual time tasks do what the thread does otherwise.
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

    /// The server is asked where its connection is.
    async fn start_unless_superseded(self: Arc<Self>, job: Job) {
        if let Some(job) = job.settle_if_superseded().await {
            self.spawn(vec![job]);
        }
    }

    /// Leaves jobs to the runtime of the handlers, unless that stands still.
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

    /// The runtime of the handlers polls this.
    async fn run_one(self: Arc<Self>, begun: Arc<SpawnedBatch>, place: usize) {
        let Some(job) = begun.take(place) else { return };
        // Dropped early: they would be kept for as long as the handler runs.
        drop(begun);
        if job.is_doubtful() {
            self.roles.spawn(self.clone().start_confirmed(job));
        } else {
            drop(self);
            job.run().await;
        }
    }

    /// Its turn has come late. The server is asked where no handler holds up the answer.
    async fn start_confirmed(self: Arc<Self>, job: Job) {
        if let Some(job) = job.confirmed().await {
            self.spawn(vec![job]);
        }
    }

    /// The runtime of the handlers polls nothing: what it was given is handed back, and nothing is claimed until a
    /// task shows that it polls again.
    fn stand_still(&self, since: Instant, unpolled: Vec<Job>) {
        let count = unpolled.len();
        if self.runtime.stall.begin(since) {
            warn!(
                count,
                "the runtime of the handlers polls nothing, so its timers are left to other listeners and nothing is claimed; \
                 do handlers block its threads, or does nobody drive it?"
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

/// From within the runtime, where a thread that runs already takes all of them: from elsewhere each would wake one.
async fn spawn_all(tasks: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) {
    for task in tasks {
        tokio::spawn(task);
    }
    // What a thread has spawned last it runs first. Let that be nothing.
    tokio::spawn(async {});
}

/// Linux puts a thread's wake-ups off by up to 50 µs to gather them, unless it is asked not to
/// (`PR_SET_TIMERSLACK` in `prctl(2)`). Where that is refused they come a little later.
fn wake_exactly() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl StarterQueue {
    /// When there is something to do.
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

/// A runtime that has not polled an attempt for so long stands still. Half of what another listener may take to begin
/// it, so that it is less than a second late.
const UNPOLLED: Duration = Duration::from_millis(500);
/// A look that comes so much too late shows that this process, or its machine, stood still itself.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// Jobs that were begun together.
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

    /// Returns the job for the poll that comes now; none if it was handed back.
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

/// All that were begun and were not polled so far, and when to look for those that never are.
#[derive(Default)]
struct Unpolled {
    begun: VecDeque<Arc<SpawnedBatch>>,
    look: Option<Instant>,
}

impl Unpolled {
    /// Adds what was begun just now. Returns whether that brings the next look forward.
    fn add(&mut self, begun: Arc<SpawnedBatch>) -> bool {
        self.forget_polled();
        let at = begun.at + UNPOLLED;
        self.begun.push_back(begun);
        let is_news = self.look.is_none();
        self.look.get_or_insert(at);
        is_news
    }

    /// Looks, if it is time. Returns since when the runtime stands still, if it does.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        let planned = self.look.filter(|at| *at <= now)?;
        self.forget_polled();
        let first = self.begun.front().map(|begun| begun.at);
        self.look = first.map(|at| at + UNPOLLED);
        if now > planned + OVERSLEPT {
            // The handlers' runtime could not poll meanwhile either.
            self.look = first.map(|_| now + UNPOLLED);
            return None;
        }
        first.filter(|at| *at + UNPOLLED <= now)
    }

    /// Takes back everything.
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
