//! What happened, in a file outside Redis that outlives every process of the story.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It began.
    Began,
    /// It ended well.
    Done,
    /// It failed, and its program knows.
    Failed,
}

impl Event {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Began, "began"), (Self::Done, "done"), (Self::Failed, "failed")];
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was written, by the clock of the machine, which is also the server's.
    pub at: SystemTime,
    /// The process that wrote it.
    pub pid: u32,
    /// What happened.
    pub event: Event,
    /// The job: an order's number, say.
    pub job: String,
    /// What a receiver would tell repeats by.
    pub id: String,
}

/// A file of lines that several processes append to.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// The ledger in this file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a line with one write, which no other process can get between.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note(&self, event: Event, job: &str, id: &str) -> Result<()> {
        let word = Event::ALL.iter().find(|(one, _)| *one == event).map_or("", |(_, word)| word);
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let line = format!("{at} {} {word} {job} {id}\n", std::process::id());
        let mut file = File::options().create(true).append(true).open(&self.0)?;
        file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", self.0.display()))
    }

    /// All whole lines.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is none of ours.
    pub fn read(&self) -> Result<Vec<Entry>> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {}", self.0.display())),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| entry(line).with_context(|| format!("no line of a ledger: {line}")))
            .collect()
    }
}

fn entry(line: &str) -> Option<Entry> {
    let [at, pid, word, job, id] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let (event, _) = *Event::ALL.iter().find(|(_, one)| *one == word)?;
    let at = UNIX_EPOCH + Duration::from_micros(at.parse().ok()?);
    Some(Entry { at, pid: pid.parse().ok()?, event, job: job.to_owned(), id: id.to_owned() })
}
