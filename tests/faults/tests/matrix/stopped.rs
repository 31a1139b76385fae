//! A2: a listener process that stands still for longer than its lease, and goes on.

use std::path::Path;
use std::time::Duration;

use keylapse::timers::TimerPhase;
use keylapse::{ArmResult, Key, Schedule};
use keylapse_faults::job::{Job, Kind, Work};
use keylapse_support::{Server, eventually};
use tempfile::TempDir;

use crate::process::{Process, key, started_by, until_ended_by, until_started_by};
use crate::scene::{PATIENCE, server_and_schedule};

/// A server, and one listener process, which is to be stopped.
struct Scene {
    server: Server,
    schedule: Schedule,
    folder: TempDir,
    lease: Duration,
    sleeper: Process,
}

impl Scene {
    /// The lease is to be kept by a busy machine until the listener is stopped.
    async fn open(lease: Duration) -> Self {
        let (server, schedule) = server_and_schedule().await;
        let folder = tempfile::tempdir().expect("a folder");
        let sleeper = Process::listen_for(&server.url(), folder.path(), lease);
        Self { server, schedule, folder, lease, sleeper }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn another(&self) -> Process {
        Process::listen_for(&self.server.url(), self.folder(), self.lease)
    }

    async fn arm(&self, n: u64, delay: Duration, work: Work) {
        let (topic, job) = (Kind::Quiet.topic(self.lease), Job { n, work, millis: 0 });
        let armed = self.schedule.arm(&topic, Key(&key(n)), delay, &job).await;
        assert!(matches!(armed, Ok(ArmResult::Armed(_))), "{armed:?}");
    }

    /// What a timer does now; none if there is none any more.
    async fn phase(&self, n: u64) -> Option<TimerPhase> {
        let topic = Kind::Quiet.topic(self.lease);
        self.schedule.look_up(&topic, Key(&key(n))).await.expect("a look").map(|timer| timer.phase)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_listener_that_wakes_up_after_its_lease_is_told_and_ignored() {
    let scene = Scene::open(Duration::from_secs(3)).await;
    let sleeper = scene.sleeper.pid();
    scene.arm(1, Duration::ZERO, Work::UntilLost).await;
    assert_eq!(until_started_by(scene.folder(), 1, 1).await, [sleeper]);
    scene.sleeper.signal("STOP");
    let other = scene.another();
    assert_eq!(until_started_by(scene.folder(), 1, 2).await, [sleeper, other.pid()]);
    until_ended_by(scene.folder(), 1, Some(other.pid())).await;
    scene.sleeper.signal("CONT");
    until_ended_by(scene.folder(), 1, Some(sleeper)).await;
    eventually(PATIENCE, "the other one has ended it", async || scene.phase(1).await.is_none()).await;
    let topic = Kind::Quiet.topic(scene.lease);
    assert_eq!(scene.schedule.dead_letter_counts(&topic).await.expect("counts").0, 0);
    assert_eq!(started_by(scene.folder(), 1).len(), 2);
}

/// It had claimed the timer ahead of its deadline, and was about to start it.
#[tokio::test(flavor = "multi_thread")]
async fn p4_a_listener_that_wakes_up_after_its_lease_does_not_start_what_it_held() {
    let scene = Scene::open(Duration::from_secs(4)).await;
    let sleeper = scene.sleeper.pid();
    scene.arm(0, Duration::ZERO, Work::Succeed).await;
    assert_eq!(until_started_by(scene.folder(), 0, 1).await, [sleeper]);

    // Within the lookahead, so that the look for another takes it along; and far enough to be stopped before.
    scene.arm(1, Duration::from_millis(900), Work::Succeed).await;
    scene.arm(2, Duration::ZERO, Work::Succeed).await;
    let claimed = async || matches!(scene.phase(1).await, Some(TimerPhase::Running(_)));
    eventually(PATIENCE, "the timer is held", claimed).await;
    scene.sleeper.signal("STOP");
    let other = scene.another();
    assert_eq!(until_started_by(scene.folder(), 1, 1).await, [other.pid()]);
    until_ended_by(scene.folder(), 1, Some(other.pid())).await;
    drop(other);

    scene.sleeper.signal("CONT");
    scene.arm(3, Duration::ZERO, Work::Succeed).await;
    assert_eq!(until_started_by(scene.folder(), 3, 1).await, [sleeper]);
    assert_eq!(started_by(scene.folder(), 1).len(), 1, "it has started what another had run");
}
