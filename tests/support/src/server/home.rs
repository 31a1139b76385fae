//! A server's directory: its configuration, its data and its log.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{Error, binary::REPOSITORY};

const LOG_LINES: usize = 30;

#[derive(Debug)]
pub(super) struct Home(TempDir);

impl Home {
    pub(super) fn new() -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("keylapse-server-").tempdir();
        let home = folder.map(Self).map_err(Error::because("cannot make a directory for the server"))?;
        // A copy, so that CONFIG REWRITE in a test does not edit the repository.
        fs::copy(Path::new(REPOSITORY).join("redis.conf"), home.config())
            .map_err(Error::because("cannot copy redis.conf from the root of the repository"))?;
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
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
        self.0.disable_cleanup(true);
    }
}
