//! A server's directory: its configuration, what it keeps, and its log.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A directory that is removed with this value.
#[derive(Debug)]
pub(super) struct Home(PathBuf);

impl Home {
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

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left is in the system's temporary directory
    }
}
