//! What a program writes, up to a bound.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// For so long what lies in the pipes is read when nobody of the group writes any more. Others may, who have left it.
const LAST: Duration = Duration::from_secs(1);

/// Reads both of its outputs until this is dropped: one that is not read would stand still.
#[derive(Debug)]
pub(super) struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    reading: JoinSet<()>,
}

impl Output {
    pub(super) fn of(child: &mut Child, cap: usize) -> Self {
        let (kept, mut reading) = (Arc::<Mutex<Vec<u8>>>::default(), JoinSet::new());
        if let Some(stdout) = child.stdout.take() {
            reading.spawn(read(stdout, kept.clone(), cap));
        }
        if let Some(stderr) = child.stderr.take() {
            reading.spawn(read(stderr, kept.clone(), cap));
        }
        Self { kept, reading }
    }

    /// All of it, once the program has ended.
    pub(super) async fn text(mut self) -> String {
        let _ = timeout(LAST, async { while self.reading.join_next().await.is_some() {} }).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim_end().to_owned()
    }
}

async fn read(mut from: impl AsyncRead + Unpin, into: Arc<Mutex<Vec<u8>>>, cap: usize) {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        let room = cap.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}
