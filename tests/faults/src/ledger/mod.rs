//! The ledger outside Redis: what was asked, told and done, one line a deed, one file a process.
//!
//! A line is one `write` to a file that is opened for appending, so it survives the SIGKILL of its
//! writer: the kernel has it. It is JSON, so that a person can read the story of a timer with `grep`.

mod entry;
mod reader;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub use entry::{End, Entry, Held, Life, Line, Succession, Told, Wrote};
pub use reader::read_all;

use crate::clock::{Micros, now};

/// One process's file.
#[derive(Clone, Debug)]
pub struct Ledger {
    file: Arc<File>,
    pid: u32,
}

impl Ledger {
    /// Opens this process's file in the run's folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let path = folder.join(format!("{pid}.jsonl"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Arc::new(file), pid })
    }

    /// Writes one line, stamped now.
    ///
    /// # Panics
    /// If it cannot be written: a run without its ledger says nothing.
    pub fn write(&self, entry: Entry) {
        self.write_at(now(), entry);
    }

    /// Writes one line about an earlier moment.
    ///
    /// # Panics
    /// As for [`write`](Self::write).
    pub fn write_at(&self, at: Micros, entry: Entry) {
        let line = Line { at, pid: self.pid, entry };
        let mut text = serde_json::to_vec(&line).expect("an entry is JSON");
        text.push(b'\n');
        (&*self.file).write_all(&text).expect("the ledger can be written");
    }
}
