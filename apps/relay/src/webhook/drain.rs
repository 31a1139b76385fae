//! Reads the bodies of answers, so that their connections can be used again.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest body that is read. The connection of a longer body is closed.
const BODY: usize = 8 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bodies that are read at the same time.
const AT_ONCE: usize = 100;

/// Reads and drops the bodies of answers, each in a task of its own.
#[derive(Debug)]
pub(super) struct Drain(Arc<Semaphore>);

impl Drain {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }

    pub(super) fn take(&self, response: Response) {
        if response.content_length() == Some(0) {
            return; // the body is empty
        }
        if let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() {
            tokio::spawn(async move {
                let _ = timeout(DRAIN_TIMEOUT, to_its_end(response)).await;
                drop(permit);
            });
        }
    }
}

async fn to_its_end(mut response: Response) {
    let mut left = BODY;
    while let Ok(Some(chunk)) = response.chunk().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
