//! A1, A2: listeners that are killed at one point or another of an attempt, or stopped.
//!
//! An attempt is repeated only where its handler had begun and its end was not executed.

use std::time::{Duration, Instant};

use keylapse::Schedule;
use keylapse::dead_letters::DeadReason;
use keylapse_faults::clock::micros;
use keylapse_faults::fault::Plan;
use keylapse_faults::harness::{Actor, Cast, Harness};
use keylapse_faults::job::{Kind, Work};
use keylapse_faults::ledger::{End, Entry, Ledger, Line, Told, read_all};
use keylapse_faults::run::durable_server;
use keylapse_faults::verdict::judge;
use keylapse_support::{Direction, Proxy, Then, took_at_most};
use keylapse_wire::scripts;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::play::{LEASE, assert_valid, cast, play};
use crate::process::{self, until_ended, until_started, until_started_by};
use crate::scene::{PATIENCE, load_scripts, runs_of};

/// One listener process behind a line, which is followed by another when it is killed.
struct Scene {
    harness: Harness,
    schedule: Schedule,
    ledger: Ledger,
    folder: TempDir,
}

impl Scene {
    /// With a listener that has proved to be well.
    async fn open() -> Self {
        Self::with_listeners(1).await
    }

    async fn with_listeners(listeners: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cast = Cast { listeners, producers: 0, ..cast() };
        let harness = Harness::open(&cast, durable_server(), folder.path()).await;
        load_scripts(&*harness.server().await).await;
        let schedule = Schedule::connect(&harness.server().await.url()).await.expect("a schedule");
        let ledger = Ledger::open(folder.path()).expect("a ledger");
        let scene = Self { harness, schedule, ledger, folder };
        scene.arm(0, Work::Succeed, 0).await;
        assert_eq!(scene.harness.drain(PATIENCE).await, 0);
        scene
    }

    fn line(&self) -> &Proxy {
        self.harness.troupe.listener(0).line()
    }

    /// Loses the reply to the next run of a script, without a sign.
    fn lose_reply_of(&self, script: &scripts::Script) {
        self.line().lose_reply(runs_of(script, Kind::Quiet.name()), Then::Stall);
    }

    async fn arm(&self, n: u64, work: Work, millis: u64) {
        self.ledger.write(Entry::ArmAsked { n, key: process::key(n), work, delay_ms: 0 });
        let armed = process::arm(&self.schedule, n, work, millis).await;
        assert!(armed.is_armed());
        self.ledger.write(Entry::ArmTold { n, told: Told::Armed, deadline: None, reached: None });
    }

    /// The part that this process plays.
    fn actor(&self, pid: u32) -> &Actor {
        let lines = read_all(self.folder.path()).expect("ledgers");
        let name = lines.into_iter().rev().find_map(|line| match line.entry {
            Entry::Born { child, actor } if child == pid => Some(actor),
            _ => None,
        });
        let is_it = |which: &u8| Some(self.harness.troupe.listener(*which).name()) == name.as_deref();
        self.harness.troupe.listener((0..2).find(is_it).expect("one of ours"))
    }

    /// Kills the listener; what it has sent and the server has not read is gone with it.
    async fn kill(&self) {
        self.harness.troupe.listener(0).signal(Signal::KILL).await;
        self.line().cut();
        self.line().heal().await;
    }

    /// Kills the listener, and plays to the end: handled, repeated, and repeated for a reason.
    async fn after_a_kill(self, row: &str) -> [usize; 3] {
        self.kill().await;
        self.at_the_end(row).await
    }

    async fn at_the_end(self, row: &str) -> [usize; 3] {
        let left = self.harness.drain(PATIENCE).await;
        self.harness.troupe.close().await;
        let lines = read_all(self.folder.path()).expect("ledgers");
        let report = judge(&lines, &[], micros(LEASE), left);
        println!("{row}: {report}");
        assert_valid(&report);
        [report.handled, report.duplicated, report.explained]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_between_claim_and_handler_it_runs_once() {
    let scene = Scene::open().await;
    scene.lose_reply_of(&scripts::CLAIM);
    scene.arm(1, Work::Succeed, 0).await;
    scene.line().until_lost(1).await;
    assert_eq!(scene.after_a_kill("A1 between claim and handler").await, [2, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_in_the_handler_it_runs_again() {
    let scene = Scene::open().await;
    scene.arm(1, Work::Succeed, 1000).await;
    until_started(scene.folder.path(), 1).await;
    assert_eq!(scene.after_a_kill("A1 in the handler").await, [2, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_between_handler_and_ack_it_runs_again() {
    let scene = Scene::open().await;
    scene.arm(1, Work::Succeed, 500).await;
    until_started(scene.folder.path(), 1).await;
    scene.line().stall(Direction::Requests);
    until_ended(scene.folder.path(), 1).await;
    assert_eq!(scene.after_a_kill("A1 between handler and ack").await, [2, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_between_ack_and_its_reply_it_does_not_run_again() {
    let scene = Scene::open().await;
    scene.lose_reply_of(&scripts::ACK);
    scene.arm(1, Work::Succeed, 0).await;
    scene.line().until_lost(1).await;
    assert_eq!(scene.after_a_kill("A1 between ack and its reply").await, [2, 0, 0]);
}

/// How many kills: a few as a rule, 200 and more with `KEYLAPSE_KILLS`.
fn kills() -> usize {
    std::env::var("KEYLAPSE_KILLS").map_or(8, |kills| kills.parse().expect("KEYLAPSE_KILLS is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn timed_p1_p5_what_a_killed_listener_held_runs_again_within_the_lease_and_a_second() {
    let (scene, mut took) = (Scene::with_listeners(2).await, Vec::new());
    for n in 1..=kills() as u64 {
        scene.arm(n, Work::UntilLost, 0).await;
        let holder = until_started_by(scene.folder.path(), n, 1).await[0];
        scene.actor(holder).signal(Signal::KILL).await;
        let killed = Instant::now();
        until_started_by(scene.folder.path(), n, 2).await;
        took.push(killed.elapsed());
        // A process to be scheduled.
        took_at_most(LEASE + Duration::from_millis(1500), killed.elapsed(), "to run again");
        assert_eq!(scene.harness.drain(PATIENCE).await, 0);
    }
    took.sort_unstable();
    println!("{} kills: run again p50 {:?}, max {:?}", kills(), took[kills() / 2], took[kills() - 1]);
    assert_eq!(scene.at_the_end("A1 kills in the handler").await, [kills() + 1, kills(), kills()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn p6_a_poison_pill_is_buried_after_five_lost_leases_and_its_bystanders_run() {
    const PILL: u64 = 101;
    let (scene, topic) = (Scene::open().await, Kind::Quiet.topic(LEASE));
    scene.schedule.pause(&topic, "until all are armed").await.expect("paused");
    for n in 1..PILL {
        scene.arm(n, Work::Succeed, 50).await;
    }
    scene.arm(PILL, Work::Abort, 0).await;
    scene.schedule.resume(&topic).await.expect("resumed");
    assert_eq!(scene.harness.drain(2 * PATIENCE).await, 0);
    let letters = scene.schedule.dead_letters(&topic).page(10).await.expect("letters");
    let [letter] = &letters[..] else { panic!("a bystander was buried: {letters:?}") };
    assert_eq!(letter.key, process::key(PILL).as_bytes());
    assert_eq!((letter.reason, letter.lost_leases), (DeadReason::LostLeases, 5));
    let lines = read_all(scene.folder.path()).expect("ledgers");
    let is_death = |line: &&Line| matches!(line.entry, Entry::Died { .. });
    assert_eq!(lines.iter().filter(is_death).count(), 5, "it took down five listeners, and no more");
    for n in 1..PILL {
        let ran =
            |line: &Line| matches!(line.entry, Entry::Ended { n: ended, end: End::Done, .. } if ended == n);
        assert!(lines.iter().any(ran), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_listeners_that_are_killed_again_and_again_lose_nothing() {
    play("A1 12 kills", Plan::killed_listeners(1, 12, 150..450)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_listeners_that_stand_still_for_two_leases_lose_nothing() {
    let report = play("A2 4 pauses", Plan::paused_listeners(1, LEASE, 4)).await;
    assert!(report.duplicated > 0, "nobody was stopped for long enough");
}
