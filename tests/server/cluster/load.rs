//! A steady stream of timers, and what has become of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use keylapse::testing::Cluster;
use keylapse::{Done, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::eventually;
use tokio::task::JoinHandle;

use crate::support::Running;

/// Timers are armed this far ahead.
const AHEAD: Duration = Duration::from_millis(500);

/// When each timer's handler was started, and how late that was, in ms; negative: early.
type Starts = Arc<Mutex<HashMap<u32, Vec<(SystemTime, i64)>>>>;

/// A topic, somebody who arms its timers one after the other, and a listener.
pub(super) struct Load {
    pub(super) running: Running,
    starts: Starts,
    arming: JoinHandle<HashMap<u32, SystemTime>>,
}

pub(super) fn topic(partitions: u32) -> Topic<u32> {
    Topic::new("app:order:{id}").unwrap().partitions(partitions).lease(Duration::from_secs(5))
}

impl Load {
    /// So many timers, one every so often.
    pub(super) async fn start(cluster: &Cluster, partitions: u32, count: u32, every: Duration) -> Self {
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
        let running = Running::start(Listener::builder(cluster.url()).on(topic.clone(), handler));
        running.until_anchored().await;
        let client = keylapse::Client::new(&cluster.url()).unwrap().patience(Duration::from_secs(30));
        let schedule = Schedule::connect(client).await.unwrap();
        let arming = tokio::spawn(async move {
            let (mut armed, mut calls) = (HashMap::new(), tokio::task::JoinSet::new());
            let mut tick = tokio::time::interval(every);
            for number in 0..count {
                tick.tick().await;
                let (schedule, topic) = (schedule.clone(), topic.clone());
                calls.spawn(async move {
                    let id = number.to_string();
                    let receipt = schedule.arm(&topic, [id], AHEAD, &number).await.expect("it is armed");
                    (number, receipt.receipt().expect("it is there").deadline)
                });
            }
            while let Some(call) = calls.join_next().await {
                let (number, deadline) = call.unwrap();
                armed.insert(number, deadline);
            }
            armed
        });
        Self { running, starts, arming }
    }

    /// Waits until so many timers have run.
    pub(super) async fn until_handled(&self, count: usize) {
        let starts = &self.starts;
        eventually(Duration::from_secs(30), "timers to run", async || starts.lock().unwrap().len() >= count)
            .await;
    }

    /// Waits until all that was armed has been handled.
    pub(super) async fn end(self) -> Outcome {
        let armed = self.arming.await.unwrap();
        let starts = self.starts;
        let all = armed.len();
        let handled = || starts.lock().unwrap().keys().filter(|number| armed.contains_key(number)).count();
        eventually(Duration::from_secs(30), "all timers to be handled", async || handled() == all).await;
        self.running.stop().await.unwrap();
        let starts = starts.lock().unwrap();
        let mut late: Vec<_> = starts.values().flat_map(|all| all.iter().map(|(_, late)| *late)).collect();
        late.sort_unstable();
        let doubled = starts.values().filter(|all| all.len() > 1).count();
        Outcome { all, doubled, late }
    }
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) all: usize,
    /// How many ran more than once.
    pub(super) doubled: usize,
    /// In ms, sorted.
    pub(super) late: Vec<i64>,
}

impl Outcome {
    pub(super) fn p99(&self) -> i64 {
        self.late[self.late.len() * 99 / 100]
    }

    pub(super) fn assert_none_early(&self) {
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
