//! Reads trigger keys just after their deadlines.
//!
//! A key that has expired lies in memory until the server comes across it,
//! which takes minutes among a million others, and only then does the server
//! announce it. Reading it makes that happen now. In a deadline's own
//! millisecond the key is still alive, and the server's clock inside a command
//! may lag a little: hence two milliseconds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;

use crate::store::{MAX_BATCH, Store};

/// After the deadline.
const MARGIN: Duration = Duration::from_millis(2);
/// Batches that may wait. Beyond, keys are left to the server.
const WAITING: usize = 1024;

/// Where claimers leave the keys to be touched.
#[derive(Clone, Debug)]
pub(crate) struct Touches(mpsc::Sender<Batch>);

#[derive(Debug)]
struct Batch {
    at: Instant,
    keys: Vec<Bytes>,
}

impl Touches {
    /// Touches these keys once the latest of their deadlines has passed.
    pub(crate) fn plan(&self, latest: Option<Instant>, keys: impl Iterator<Item = Bytes>) {
        if let Some(latest) = latest {
            let batch = Batch { at: latest.max(Instant::now()) + MARGIN, keys: keys.collect() };
            let _ = self.0.try_send(batch); // a full queue: see WAITING
        }
    }
}

/// The queue's two ends: for claimers, and the task that does the work.
pub(crate) fn touches(store: Arc<dyn Store>) -> (Touches, impl Future<Output = ()> + Send) {
    let (sender, mut batches) = mpsc::channel::<Batch>(WAITING);
    let work = async move {
        while let Some(Batch { at, mut keys }) = batches.recv().await {
            tokio::time::sleep_until(at).await;
            while keys.len() < MAX_BATCH {
                match batches.try_recv() {
                    Ok(more) => {
                        tokio::time::sleep_until(more.at).await;
                        keys.extend(more.keys);
                    }
                    Err(_) => break,
                }
            }
            if let Err(error) = store.touch(&keys).await {
                debug!(%error, "trigger keys not touched: the server expires them in its own time");
            }
        }
    };
    (Touches(sender), work)
}
