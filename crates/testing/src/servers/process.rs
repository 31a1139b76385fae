//! The process of a server, its directory and its ports.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::{fs, io};

use crate::servers::failed;
use keylapse::Result;
use keylapse_connection::lock::lock;

/// Ends the server when the test process ends for any reason. A test that crashes drops nothing.
///
/// The script ignores signals, because a terminal sends its signals to all processes. A suspended server would not react
/// to them.
const GUARD_SCRIPT: &str = r#"trap "" HUP INT TERM; read -r _; kill -KILL "$0"; rm -rf "$1""#;

/// A child process that ends with this value, and with the process that holds it.
#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    /// `None` if no shell is installed.
    guard: Option<Child>,
}

impl Process {
    pub(super) fn start(
        binary: &Path,
        arguments: &[String],
        directory: &ServerDirectory,
    ) -> io::Result<Self> {
        let log = directory.new_log()?;
        let server = Command::new(binary)
            .arg(directory.config())
            .args(arguments)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .spawn()?;
        let guard = guard(server.id(), directory.path()).ok();
        Ok(Self { server, guard })
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }

    /// Sends a signal by its name, such as `STOP`. No other process can have the ID, because only this value reaps the
    /// process.
    pub(super) fn signal(&self, name: &str) -> io::Result<()> {
        let kill = format!("kill -{name} {}", self.id());
        let status = Command::new("sh").args(["-c", &kill]).stdin(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(unsent(name, status)) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard ends first: once the server is reaped, another process may get its ID.
        for child in self.guard.iter_mut().chain([&mut self.server]) {
            // Both calls do nothing if the process has ended. SIGKILL also ends a suspended process.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn guard(server: u32, directory: &Path) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", GUARD_SCRIPT, &server.to_string()])
        .arg(directory)
        .stdin(Stdio::piped()) // the system closes it when this process ends
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn unsent(name: &str, status: ExitStatus) -> io::Error {
    io::Error::other(format!("cannot send SIG{name}: {status}"))
}

/// A temporary directory that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ServerDirectory(PathBuf);

impl ServerDirectory {
    /// Creates a directory with this configuration file, which the server may rewrite.
    pub(super) fn new(config: &[String]) -> io::Result<Self> {
        let name = format!("keylapse-{}-{:016x}", std::process::id(), rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        let directory = Self(path);
        fs::write(directory.config(), config.join("\n") + "\n")?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn config(&self) -> PathBuf {
        self.0.join("server.conf")
    }

    /// Creates an empty log, for the next start of the server.
    pub(super) fn new_log(&self) -> io::Result<File> {
        File::create(self.log_path())
    }

    /// Returns the server's log since its last start.
    pub(super) fn log(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        format!("the server's log: {}", String::from_utf8_lossy(&log))
    }

    fn log_path(&self) -> PathBuf {
        self.0.join("server.log")
    }
}

impl Drop for ServerDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a rest stays in the system's temporary directory
    }
}

/// Below the ports of outgoing connections. The port of a server that has ended therefore stays free until it restarts.
/// No client that tries to connect in between gets this port as its own, which would connect it to itself.
const RANGE: Range<u16> = 10_000..32_000;
const MAX_PORT_TRIES: usize = 1_000;

/// The ports that this process uses. If another process has the same port, the server does not start, and tries another.
static TAKEN_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that no other test of this process gets while this value exists, even if nothing listens on it.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    /// Returns a port on which nothing listens now. Another process may still take it first.
    pub(super) fn free() -> Result<Self> {
        for _ in 0..MAX_PORT_TRIES {
            let port = rand::random_range(RANGE);
            if lock(&TAKEN_PORTS).insert(port) {
                let port = Self(port);
                if TcpListener::bind((Ipv4Addr::LOCALHOST, port.0)).is_ok() {
                    return Ok(port);
                }
            }
        }
        Err(failed(format!("none of {MAX_PORT_TRIES} ports tried in {RANGE:?} is free on 127.0.0.1")))
    }

    pub(super) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        lock(&TAKEN_PORTS).remove(&self.0);
    }
}
