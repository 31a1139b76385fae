//! A server's process: its signals and certain end, its directory, its port.

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

/// Waits until the process that started it is gone, however that ended, and ends the server then: a
/// test that crashes drops nothing. It listens to no signal, since those of a terminal go to all
/// processes, and a server that is stopped would not hear them.
const GUARD_SCRIPT: &str = r#"trap "" HUP INT TERM; read -r _; kill -KILL "$0"; rm -rf "$1""#;

/// A child process that does not outlive this value, nor the process that holds it.
#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    /// None where there is no shell.
    guard: Option<Child>,
}

impl Process {
    pub(super) fn start(binary: &Path, arguments: &[String], home: &ServerDirectory) -> io::Result<Self> {
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
        .args(["-c", GUARD_SCRIPT, &server.to_string()])
        .arg(home)
        .stdin(Stdio::piped()) // closed by the system when this process ends
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn unsent(name: &str, status: ExitStatus) -> io::Error {
    io::Error::other(format!("SIG{name} cannot be sent: {status}"))
}

/// A directory that is removed with this value.
#[derive(Debug)]
pub(super) struct ServerDirectory(PathBuf);

impl ServerDirectory {
    /// With this configuration, which the server may rewrite.
    pub(super) fn new(config: &[String]) -> io::Result<Self> {
        let name = format!("keylapse-{}-{:016x}", std::process::id(), rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        let home = Self(path);
        fs::write(home.config(), config.join("\n") + "\n")?;
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn config(&self) -> PathBuf {
        self.0.join("server.conf")
    }

    /// The log of the run that begins now.
    pub(super) fn new_log(&self) -> io::Result<File> {
        File::create(self.log_path())
    }

    /// What the server has said since it was last started.
    pub(super) fn log(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        format!("the server said: {}", String::from_utf8_lossy(&log))
    }

    fn log_path(&self) -> PathBuf {
        self.0.join("server.log")
    }
}

impl Drop for ServerDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left is in the system's temporary directory
    }
}

/// Below the ports from which systems take those of outgoing connections: the port of a server that
/// has ended is still free when it starts again, and no client that calls it meanwhile is given it to
/// call *from*, and so talks to itself.
const RANGE: Range<u16> = 10_000..32_000;
const MAX_PORT_TRIES: usize = 1_000;

/// Those of this process. Other processes may choose the same: then a server cannot start there, and
/// another port is tried.
static TAKEN_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that no other test of this process is given as long as this value lives, whether or not
/// something listens there.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    /// One that nothing listens on at this moment; another process may be quicker.
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
