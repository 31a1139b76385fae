//! The process group of a program.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// A process group, which is killed when this value is dropped, or before. A process that has left the group, for example by
/// `setsid`, is not killed.
///
/// If SIGKILL ends this process, nothing kills the group. Programs then run until they end, or read the end of their input.
/// A service manager such as systemd kills them with the service.
#[derive(Debug)]
pub(super) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    pub(super) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    pub(super) fn kill(&mut self) {
        if let Some(pid) = self.0.take() {
            // The group may have ended already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
