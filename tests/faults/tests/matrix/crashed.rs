//! A1, A2: listeners that are killed at one point or another of an attempt, or stopped.
//!
//! An attempt is repeated only where its handler had begun and its end was not executed.

use keylapse::Schedule;
use keylapse_faults::clock::micros;
use keylapse_faults::fault::Plan;
use keylapse_faults::harness::{Cast, Harness};
use keylapse_faults::job::{Kind, Work};
use keylapse_faults::ledger::{Entry, Ledger, Told, read_all};
use keylapse_faults::run::durable_server;
use keylapse_faults::verdict::judge;
use keylapse_support::{Direction, Proxy, Then};
use keylapse_wire::scripts;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::play::{LEASE, assert_valid, cast, play};
use crate::process::{self, until_ended, until_started};
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
        let folder = tempfile::tempdir().expect("a folder");
        let cast = Cast { listeners: 1, producers: 0, ..cast() };
        let harness = Harness::open(&cast, durable_server(), folder.path()).await;
        load_scripts(&*harness.server().await).await;
        let schedule = Schedule::connect(&harness.server().await.url()).await.expect("a schedule");
        let ledger = Ledger::open(folder.path()).expect("a ledger");
        let scene = Self { harness, schedule, ledger, folder };
        scene.arm(0, 0).await;
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

    async fn arm(&self, n: u64, millis: u64) {
        let work = Work::Succeed;
        self.ledger.write(Entry::ArmAsked { n, key: process::key(n), work, delay_ms: 0 });
        let armed = process::arm(&self.schedule, n, work, millis).await;
        assert!(armed.is_armed());
        self.ledger.write(Entry::ArmTold { n, told: Told::Armed, deadline: None, reached: None });
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
    scene.arm(1, 0).await;
    scene.line().until_lost(1).await;
    assert_eq!(scene.after_a_kill("A1 between claim and handler").await, [2, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_in_the_handler_it_runs_again() {
    let scene = Scene::open().await;
    scene.arm(1, 1000).await;
    until_started(scene.folder.path(), 1).await;
    assert_eq!(scene.after_a_kill("A1 in the handler").await, [2, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_between_handler_and_ack_it_runs_again() {
    let scene = Scene::open().await;
    scene.arm(1, 500).await;
    until_started(scene.folder.path(), 1).await;
    scene.line().stall(Direction::Requests);
    until_ended(scene.folder.path(), 1).await;
    assert_eq!(scene.after_a_kill("A1 between handler and ack").await, [2, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_killed_between_ack_and_its_reply_it_does_not_run_again() {
    let scene = Scene::open().await;
    scene.lose_reply_of(&scripts::ACK);
    scene.arm(1, 0).await;
    scene.line().until_lost(1).await;
    assert_eq!(scene.after_a_kill("A1 between ack and its reply").await, [2, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_listeners_that_are_killed_again_and_again_lose_nothing() {
    play("A1 12 kills", Plan::killed_listeners(1, 12, 150..450)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_listeners_that_stand_still_for_two_leases_lose_nothing() {
    play("A2 4 pauses", Plan::paused_listeners(1, LEASE, 4)).await;
}
