//! One listener process, watched closely: what it is told, how it ends, what it has run.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use keylapse_faults::job::{Job, Kind, Work};
use keylapse_faults::ledger::{Entry, Line, read_all};
use keylapse_support::{Program, eventually};

use crate::play::{LEASE, program};
use crate::scene::PATIENCE;

/// Killed when dropped.
pub(crate) struct Process(Program);

impl Process {
    pub(crate) fn listen(url: &str, folder: &Path) -> Self {
        Self::start(url, folder, LEASE, &[])
    }

    /// With variables of its own.
    pub(crate) fn listen_with(url: &str, folder: &Path, environment: &[(&str, &str)]) -> Self {
        Self::start(url, folder, LEASE, environment)
    }

    /// With another lease.
    pub(crate) fn listen_for(url: &str, folder: &Path, lease: Duration) -> Self {
        Self::start(url, folder, lease, &[])
    }

    fn start(url: &str, folder: &Path, lease: Duration, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.args(["listen", "--url", url, "--lease-ms", &lease.as_millis().to_string(), "--folder"]);
        command.arg(folder).envs(environment.iter().copied());
        Self(Program::silent(&mut command).expect("a child process"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.0.signal(name);
    }

    /// Waits for its end: how, and after how long.
    pub(crate) async fn end(mut self) -> (ExitStatus, Duration) {
        let since = Instant::now();
        (self.0.ended().await, since.elapsed())
    }
}

/// What the ledgers in this folder say of starts: number and attempt, by time.
pub(crate) fn starts(folder: &Path) -> Vec<(u64, u32)> {
    let lines = read_all(folder).expect("ledgers that can be read");
    let started = lines.into_iter().filter_map(|line| match line.entry {
        Entry::Started { n, attempt, .. } => Some((n, attempt)),
        _ => None,
    });
    started.collect()
}

/// The processes that have begun with this timer, by time.
pub(crate) fn started_by(folder: &Path, n: u64) -> Vec<u32> {
    let lines = read_all(folder).expect("ledgers that can be read").into_iter();
    let begun = lines.filter(|line| matches!(line.entry, Entry::Started { n: begun, .. } if begun == n));
    begun.map(|line| line.pid).collect()
}

/// Waits until so many processes have begun with this timer: who they are.
pub(crate) async fn until_started_by(folder: &Path, n: u64, count: usize) -> Vec<u32> {
    let have_begun = async || started_by(folder, n).len() >= count;
    eventually(PATIENCE, "the handler to begin in another process", have_begun).await;
    started_by(folder, n)
}

/// Waits until this timer's handler has begun.
pub(crate) async fn until_started(folder: &Path, n: u64) {
    until_started_by(folder, n, 1).await;
}

/// Waits until an attempt of this timer has ended in its process, whatever the server knows of it.
pub(crate) async fn until_ended(folder: &Path, n: u64) {
    until_ended_by(folder, n, None).await;
}

/// The same of an attempt in this process.
pub(crate) async fn until_ended_by(folder: &Path, n: u64, pid: Option<u32>) {
    let ends = |line: &Line| {
        let is_its = matches!(&line.entry, Entry::Ended { n: ended, .. } if *ended == n);
        is_its && pid.is_none_or(|pid| line.pid == pid)
    };
    let has_ended = async || read_all(folder).expect("ledgers").iter().any(ends);
    eventually(PATIENCE, "the handler to end", has_ended).await;
}

/// Arms one timer of the quiet topic for now.
pub(crate) async fn arm(
    schedule: &keylapse::Schedule,
    n: u64,
    work: Work,
    millis: u64,
) -> keylapse::ArmResult {
    let (topic, key) = (Kind::Quiet.topic(LEASE), key(n));
    let job = Job { n, work, millis };
    schedule.arm(&topic, keylapse::Key(&key), Duration::ZERO, &job).await.expect("it is armed")
}

/// The key of a timer of the quiet topic.
pub(crate) fn key(n: u64) -> String {
    format!("{}:{n}", Kind::Quiet.name())
}
