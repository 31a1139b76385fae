//! What a program writes, up to a bound.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// For so long what lies in the pipes is read when nobody of the group writes any more. Others may, who have left it.
const LAST: Duration = Duration::from_secs(1);
/// Bytes of a line that may become an error.
const LINE: usize = 1 << 10;

/// Reads both of its outputs until this is dropped: one that is not read would stand still.
#[derive(Debug)]
pub(super) struct Output {
    stdout: Arc<Mutex<Heard>>,
    stderr: Arc<Mutex<Heard>>,
    reading: JoinSet<()>,
}

/// Of one output.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    cap: usize,
    /// How it begins.
    head: Vec<u8>,
    /// The last line that is not blank.
    last: Vec<u8>,
    /// The line that has not ended.
    line: Vec<u8>,
}

impl Output {
    pub(super) fn of(child: &mut Child, cap: usize) -> Self {
        let heard = || Arc::new(Mutex::new(Heard::new(cap)));
        let (stdout, stderr, mut reading) = (heard(), heard(), JoinSet::new());
        if let Some(from) = child.stdout.take() {
            reading.spawn(read(from, stdout.clone()));
        }
        if let Some(from) = child.stderr.take() {
            reading.spawn(read(from, stderr.clone()));
        }
        Self { stdout, stderr, reading }
    }

    /// All of it, once the program has ended: of its output, and of its errors.
    pub(super) async fn heard(mut self) -> [Heard; 2] {
        let _ = timeout(LAST, async { while self.reading.join_next().await.is_some() {} }).await;
        [self.stdout, self.stderr].map(|heard| heard.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Heard {
    fn new(cap: usize) -> Self {
        Self { cap, head: Vec::new(), last: Vec::new(), line: Vec::new() }
    }

    /// How it begins.
    pub(super) fn text(&self) -> String {
        text(&self.head)
    }

    /// The last line that is not blank, whether it ends or not.
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

async fn read(mut from: impl AsyncRead + Unpin, into: Arc<Mutex<Heard>>) {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        into.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]);
    }
}
