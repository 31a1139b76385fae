//! The way from the event loop to the reader of attached topics.
//!
//! The reader waits for writers, and a writer for a partition that is parked; wake-ups and fences of other topics
//! come in the same stream and must not wait. So the event loop leaves here what is the reader's, and goes on.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::backlog::{self, Item, Receiver, backlog};
use crate::events::{Canary, Touched};
use crate::log::warn;
use crate::runtime::Runtime;
use crate::wire::NodeId;

/// Bytes that may wait for the reader: some two million short keys. A drop is a gap.
const WAITING: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// What the reader is told.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A key of this partition has expired.
    Expired(usize, Bytes),
    /// A key was deleted or renamed.
    Gone(Bytes),
    Canary(Canary),
    /// A canary of this number that is not believed.
    Hearsay(u64),
    Touched(Touched),
    /// The server is this one from here on.
    Server {
        node: NodeId,
        at: String,
    },
    /// From here on, events are missing.
    Lost,
    /// The subscription is gone.
    Disconnected,
    /// And no other can be had.
    NoSubscription,
    /// No canary was heard when one should have been.
    Silent,
    /// What found no room here, answers to touches among it.
    Dropped,
}

/// The tag of a key that is gone; that of one that has expired is its partition.
const GONE: u32 = u32::MAX;

impl Item for Heard {
    fn split(self) -> Result<(u32, Bytes), Self> {
        match self {
            Self::Gone(key) => Ok((GONE, key)),
            Self::Expired(partition, key) => Ok((u32::try_from(partition).unwrap_or(GONE), key)),
            other => Err(other),
        }
    }

    fn join(tag: u32, key: Bytes) -> Self {
        if tag == GONE { Self::Gone(key) } else { Self::Expired(tag as usize, key) }
    }

    fn size(&self) -> usize {
        let more = if let Self::Touched(touched) = self { touched.size() } else { 0 };
        size_of::<Self>() + more
    }
}

/// The end of the queue at which the event loop speaks.
pub(crate) struct Ear {
    runtime: Arc<Runtime>,
    heard: backlog::Sender<Heard>,
    /// How many events found no room, and since when; that is not said yet.
    dropped: Option<(u64, Instant)>,
}

impl Ear {
    pub(super) fn new(runtime: Arc<Runtime>) -> (Self, Receiver<Heard>) {
        let (sender, heard) = backlog(WAITING);
        (Self { runtime, heard: sender, dropped: None }, heard)
    }

    /// Never waits. That something found no room is said before anything else is let in.
    pub(crate) fn hear(&mut self, heard: Heard) {
        if let Some((count, since)) = self.dropped
            && self.heard.push_again(Heard::Dropped)
        {
            let for_ms = since.elapsed().as_millis() as u64;
            warn!(
                count,
                for_ms, "events of attached keys were dropped, since they could not be written down"
            );
            self.dropped = None;
        }
        let expired = if let Heard::Expired(partition, _) = heard { Some(partition) } else { None };
        if self.dropped.is_none() {
            if self.heard.push(heard) {
                return;
            }
            self.runtime.stats.gaps.add(1);
            warn!("attached keys expire faster than that can be written down: events are dropped");
            self.dropped = Some((0, Instant::now()));
        }
        if let Some((count, _)) = &mut self.dropped {
            *count += 1;
        }
        if let Some(partition) = expired {
            self.runtime.partitions[partition].topic.attached.lost_unenrolled.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBed;
    use crate::{Attached, Done, Expired, Failure, Lapse, Listener, Topic};

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_for_the_reader_is_counted_and_heard_of_before_what_comes_then() {
        const SENT: usize = 2 * WAITING / 4096;
        let bed = TestBed::new();
        let lapsed = |_: Lapse<Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
        let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap());
        let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
        let (mut ear, heard) = Ear::new(listener.runtime.clone());
        let key = Bytes::from(vec![b'a'; 4096]);
        (0..SENT).for_each(|_| ear.hear(Heard::Expired(0, key.clone())));
        let lost = listener.runtime.partitions[0].topic.attached.lost_unenrolled.get() as usize;
        let waiting: Vec<_> = std::iter::from_fn(|| heard.try_recv()).collect();
        assert!(waiting.iter().all(|one| matches!(one, Heard::Expired(..))));
        assert!(lost > 0 && waiting.len() + lost == SENT, "{lost} lost");
        assert!(waiting.len() >= WAITING / 4096 * 7 / 8, "{} of {SENT}", waiting.len());
        ear.hear(Heard::Gone(key));
        assert!(matches!(heard.try_recv(), Some(Heard::Dropped)));
        assert!(matches!(heard.try_recv(), Some(Heard::Gone(_))));
    }
}
