//! A steady stream of timers, and what has become of each.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use keylapse::{Client, Done, Error, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::eventually;
use keylapse_testing::{LocalCluster, LocalNode};
use tokio::task::{JoinHandle, JoinSet};

use crate::outcome::{Outcome, Start, Starts};
use crate::reach::as_app;
use crate::support::Running;

/// A key in the slot of the first partition.
pub(crate) const FIRST: &str = "keylapse:{app.timer/0}:due";
/// Timers are armed this far ahead.
const AHEAD: Duration = Duration::from_millis(500);
/// Longer than anything here takes on a busy machine, and than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(60);
/// More calls than this at a time would keep a busy machine from answering any.
const MAX_CALLS: usize = 1000;
/// From when a server sends an answer until somebody has read it and looked at the clock, on a busy machine.
const AT_THE_KILL: Duration = Duration::from_millis(20);
/// What is doubled so long before a fault, or after it, may be its work.
pub(crate) const AROUND: Duration = Duration::from_secs(1);

/// As many timers as it takes, until there are [`enough`](Load::enough).
pub(crate) const MANY: u32 = u32::MAX;

pub(crate) type Times = Vec<RangeInclusive<SystemTime>>;

/// A topic, somebody who arms its timers one after the other, and a listener.
pub(crate) struct Load {
    pub(crate) running: Running,
    starts: Arc<Mutex<Starts>>,
    arms: Arc<Arms>,
    arming: JoinHandle<()>,
    /// When arms may have been acknowledged by a server that has thrown them away since.
    unreplicated: Mutex<Times>,
    /// When something was wrong on purpose, so that attempts may be made again.
    harm: Mutex<Times>,
}

/// How far the one who arms has come.
#[derive(Default)]
struct Arms {
    begun: AtomicU32,
    enough: AtomicBool,
    /// When each was acknowledged.
    acked: Mutex<HashMap<u32, SystemTime>>,
    /// Those whose call took longer than their timer. The call may have been repeated after the timer had run, and then it
    /// has armed the timer a second time, with the same id.
    outrun: Mutex<HashSet<u32>>,
}

pub(crate) fn topic(partitions: u32) -> Topic<u32> {
    Topic::new("app:timer:{id}").unwrap().partitions(partitions).lease(Duration::from_secs(5))
}

/// Somebody who waits for half a second and no longer.
pub(crate) async fn impatient(url: &str) -> keylapse::Result<Schedule> {
    Schedule::connect(Client::new(url).unwrap().retry_for(Duration::from_millis(500))).await
}

/// What they are told who arm timers in all partitions, for later; nothing if that is done.
pub(crate) async fn told(schedule: &Schedule, partitions: u32) -> Vec<Error> {
    let (topic, hour) = (topic(partitions), Duration::from_secs(3600));
    let arm = async |number: u32| schedule.arm(&topic, [format!("later-{number}")], hour, &number).await;
    join_all((0..30).map(arm)).await.into_iter().filter_map(Result::err).collect()
}

impl Load {
    /// So many timers, one every so often.
    pub(crate) async fn start(cluster: &LocalCluster, partitions: u32, count: u32, every: Duration) -> Self {
        Self::at(&cluster.url(), partitions, count, every).await
    }

    /// The same at a URL, as the user with the least rights.
    pub(crate) async fn at(url: &str, partitions: u32, count: u32, every: Duration) -> Self {
        Self::that_takes(Duration::ZERO, url, partitions, count, every).await
    }

    /// The same with handlers that take their time.
    pub(crate) async fn that_takes(
        time: Duration,
        url: &str,
        partitions: u32,
        count: u32,
        every: Duration,
    ) -> Self {
        let url = &as_app(url);
        let (topic, starts, arms) =
            (topic(partitions), Arc::<Mutex<Starts>>::default(), Arc::<Arms>::default());
        let seen = starts.clone();
        let handler = move |lapse: Lapse<u32>| {
            seen.lock().unwrap().entry(*lapse.payload()).or_default().push(Start::of(&lapse));
            async move {
                tokio::time::sleep(time).await;
                Ok::<_, Failure>(Done)
            }
        };
        let running = Running::start(Listener::builder(url).on(topic.clone(), handler));
        running.until_anchored().await;
        let schedule = Schedule::new(Client::new(url).unwrap().retry_for(PATIENCE));
        let arming = tokio::spawn(arms.clone().make(schedule, topic, count, every));
        Self { running, starts, arms, arming, unreplicated: Mutex::default(), harm: Mutex::default() }
    }

    /// Waits until so many timers have run.
    pub(crate) async fn until_handled(&self, count: usize) {
        let starts = &self.starts;
        eventually(PATIENCE, "timers to run", async || starts.lock().unwrap().len() >= count).await;
    }

    /// Waits until so many more have run.
    pub(crate) async fn until_more_handled(&self, count: usize) {
        let present = self.starts.lock().unwrap().len();
        self.until_handled(present + count).await;
    }

    /// Waits until all that somebody has begun to arm by now has run.
    pub(crate) async fn until_caught_up(&self) {
        let begun = self.arms.until_answered().await;
        eventually(PATIENCE, "timers to run", async || {
            let starts = self.starts.lock().unwrap();
            (0..begun).all(|number| starts.contains_key(&number))
        })
        .await;
    }

    /// Sees to this while arms may be acknowledged that are thrown away: by a server that others have replaced, and that
    /// does not know it until this is done. Asynchronous replication has no remedy for these.
    pub(crate) async fn while_replaced<T>(&self, work: impl Future<Output = T>) -> T {
        let begun = SystemTime::now();
        let done = work.await;
        self.arms.until_answered().await;
        self.unreplicated.lock().unwrap().push(begun..=SystemTime::now());
        done
    }

    /// Kills a server. What it had acknowledged just before it may not have told its replicas yet.
    pub(crate) fn kill(&self, node: &LocalNode) {
        let begun = SystemTime::now();
        node.kill();
        self.unreplicated.lock().unwrap().push(begun - AT_THE_KILL..=SystemTime::now() + AT_THE_KILL);
    }

    /// Does this harm, until all is well again. What began shortly before, or until shortly after, may run again.
    pub(crate) async fn harm<T>(&self, work: impl Future<Output = T>) -> T {
        let begun = SystemTime::now() - AROUND;
        let done = work.await;
        self.harm.lock().unwrap().push(begun..=SystemTime::now() + AROUND);
        done
    }

    /// Arms no more.
    pub(crate) fn enough(self) -> Self {
        self.arms.enough.store(true, Ordering::Relaxed);
        self
    }

    /// Waits until all are armed that were to be, and all that was armed has been handled.
    pub(crate) async fn end(self) -> Outcome {
        self.arming.await.unwrap();
        let unreplicated = self.unreplicated.into_inner().unwrap();
        let may_be_gone = |acked: &SystemTime| unreplicated.iter().any(|window| window.contains(acked));
        let missing = || {
            let (starts, acked) = (self.starts.lock().unwrap(), self.arms.acked.lock().unwrap());
            let missing = acked.iter().filter(|(number, _)| !starts.contains_key(number));
            missing.map(|(_, acked)| *acked).collect::<Vec<_>>()
        };
        let handled = tokio::time::timeout(PATIENCE, async {
            while !missing().iter().all(may_be_gone) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if handled.await.is_err() {
            let lost: Vec<_> = missing().into_iter().filter(|acked| !may_be_gone(acked)).collect();
            let (first, last) = (lost.iter().min(), lost.iter().max());
            panic!(
                "{} timers are lost, acknowledged from {first:?} to {last:?}; {unreplicated:?}",
                lost.len()
            );
        }
        self.running.stop().await.unwrap();
        let gone = missing().len();
        let (starts, outrun) = (self.starts.lock().unwrap(), self.arms.outrun.lock().unwrap());
        Outcome::of(&starts, gone, &outrun, &self.harm.into_inner().unwrap())
    }
}

impl Arms {
    async fn make(self: Arc<Self>, schedule: Schedule, topic: Topic<u32>, count: u32, every: Duration) {
        let (mut calls, mut tick) = (JoinSet::new(), tokio::time::interval(every));
        for number in 0..count {
            tick.tick().await;
            if self.enough.load(Ordering::Relaxed) {
                break;
            }
            let (all, schedule, topic) = (self.clone(), schedule.clone(), topic.clone());
            calls.spawn(async move {
                let began = Instant::now();
                let armed = schedule.arm(&topic, [number.to_string()], AHEAD, &number).await;
                let armed = armed.expect("it is armed");
                assert!(armed.is_armed(), "{armed:?}");
                if began.elapsed() > AHEAD {
                    all.outrun.lock().unwrap().insert(number);
                }
                all.acked.lock().unwrap().insert(number, SystemTime::now());
            });
            self.begun.store(number + 1, Ordering::Relaxed);
            while let Some(call) = calls.try_join_next() {
                call.unwrap();
            }
            if calls.len() >= MAX_CALLS {
                calls.join_next().await.expect("a call").unwrap();
            }
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap();
        }
    }

    /// Waits until all that has begun by now is acknowledged, and answers how many that are.
    async fn until_answered(&self) -> u32 {
        let begun = self.begun.load(Ordering::Relaxed);
        eventually(PATIENCE, "arms to be answered", async || {
            let acked = self.acked.lock().unwrap();
            (0..begun).all(|number| acked.contains_key(&number))
        })
        .await;
        begun
    }
}
