//! A server's process and its directory, which end together.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::Result;
use crate::testing::server::failed;

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    home: Home,
}

impl Process {
    pub(super) fn start(binary: &Path, port: u16) -> Result<Self> {
        let home = Home::new().map_err(failed)?;
        let child = spawn(binary, port, &home.0);
        let child = child.map_err(|error| failed(format!("{} does not run: {error}", binary.display())))?;
        Ok(Self { child, home })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has said so far.
    pub(super) fn log(&self) -> String {
        let log = fs::read(self.home.log()).unwrap_or_default();
        format!("the server said: {}", String::from_utf8_lossy(&log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both do nothing once it has ended. Its directory is removed after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &Path, port: u16, home: &Path) -> io::Result<Child> {
    let log = File::create(home.join(Home::LOG))?;
    Command::new(binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(home)
        .args(["--save", "", "--appendonly", "no", "--notify-keyspace-events", "Ex"])
        .current_dir(home)
        .stdin(Stdio::null())
        .stderr(log.try_clone()?)
        .stdout(log)
        .spawn()
}

/// A directory that is removed with this value.
#[derive(Debug)]
struct Home(PathBuf);

impl Home {
    const LOG: &str = "server.log";

    fn new() -> io::Result<Self> {
        let name = format!("keylapse-{}-{:016x}", std::process::id(), rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map(|()| Self(path))
    }

    fn log(&self) -> PathBuf {
        self.0.join(Self::LOG)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left is in the system's temporary directory
    }
}
