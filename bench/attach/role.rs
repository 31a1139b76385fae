//! The processes of a scene: this program, with its role as an argument. It writes reports as lines.

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
/// The longest time for which a line is buffered.
const FLUSH: Duration = Duration::from_millis(20);

/// The role of a process, until its standard input is closed.
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

/// A report of a process. Times are in µs since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The counters of a listener, repeated from when it receives events.
    Counted { at: u64, scans: u64, enrolled: u64, noted: u64, dropped: u64, gaps: u64 },
    /// A handler has started.
    Run { key: u32, at: u64, value: bool, known: bool },
    /// A session was refreshed for the last time, and ends at the deadline.
    Left { key: u32, deadline: u64, shortened: bool },
    /// The number of commands at the steady pace, and of sessions that were gone too soon.
    Written { commands: u64, seconds: f64, gone: u64 },
}

/// The sender of reports. Several threads can have one.
#[derive(Clone, Debug)]
pub(crate) struct Reporter(Sender<Report>);

impl Reporter {
    /// Creates a reporter, and a thread that writes its reports until all of its clones are dropped.
    pub(crate) fn open() -> (Self, thread::JoinHandle<std::io::Result<()>>) {
        let (sender, reports) = channel();
        (Self(sender), thread::spawn(move || write_lines(&reports)))
    }

    pub(crate) fn send(&self, report: Report) {
        let _ = self.0.send(report);
    }
}

fn write_lines(reports: &Receiver<Report>) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    loop {
        match reports.recv_timeout(FLUSH) {
            Ok(one) => {
                serde_json::to_writer(&mut out, &one)?;
                out.write_all(b"\n")?;
            }
            Err(RecvTimeoutError::Timeout) => out.flush()?,
            Err(RecvTimeoutError::Disconnected) => return out.flush(),
        }
    }
}

/// The requests to a writer, by its standard input.
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

    /// Returns whether the writes from now on count.
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Returns whether the writer is to end.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// A process in a role, which is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    reports: Receiver<Report>,
}

impl Worker {
    pub(crate) fn start(role: &Role) -> Result<Self, Fault> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, &serde_json::to_string(role)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let (sender, reports) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The last line of a killed process may be incomplete.
                let Ok(one) = serde_json::from_str(&line) else { return };
                if sender.send(one).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, reports })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the reports since the last call.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.reports.try_iter().collect()
    }

    /// Asks a writer to count from now on.
    pub(crate) fn count(&mut self) -> Result<(), Fault> {
        Ok(self.child.stdin.as_mut().ok_or("the process was already asked to end")?.write_all(b"count\n")?)
    }

    /// Asks the process to end, without waiting.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Returns whether the process has ended. Fails if it has failed.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Fault> {
        match self.child.try_wait()? {
            Some(status) if !status.success() => {
                Err(format!("a process of the scene ended: {status}").into())
            }
            ended => Ok(ended.is_some()),
        }
    }

    /// Asks the process to end, waits for it, and returns its last reports.
    pub(crate) fn end(mut self) -> Result<Vec<Report>, Fault> {
        self.ask_to_end();
        let rest = self.reports.iter().collect();
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
