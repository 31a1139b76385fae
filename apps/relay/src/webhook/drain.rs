//! What is left of an answer once its head has said all.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// So much of a body is read, and for so long, so that the connection can be used again; else it is closed.
const BODY: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(1);
/// So many are read at the same time.
const AT_ONCE: usize = 100;

/// Reads the bodies of answers to their end, in tasks of their own.
#[derive(Debug)]
pub(super) struct Drain(Arc<Semaphore>);

impl Drain {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }

    pub(super) fn take(&self, response: Response) {
        if response.content_length() == Some(0) {
            return; // at its end
        }
        if let Ok(place) = Arc::clone(&self.0).try_acquire_owned() {
            tokio::spawn(async move {
                let _ = timeout(PATIENCE, to_its_end(response)).await;
                drop(place);
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
