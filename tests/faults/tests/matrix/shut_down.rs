//! A5: shut-down in each state a listener can be in. The exit code is 0, no attempt is used up,
//! and nothing is lost.

use std::time::Duration;

use keylapse::{Done, Failure, Lapse, Schedule};
use keylapse_faults::job::{Kind, Work};
use keylapse_faults::run::durable_server;
use keylapse_support::{Direction, Proxy, Server, eventually};
use rand::RngExt;
use tempfile::TempDir;

use crate::play::LEASE;
use crate::process::{Process, arm, starts, until_started};
use crate::scene::{self, PATIENCE, Running, Tally, listener, server_and_schedule, topic};

/// Settling, forgetting lanes and a busy machine, with a server that does not answer.
const AWAY: Duration = Duration::from_secs(10);

struct Scene {
    server: Server,
    line: Proxy,
    schedule: Schedule,
    folder: TempDir,
}

impl Scene {
    async fn open() -> Self {
        let server = durable_server().start().await;
        let line = Proxy::before(&server).await;
        let schedule = Schedule::connect(&server.url()).await.expect("a schedule");
        Self { server, line, schedule, folder: tempfile::tempdir().expect("a folder") }
    }

    fn listen(&self) -> Process {
        Process::listen(&self.line.url(), self.folder.path())
    }

    /// A listener that has run timer 0.
    async fn well(&self) -> Process {
        let process = self.listen();
        let _ = arm(&self.schedule, 0, Work::Succeed, 0).await;
        self.gone(0).await;
        process
    }

    async fn gone(&self, n: u64) {
        let (topic, key) = (Kind::Quiet.topic(LEASE), crate::process::key(n));
        let is_gone =
            async || self.schedule.look_up(&topic, keylapse::Key(&key)).await.expect("a look").is_none();
        eventually(PATIENCE, "the timer to be done", is_gone).await;
    }

    fn starts_of(&self, n: u64) -> Vec<u32> {
        let starts = starts(self.folder.path()).into_iter();
        starts.filter(|(started, _)| *started == n).map(|(_, attempt)| attempt).collect()
    }
}

/// Is told to end, and does so.
async fn ends_well(process: Process, within: Duration) {
    process.signal("TERM");
    let (status, took) = process.end().await;
    println!("A5: {status} after {took:?}");
    assert!(status.success() && took < within, "{status} after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_an_idle_listener_ends_at_once() {
    let scene = Scene::open().await;
    let process = scene.well().await;
    ends_well(process, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_a_running_handler_ends_first_though_sigterm_comes_twice() {
    let scene = Scene::open().await;
    let process = scene.well().await;
    let _ = arm(&scene.schedule, 1, Work::Succeed, 1000).await;
    until_started(scene.folder.path(), 1).await;
    process.signal("TERM");
    ends_well(process, Duration::from_secs(5)).await;
    scene.gone(1).await;
    assert_eq!(scene.starts_of(1), [1]);
}

/// One that waits for its retry, and one that comes due with nobody there, are run by whoever comes next.
#[tokio::test(flavor = "multi_thread")]
async fn a5_what_waits_is_run_by_the_next_listener() {
    let scene = Scene::open().await;
    let process = scene.well().await;
    let _ = arm(&scene.schedule, 1, Work::FailOnce, 0).await;
    crate::process::until_ended(scene.folder.path(), 1).await;
    ends_well(process, Duration::from_secs(3)).await;
    let _ = arm(&scene.schedule, 2, Work::Succeed, 0).await;
    let next = scene.listen();
    scene.gone(1).await;
    scene.gone(2).await;
    ends_well(next, Duration::from_secs(3)).await;
    assert_eq!((scene.starts_of(1), scene.starts_of(2)), (vec![1, 2], vec![1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_a_listener_that_is_reconnecting_ends_in_time() {
    let scene = Scene::open().await;
    let process = scene.well().await;
    scene.line.refuse().await;
    scene.line.cut();
    ends_well(process, AWAY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_a_listener_that_has_not_reached_its_server_yet_ends_in_time() {
    let scene = Scene::open().await;
    scene.line.stall(Direction::Both);
    let process = scene.listen();
    eventually(PATIENCE, "it to say hello", async || scene.line.batches() > 0).await;
    ends_well(process, AWAY).await;
}

/// With an attempt that has ended and whose ack the server does not get: it runs again, as the same one.
#[tokio::test(flavor = "multi_thread")]
async fn a5_an_ack_that_finds_no_server_costs_a_repetition_and_no_attempt() {
    let scene = Scene::open().await;
    let process = scene.well().await;
    let _ = arm(&scene.schedule, 1, Work::Succeed, 300).await;
    until_started(scene.folder.path(), 1).await;
    scene.line.refuse().await;
    scene.line.cut();
    ends_well(process, AWAY).await;
    let next = Process::listen(&scene.server.url(), scene.folder.path());
    scene.gone(1).await;
    ends_well(next, Duration::from_secs(3)).await;
    assert_eq!(scene.starts_of(1), [1, 1]);
}

/// Ten listeners at a time that live for some milliseconds each, while timers fall due.
#[tokio::test(flavor = "multi_thread")]
async fn a5_starting_and_stopping_all_the_time_loses_and_doubles_nothing() {
    const LANES: u32 = 10;
    const CYCLES: u32 = if cfg!(debug_assertions) { 15 } else { 50 };
    const TIMERS: u32 = 500;
    let (server, schedule) = server_and_schedule().await;
    let (topic, tally) = (topic(LEASE * 5), Tally::default());
    scene::arm_all(&schedule, &topic, 0..TIMERS, |n| Duration::from_millis(u64::from(n) * 5)).await;
    let start = || {
        let (tally, topic) = (tally.clone(), topic.clone());
        Running::start(listener(&server).on(topic, move |lapse: Lapse<u32>| {
            tally.note(&lapse);
            async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok::<_, Failure>(Done)
            }
        }))
    };
    let lane = async || {
        let mut released = 0;
        for _ in 0..CYCLES {
            let running = start();
            tokio::time::sleep(Duration::from_millis(rand::rng().random_range(0..60))).await; // its life
            released += running.stop().await.released;
        }
        released
    };
    let released: u64 = futures::future::join_all((0..LANES).map(|_| lane())).await.into_iter().sum();
    let last = start();
    last.done(&tally, TIMERS as usize).await;
    println!("A5: {} starts and stops, {released} timers handed back", LANES * CYCLES);
}
