//! The directory of a server, with its configuration, data and log.

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
        let home = folder.map(Self).map_err(Error::because("cannot create a directory for the server"))?;
        // The server gets a copy, so that CONFIG REWRITE in a test does not change the repository.
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

    /// Opens the log for appending. It has the output of all runs of a server.
    pub(super) fn open_log(&self) -> Result<File, Error> {
        let log = File::options().create(true).append(true).open(self.log());
        log.map_err(Error::because("cannot open the server's log"))
    }

    /// Returns the size of the log, for a later call of [`log_since`](Self::log_since).
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

    /// Keeps the directory after the end of the test, for the analysis of a failure.
    pub(super) fn keep(&mut self) {
        self.0.disable_cleanup(true);
    }
}
