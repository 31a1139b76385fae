//! A server's process: its signals, and its certain end.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::servers::home::Home;

/// Waits until the process that started it is gone, however that ended, and ends the server then: a
/// test that crashes drops nothing. It listens to no signal, since those of a terminal go to all
/// processes, and a server that is stopped would not hear them.
const GUARD: &str = r#"trap "" HUP INT TERM; read -r _; kill -KILL "$0"; rm -rf "$1""#;

/// A child process that does not outlive this value, nor the process that holds it.
#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    /// None where there is no shell.
    guard: Option<Child>,
}

impl Process {
    pub(super) fn start(binary: &Path, arguments: &[String], home: &Home) -> io::Result<Self> {
        let log = home.new_log()?;
        let server = Command::new(binary)
            .arg(home.config())
            .args(arguments)
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .spawn()?;
        let guard = guard(server.id(), home.path()).ok();
        Ok(Self { server, guard })
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }

    /// Sends a signal by its name, `STOP`. Until the process is reaped, which only this value does,
    /// its id belongs to no other.
    pub(super) fn signal(&self, name: &str) -> io::Result<()> {
        let kill = format!("kill -{name} {}", self.id());
        let status = Command::new("sh").args(["-c", &kill]).stdin(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(unsent(name, status)) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: once the server is reaped, its id may become another's.
        for child in self.guard.iter_mut().chain([&mut self.server]) {
            // Both do nothing once it has ended. SIGKILL ends one that is stopped, too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn guard(server: u32, home: &Path) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", GUARD, &server.to_string()])
        .arg(home)
        .stdin(Stdio::piped()) // closed by the system when this process ends
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn unsent(name: &str, status: ExitStatus) -> io::Error {
    io::Error::other(format!("SIG{name} cannot be sent: {status}"))
}
