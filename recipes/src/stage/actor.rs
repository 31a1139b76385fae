//! A process of a story, which can be killed and stopped.

use std::collections::BTreeSet;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// The processes that were killed or stopped: what they ran may run once more.
pub(super) type Harmed = Arc<Mutex<BTreeSet<u32>>>;

/// How long an orderly end may take, or a beginning.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A running program. It ends with this value.
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
        let pid = child.id().context("a program that ended at once")?;
        Ok(Self { child, pid, harmed })
    }

    /// Ends it at once, as a crash does (SIGKILL).
    ///
    /// # Errors
    /// When there is no such process any more.
    pub async fn kill(mut self) -> Result<()> {
        self.harm();
        self.child.kill().await.context("cannot kill a program")
    }

    /// Makes it stand still (SIGSTOP), as a pause of the machine does.
    ///
    /// # Errors
    /// When there is no such process any more.
    pub fn stop(&self) -> Result<()> {
        self.harm();
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When there is no such process any more.
    pub fn cont(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    ///
    /// # Errors
    /// When it has not ended within 20 s.
    pub async fn leave(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        match self.ended(PATIENCE).await {
            Some(_) => Ok(()),
            None => bail!("a program did not end within {PATIENCE:?} of SIGTERM"),
        }
    }

    /// Asks it to end as [`leave`](Self::leave) does, in the middle of its work: what it has begun may run
    /// once more.
    ///
    /// # Errors
    /// When it has not ended within 20 s.
    pub async fn interrupt(self) -> Result<()> {
        self.harm();
        self.leave().await
    }

    /// How it ended, if it does within this time.
    pub async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(within, self.child.wait()).await.ok()?.ok()
    }

    fn harm(&self) {
        self.harmed.lock().unwrap_or_else(PoisonError::into_inner).insert(self.pid);
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // Until it is reaped, which only this handle does, the id belongs to no other process.
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).context("cannot send a signal to a program")
    }
}
