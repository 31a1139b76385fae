//! A program and all that it has started.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// Killed when this is dropped, or before. What has left the group, by `setsid` for one, is not followed.
///
/// Whoever kills this process with SIGKILL, or cuts its machine's power, leaves nobody to do it: then programs run on until
/// they end or read the end of their input. What kills a service as a whole, as systemd does, kills them too.
#[derive(Debug)]
pub(super) struct Group(Option<Pid>);

impl Group {
    pub(super) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    pub(super) fn kill(&mut self) {
        if let Some(pid) = self.0.take() {
            // It may have ended, and left nothing.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
