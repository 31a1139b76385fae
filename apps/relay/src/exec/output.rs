//! Captures the output of a program, up to a bound.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the pipes are still read after the program's group has ended. A process that left the group may keep them open.
const LAST: Duration = Duration::from_secs(1);
/// Bytes of a line that an error can quote.
const LINE: usize = 1 << 10;

/// Reads both outputs of a program until this value is dropped. A program blocks when its output is not read.
#[derive(Debug)]
pub(super) struct Output {
    stdout: Arc<Mutex<CapturedOutput>>,
    stderr: Arc<Mutex<CapturedOutput>>,
    reading: JoinSet<()>,
}

/// The captured part of standard output or standard error.
#[derive(Clone, Debug)]
pub(super) struct CapturedOutput {
    cap: usize,
    /// The first bytes, up to `cap`.
    head: Vec<u8>,
    /// The last line that is not blank.
    last: Vec<u8>,
    /// The line that has not ended.
    line: Vec<u8>,
}

impl Output {
    pub(super) fn of(child: &mut Child, cap: usize) -> Self {
        let heard = || Arc::new(Mutex::new(CapturedOutput::new(cap)));
        let (stdout, stderr, mut reading) = (heard(), heard(), JoinSet::new());
        if let Some(from) = child.stdout.take() {
            reading.spawn(read(from, stdout.clone()));
        }
        if let Some(from) = child.stderr.take() {
            reading.spawn(read(from, stderr.clone()));
        }
        Self { stdout, stderr, reading }
    }

    /// Returns the captured standard output and standard error. The program has ended before this call.
    pub(super) async fn heard(mut self) -> [CapturedOutput; 2] {
        let _ = timeout(LAST, async { while self.reading.join_next().await.is_some() {} }).await;
        [self.stdout, self.stderr].map(|heard| heard.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl CapturedOutput {
    fn new(cap: usize) -> Self {
        Self { cap, head: Vec::new(), last: Vec::new(), line: Vec::new() }
    }

    /// Returns the first bytes as text.
    pub(super) fn text(&self) -> String {
        text(&self.head)
    }

    /// Returns the last line that is not blank, with or without a newline at its end.
    pub(super) fn last_line(mut self) -> Option<String> {
        self.end_line();
        Some(text(&self.last)).filter(|line| !line.is_empty())
    }

    fn add(&mut self, bytes: &[u8]) {
        add(&mut self.head, bytes, self.cap);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            add(&mut self.line, part, self.cap.min(LINE));
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if !self.line.trim_ascii().is_empty() {
            std::mem::swap(&mut self.last, &mut self.line);
        }
        self.line.clear();
    }
}

fn add(to: &mut Vec<u8>, bytes: &[u8], cap: usize) {
    let room = cap.saturating_sub(to.len());
    to.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

async fn read(mut from: impl AsyncRead + Unpin, into: Arc<Mutex<CapturedOutput>>) {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        into.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]);
    }
}
