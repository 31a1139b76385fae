//! A server's directory: its configuration, its data and its log.

use std::{
    env,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    process,
};

use crate::{Error, binary::REPOSITORY};

const LOG_LINES: usize = 30;

/// A directory that is removed with this value, unless it is kept. A crate for that would be compiled before the demo.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    is_kept: bool,
}

impl Home {
    pub(super) fn new() -> Result<Self, Error> {
        let name = format!("keylapse-server-{}-{:016x}", process::id(), RandomState::new().hash_one(0));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).map_err(Error::because("cannot make a directory for the server"))?;
        let home = Self { path, is_kept: false };
        // A copy, so that CONFIG REWRITE in a test does not edit the repository.
        fs::copy(Path::new(REPOSITORY).join("redis.conf"), home.config())
            .map_err(Error::because("cannot copy redis.conf from the root of the repository"))?;
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path().join("redis.conf")
    }

    fn log(&self) -> PathBuf {
        self.path().join("server.log")
    }

    /// The log, to append to: it tells of all runs of a server that is started several times.
    pub(super) fn open_log(&self) -> Result<File, Error> {
        let log = File::options().create(true).append(true).open(self.log());
        log.map_err(Error::because("cannot open the server's log"))
    }

    /// How long the log is now, so that a later reader can look at what was added.
    pub(super) fn log_size(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    pub(super) fn log_since(&self, size: u64) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let start = usize::try_from(size).unwrap_or(usize::MAX).min(log.len());
        String::from_utf8_lossy(&log[start..]).into_owned()
    }

    pub(super) fn last_log_lines(&self) -> String {
        let log = self.log_since(0);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Leaves the directory in place for whoever looks into the failure.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_kept {
            // The rest is in the system's temporary directory.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
