//! Starts attempts at their deadlines, to a fraction of a millisecond, where handlers run.
//!
//! The runtime's timer ticks in milliseconds (measured: p50 1.4 ms, p99 1.9 ms
//! late); a thread that waits for the next start does 0.08 and 0.15.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::attached::write_back;
use crate::lock::lock;
use crate::roles::attempt::Job;

/// So many are spawned by one task. Of more those that wait longest would give way to the rest: what a thread of the
/// runtime has no room for, which is 256, goes to the end of what all share.
const TOGETHER: usize = 32;

/// Holds jobs until they may start.
#[derive(Clone)]
pub(crate) struct Starter(Arc<Inner>);

struct Inner {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Where handlers run.
    handlers: Handle,
    /// Where roles do.
    roles: Handle,
    /// Jobs wait on the runtime's timer, whose time tests may pause.
    virtual_time: bool,
}

#[derive(Default)]
struct Queue {
    /// By the moments at which they may start, and in the order in which they came.
    jobs: BTreeMap<(Instant, u64), Job>,
    armed: u64,
    closed: bool,
}

impl Starter {
    /// A starter of attempts on this runtime, to be made where the roles run.
    pub(crate) fn new(handlers: Handle, virtual_time: bool) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
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
            return jobs.for_each(|(_, job)| job.hand_back());
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

    /// Closes it when that is dropped.
    pub(crate) fn closing(&self) -> Closing {
        Closing(self.clone())
    }

    /// Takes back everything that has not started, and ends the thread.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut queue = lock(&self.0.queue);
        queue.closed = true;
        self.0.changed.notify_one();
        mem::take(&mut queue.jobs).into_values().collect()
    }
}

/// Ends the thread when it is dropped, and with it all that has not started.
pub(crate) struct Closing(Starter);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Inner {
    fn run(&self) {
        wake_exactly();
        let mut queue = lock(&self.queue);
        while !queue.closed {
            let left = queue.first().map(|at| at.saturating_duration_since(Instant::now()));
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

    fn start(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut ready = Vec::new();
        for job in jobs {
            job.begin();
            if write_back::may_be_back(&job.partition.topic, &job.record.payload, &job.state) {
                self.roles.spawn(start_unless_superseded(job, self.handlers.clone()));
                continue;
            }
            ready.push(job);
            if ready.len() == TOGETHER {
                self.spawn(mem::take(&mut ready));
            }
        }
        self.spawn(ready);
    }

    fn spawn(&self, mut together: Vec<Job>) {
        if together.len() > 1 {
            self.handlers.spawn(spawn_all(together.into_iter().map(Job::run)));
        } else if let Some(only) = together.pop() {
            self.handlers.spawn(only.run());
        }
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

/// The server is asked where its connection is.
async fn start_unless_superseded(job: Job, handlers: Handle) {
    if let Some(job) = job.unless_superseded().await {
        handlers.spawn(job.run());
    }
}

/// Linux puts a thread's wake-ups off by up to 50 µs to gather them, unless it is asked not to
/// (`PR_SET_TIMERSLACK` in `prctl(2)`). Where that is refused they come a little later.
fn wake_exactly() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl Queue {
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
