//! A steady stream of timers, and what has become of each.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use keylapse::testing::Cluster;
use keylapse::{Done, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::eventually;
use tokio::task::JoinHandle;

use crate::reach::as_app;
use crate::support::Running;

/// Timers are armed this far ahead.
const AHEAD: Duration = Duration::from_millis(500);

/// When each timer's handler was started, and how late that was, in ms; negative: early.
type Starts = Arc<Mutex<HashMap<u32, Vec<(SystemTime, i64)>>>>;

/// A topic, somebody who arms its timers one after the other, and a listener.
pub(crate) struct Load {
    pub(crate) running: Running,
    starts: Starts,
    arming: JoinHandle<HashMap<u32, SystemTime>>,
    /// When arms may have been acknowledged by a server that has thrown them away since.
    unreplicated: Vec<RangeInclusive<SystemTime>>,
}

pub(crate) fn topic(partitions: u32) -> Topic<u32> {
    Topic::new("app:order:{id}").unwrap().partitions(partitions).lease(Duration::from_secs(5))
}

impl Load {
    /// So many timers, one every so often.
    pub(crate) async fn start(cluster: &Cluster, partitions: u32, count: u32, every: Duration) -> Self {
        Self::at(&cluster.url(), partitions, count, every).await
    }

    /// The same at a URL, as the user with the least rights.
    pub(crate) async fn at(url: &str, partitions: u32, count: u32, every: Duration) -> Self {
        let url = &as_app(url);
        let (topic, starts) = (topic(partitions), Starts::default());
        let seen = starts.clone();
        let handler = move |lapse: Lapse<u32>| {
            let now = SystemTime::now();
            let late = match now.duration_since(lapse.deadline()) {
                Ok(late) => late.as_millis() as i64,
                Err(early) => -1 - early.duration().as_millis() as i64,
            };
            seen.lock().unwrap().entry(*lapse.payload()).or_default().push((now, late));
            std::future::ready(Ok::<_, Failure>(Done))
        };
        let running = Running::start(Listener::builder(url).on(topic.clone(), handler));
        running.until_anchored().await;
        let client = keylapse::Client::new(url).unwrap().patience(Duration::from_secs(30));
        let schedule = Schedule::connect(client).await.unwrap();
        let arming = tokio::spawn(async move {
            let (mut armed, mut calls) = (HashMap::new(), tokio::task::JoinSet::new());
            let mut tick = tokio::time::interval(every);
            for number in 0..count {
                tick.tick().await;
                let (schedule, topic) = (schedule.clone(), topic.clone());
                calls.spawn(async move {
                    let id = number.to_string();
                    let armed = schedule.arm(&topic, [id], AHEAD, &number).await.expect("it is armed");
                    assert!(armed.is_armed(), "{armed:?}");
                    (number, SystemTime::now())
                });
            }
            while let Some(call) = calls.join_next().await {
                let (number, deadline) = call.unwrap();
                armed.insert(number, deadline);
            }
            armed
        });
        Self { running, starts, arming, unreplicated: Vec::new() }
    }

    /// Waits until so many timers have run.
    pub(crate) async fn until_handled(&self, count: usize) {
        let starts = &self.starts;
        eventually(Duration::from_secs(30), "timers to run", async || starts.lock().unwrap().len() >= count)
            .await;
    }

    /// Sees to this while arms may be acknowledged that are thrown away: by a server that others have replaced, and that
    /// does not know it yet. Asynchronous replication has no remedy for these.
    pub(crate) async fn while_replaced<T>(&mut self, work: impl Future<Output = T>) -> T {
        let begun = SystemTime::now();
        let done = work.await;
        self.unreplicated.push(begun..=SystemTime::now());
        done
    }

    /// Waits until all that was armed has been handled.
    pub(crate) async fn end(self) -> Outcome {
        let armed = self.arming.await.unwrap();
        let (starts, unreplicated) = (self.starts, self.unreplicated);
        let may_be_gone = |acked: &SystemTime| unreplicated.iter().any(|window| window.contains(acked));
        let missing = || {
            let starts = starts.lock().unwrap();
            armed
                .iter()
                .filter(|(number, _)| !starts.contains_key(number))
                .map(|(_, acked)| *acked)
                .collect::<Vec<_>>()
        };
        let all_handled = async || missing().iter().all(may_be_gone);
        let handled = tokio::time::timeout(Duration::from_secs(30), async {
            while !all_handled().await {
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
        let (all, unreplicated) = (armed.len(), missing().len());
        let starts = starts.lock().unwrap();
        let mut late: Vec<_> = starts.values().flat_map(|all| all.iter().map(|(_, late)| *late)).collect();
        late.sort_unstable();
        let doubled = starts.values().filter(|all| all.len() > 1).count();
        Outcome { all, unreplicated, doubled, late }
    }
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) all: usize,
    /// Arms that were acknowledged by a server that was replaced.
    pub(crate) unreplicated: usize,
    /// How many ran more than once.
    pub(crate) doubled: usize,
    /// In ms, sorted.
    pub(crate) late: Vec<i64>,
}

impl Outcome {
    pub(crate) fn p99(&self) -> i64 {
        self.late[self.late.len() * 99 / 100]
    }

    pub(crate) fn assert_none_early(&self) {
        assert!(self.late[0] >= 0, "{} ms early", -self.late[0]);
        let (first, last) = (self.late[0], self.late[self.late.len() - 1]);
        println!(
            "{} timers, {} doubled, late {first} to {last} ms, p99 {} ms",
            self.all,
            self.doubled,
            self.p99()
        );
    }
}
