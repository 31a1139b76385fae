//! C6, C11: keys of ours that somebody removes, or a server evicts. UNLINK stands for both.
//!
//! What can be rebuilt is: the index, from the records. What cannot is counted.

use std::time::{Duration, Instant};

use keylapse::stats::TopicStats;
use keylapse::{Done, Failure, Lapse, Schedule, Topic};
use keylapse_support::{Server, eventually};
use redis::Value;

use crate::scene::{
    PATIENCE, Running, Tally, arm, arm_all, counting, listener, names, server_and_schedule, topic,
};

const LEASE: Duration = Duration::from_secs(1);
const TIMERS: u32 = 50;

struct Scene {
    server: Server,
    schedule: Schedule,
    topic: Topic<u32>,
    tally: Tally,
    running: Running,
}

impl Scene {
    /// With timers that come due in a moment.
    async fn open() -> Self {
        let (server, schedule) = server_and_schedule().await;
        let (topic, tally, running) = counting(listener(&server), LEASE).await;
        arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(1000 + u64::from(n))).await;
        Self { server, schedule, topic, tally, running }
    }

    async fn unlink(&self, name: &str) {
        self.server.cmd(&["UNLINK", name]).await;
        assert!(self.tally.runs().is_empty(), "it is gone before anything is due");
    }

    /// The topic is well: what is armed now runs. So many have run by then, each once.
    async fn proves_well(self, keys: usize) -> TopicStats {
        arm(&self.schedule, &self.topic, "new", Duration::ZERO).await;
        eventually(PATIENCE, "a new timer to run", async || self.tally.runs_of("new") == 1).await;
        self.running.done(&self.tally, keys).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_c11_an_index_that_is_gone_is_rebuilt_from_the_records_and_everything_runs() {
    let scene = Scene::open().await;
    scene.unlink(names().key("due")).await;
    let gone = Instant::now();
    scene.tally.until(TIMERS as usize).await;
    println!("C11: {TIMERS} timers without an index had run {:?} after it was removed", gone.elapsed());
    let stats = scene.proves_well(TIMERS as usize + 1).await;
    assert_eq!(stats.repaired, u64::from(TIMERS), "counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_c11_records_that_are_gone_are_counted_as_orphans_and_everything_else_runs() {
    let scene = Scene::open().await;
    scene.unlink(names().key("timers")).await;
    let counted = async || scene.running.stats().orphans == u64::from(TIMERS);
    eventually(PATIENCE, "each loss to be counted", counted).await;
    assert_eq!(scene.server.cmd(&["ZCARD", names().key("due")]).await, Value::Int(0));
    scene.proves_well(1).await;
}

/// Without what claims and failures add, an end is not known to be its holder's: the attempt runs again.
#[tokio::test(flavor = "multi_thread")]
async fn c11_states_that_are_gone_under_a_running_attempt_cost_a_repetition() {
    let (server, schedule) = server_and_schedule().await;
    let (topic, tally) = (topic(LEASE), Tally::default());
    let (counting, gate) = (tally.clone(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let open = gate.clone();
    let running = Running::start(listener(&server).on(topic.clone(), move |lapse: Lapse<u32>| {
        counting.note(&lapse);
        let gate = gate.clone();
        async move {
            let _ = gate.acquire().await;
            Ok::<_, Failure>(Done)
        }
    }));
    arm(&schedule, &topic, "held", Duration::ZERO).await;
    tally.until(1).await;
    server.cmd(&["UNLINK", names().key("timer_states")]).await;
    open.add_permits(100);
    let done = async || schedule.look_up(&topic, ["held"]).await.expect("a look").is_none();
    eventually(PATIENCE, "it to be done", done).await;
    running.stop().await;
    assert_eq!(tally.runs_of("held"), 2);
    assert!(tally.runs()["held"].iter().all(|run| run.attempt == 1), "no attempt was used up");
}

/// Wire version, quarantine, kept armings, tombstones, dead letters, claim slots: nothing that waits needs them.
#[tokio::test(flavor = "multi_thread")]
async fn c11_all_other_names_can_go_and_what_waits_runs() {
    let scene = Scene::open().await;
    let names = names();
    for name in
        names.all().iter().filter(|name| ![names.key("due"), names.key("timers")].contains(&name.as_str()))
    {
        scene.unlink(name).await;
    }
    scene.tally.until(TIMERS as usize).await;
    scene.proves_well(TIMERS as usize + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c11_a_flushed_database_is_a_loss_and_what_is_armed_afterwards_runs() {
    for flush in ["FLUSHDB", "FLUSHALL"] {
        let scene = Scene::open().await;
        scene.server.cmd(&[flush]).await;
        scene.proves_well(1).await;
    }
}
