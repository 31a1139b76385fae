//! The way from the event loop to the reader of attached topics.
//!
//! The reader waits for writers, and a writer for a partition that is parked; wake-ups and fences of other topics
//! come in the same stream and must not wait. So the event loop leaves here what is the reader's, and goes on.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::events::{Canary, Change, Touched};
use crate::log::warn;
use crate::runtime::Runtime;

/// What may wait for the reader, as many as may wait for the event loop. A drop is a gap.
const WAITING: usize = 65_536;

/// What the reader is told.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A key of this partition has expired.
    Expired(usize, Bytes),
    /// A key of this partition has changed.
    Changed(usize, Bytes, Change),
    Canary(Canary),
    Touched(Touched),
    /// From here on, events are missing.
    Lost,
    /// The subscription is gone.
    Disconnected,
    /// No canary was heard when one should have been.
    Silent,
    /// What found no room here, answers to touches among it.
    Dropped,
}

/// The end of the queue at which the event loop speaks.
pub(crate) struct Ear {
    runtime: Arc<Runtime>,
    heard: mpsc::Sender<Heard>,
    /// How many events found no room, and since when; that is not said yet.
    dropped: Option<(u64, Instant)>,
}

impl Ear {
    pub(super) fn new(runtime: Arc<Runtime>) -> (Self, mpsc::Receiver<Heard>) {
        let (sender, heard) = mpsc::channel(WAITING);
        (Self { runtime, heard: sender, dropped: None }, heard)
    }

    /// Never waits. That something found no room is said before anything else is let in.
    pub(crate) fn hear(&mut self, heard: Heard) {
        if let Some((count, since)) = self.dropped
            && self.heard.try_send(Heard::Dropped).is_ok()
        {
            let for_ms = since.elapsed().as_millis() as u64;
            warn!(
                count,
                for_ms, "events of attached keys were dropped, since they could not be written down"
            );
            self.dropped = None;
        }
        match &mut self.dropped {
            Some((count, _)) => *count += 1,
            None if self.heard.try_send(heard).is_err() => {
                self.runtime.stats.gaps.add(1);
                warn!("attached keys expire faster than that can be written down: events are dropped");
                self.dropped = Some((1, Instant::now()));
            }
            None => {}
        }
    }
}
