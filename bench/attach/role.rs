//! The processes of a scene: this program again, told what to do by an argument, and what it tells by lines.

use std::io::{BufRead, BufReader, BufWriter, Read, Write, stdin, stdout};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use keylapse_bench::Fault;
use serde::{Deserialize, Serialize};

use crate::listening::Listening;
use crate::refreshing::Refreshing;
use crate::rewriting::Rewriting;

/// The argument before the role.
pub(crate) const WORD: &str = "role";
/// Lines are written together, but none waits for longer.
const FLUSH: Duration = Duration::from_millis(20);

/// What a process is to do, until its standard input is closed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    Listening(Listening),
    Refreshing(Refreshing),
    Rewriting(Rewriting),
}

impl Role {
    pub(crate) fn play(role: &str) -> Result<(), Fault> {
        match serde_json::from_str(role)? {
            Self::Listening(listening) => listening.play(),
            Self::Refreshing(refreshing) => refreshing.play(),
            Self::Rewriting(rewriting) => rewriting.play(),
        }
    }
}

/// What a process tells. Times are in µs since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// What a listener has counted so far, again and again from when it hears.
    Counted { at: u64, scans: u64, enrolled: u64, noted: u64, dropped: u64, gaps: u64 },
    /// A handler has started.
    Run { key: u32, at: u64, value: bool, known: bool },
    /// A session has been refreshed for the last time, and ends then.
    Left { key: u32, deadline: u64, shortened: bool },
    /// So much was written at the steady pace; of the keys, so many were gone that should not have been.
    Written { commands: u64, seconds: f64, gone: u64 },
}

/// Where a process says it: others may say something at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Mouth(Sender<Told>);

impl Mouth {
    /// And a thread that writes it, until all mouths are gone.
    pub(crate) fn open() -> (Self, thread::JoinHandle<std::io::Result<()>>) {
        let (sender, told) = channel();
        (Self(sender), thread::spawn(move || write_lines(&told)))
    }

    pub(crate) fn say(&self, told: Told) {
        let _ = self.0.send(told);
    }
}

fn write_lines(told: &Receiver<Told>) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    loop {
        match told.recv_timeout(FLUSH) {
            Ok(one) => {
                serde_json::to_writer(&mut out, &one)?;
                out.write_all(b"\n")?;
            }
            Err(RecvTimeoutError::Timeout) => out.flush()?,
            Err(RecvTimeoutError::Disconnected) => return out.flush(),
        }
    }
}

/// What a writer is asked for, by its standard input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    counts: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
}

impl Asked {
    pub(crate) fn listen() -> Self {
        let asked = Self::default();
        let (counts, ends) = (asked.counts.clone(), asked.ends.clone());
        thread::spawn(move || {
            let mut line = String::new();
            let _ = stdin().read_line(&mut line);
            counts.store(!line.is_empty(), Ordering::Relaxed);
            let _ = stdin().read_to_end(&mut Vec::new());
            ends.store(true, Ordering::Relaxed);
        });
        asked
    }

    /// Whether what is written from now on counts.
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Whether it is to end what it is about.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// A process in a role. It ends with this value.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    told: Receiver<Told>,
}

impl Worker {
    pub(crate) fn start(role: &Role) -> Result<Self, Fault> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, &serde_json::to_string(role)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let (sender, told) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // What a killed process has written of a line is nothing.
                let Ok(one) = serde_json::from_str(&line) else { return };
                if sender.send(one).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, told })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has told and nobody has taken yet.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.try_iter().collect()
    }

    /// Tells a writer that it counts from now on.
    pub(crate) fn count(&mut self) -> Result<(), Fault> {
        Ok(self.child.stdin.as_mut().ok_or("it was asked to end")?.write_all(b"count\n")?)
    }

    /// Asks it to end, without waiting.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Whether it has ended; a fault if not as it should.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Fault> {
        match self.child.try_wait()? {
            Some(status) if !status.success() => {
                Err(format!("a process of the scene ended: {status}").into())
            }
            ended => Ok(ended.is_some()),
        }
    }

    /// Asks it to end and waits for that; the rest of what it tells.
    pub(crate) fn end(mut self) -> Result<Vec<Told>, Fault> {
        self.ask_to_end();
        let rest = self.told.iter().collect();
        let status = self.child.wait()?;
        if status.success() {
            Ok(rest)
        } else {
            Err(format!("a process of the scene ended: {status}").into())
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
