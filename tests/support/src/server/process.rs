//! The process of a server.

use std::{
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Deadline, Error};

/// A child process that does not outlive this value.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    pub(super) fn spawn(command: &mut Command) -> Result<Self, Error> {
        command.spawn().map(Self).map_err(Error::because("cannot run the server"))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        // No other process can get the ID until this handle reaps the child.
        kill_process(pid, signal)
            .unwrap_or_else(|error| panic!("cannot send {signal:?} to the server with pid {pid:?}: {error}"));
    }

    /// Returns the exit status, if the process has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0
            .try_wait()
            .unwrap_or_else(|error| panic!("cannot read the state of the server's process: {error}"))
    }

    /// Waits until the process has ended, without blocking the runtime. Returns false after `limit`.
    pub(super) async fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Deadline::after(limit);
        while self.ended().is_none() {
            if deadline.is_over() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        true
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. Both calls do nothing if the process was reaped before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
