//! A process of a story, which the story can kill or stop.

use std::collections::BTreeSet;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// The processes that were killed or stopped. Their jobs may run again.
pub(super) type Harmed = Arc<Mutex<BTreeSet<u32>>>;

/// Bound for the start and the shutdown of a process.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// A running program. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Actor {
    child: Child,
    pid: u32,
    harmed: Harmed,
}

impl Actor {
    pub(super) fn start(command: &mut Command, harmed: Harmed) -> Result<Self> {
        let child =
            command.stdin(Stdio::null()).kill_on_drop(true).spawn().context("cannot run a program")?;
        let pid = child.id().context("a program ended immediately")?;
        Ok(Self { child, pid, harmed })
    }

    /// Kills the process, as a crash does (SIGKILL).
    ///
    /// # Errors
    /// If the process has ended.
    pub async fn kill(mut self) -> Result<()> {
        self.harm();
        self.child.kill().await.context("cannot kill a program")
    }

    /// Stops the process (SIGSTOP), as a pause of the machine does.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn stop(&self) -> Result<()> {
        self.harm();
        self.signal(Signal::STOP)
    }

    /// Resumes the process (SIGCONT).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn cont(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks the process to end (SIGTERM), and waits for its end.
    ///
    /// # Errors
    /// If the process does not end within 20 s.
    pub async fn leave(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        match self.ended(TIMEOUT).await {
            Some(_) => Ok(()),
            None => bail!("a program did not end within {TIMEOUT:?} of SIGTERM"),
        }
    }

    /// Asks the process to end like [`leave`](Self::leave), in the middle of its work. Its jobs may run again.
    ///
    /// # Errors
    /// If the process does not end within 20 s.
    pub async fn interrupt(self) -> Result<()> {
        self.harm();
        self.leave().await
    }

    /// Returns how the process ended, or `None` if it still runs after this time.
    pub async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(within, self.child.wait()).await.ok()?.ok()
    }

    fn harm(&self) {
        self.harmed.lock().unwrap_or_else(PoisonError::into_inner).insert(self.pid);
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // Only this handle reaps the process. Until then, no other process can get its ID.
        let pid =
            i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("the process ID is not valid")?;
        kill_process(pid, signal).context("cannot send a signal to a program")
    }
}
