//! A log of all runs, in a file outside Redis that outlives the processes of a story.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// A step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The run began.
    Began,
    /// The run succeeded.
    Done,
    /// The run failed, and its program received the error.
    Failed,
}

impl Event {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Began, "began"), (Self::Done, "done"), (Self::Failed, "failed")];
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time of the event, by the clock that the server uses, too.
    pub at: SystemTime,
    /// ID of the process that wrote the line.
    pub pid: u32,
    /// The step of the run.
    pub event: Event,
    /// The job, for example the number of an order.
    pub job: String,
    /// The ID by which a receiver recognizes repeats.
    pub id: String,
}

/// A file of lines that several processes append to.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// Uses this file, which is created by the first line.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a line in a single write, so that lines of several processes do not mix.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&self, event: Event, job: &str, id: &str) -> Result<()> {
        let word = Event::ALL.iter().find(|(known, _)| *known == event).map_or("", |(_, word)| word);
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let line = format!("{at} {} {word} {job} {id}\n", std::process::id());
        let mut file = File::options().create(true).append(true).open(&self.0)?;
        file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", self.0.display()))
    }

    /// Returns all complete lines. A file that does not exist has none.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is invalid.
    pub fn read(&self) -> Result<Vec<Entry>> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {}", self.0.display())),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| entry(line).with_context(|| format!("invalid line in a ledger: {line}")))
            .collect()
    }
}

fn entry(line: &str) -> Option<Entry> {
    let [at, pid, word, job, id] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let (event, _) = *Event::ALL.iter().find(|(_, known)| *known == word)?;
    let at = UNIX_EPOCH + Duration::from_micros(at.parse().ok()?);
    Some(Entry { at, pid: pid.parse().ok()?, event, job: job.to_owned(), id: id.to_owned() })
}
