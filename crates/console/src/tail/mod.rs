//! The live tail: starts and ends of attempts as they happen.

mod event;
mod subscriber;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::event::{Missed, TailEvent, TailItem};

use crate::error::Result;
use crate::tail::subscriber::{QueueItem, TailReceiver, TailSubscriber, queue};
use crate::wire::PartitionNames;
use crate::wire::TailBatch;
use crate::{Console, counted};

/// A live tail: the starts and ends of attempts as they happen.
///
/// It reconnects by itself, and reports missing events as [`TailItem::Missed`]. It ends when a topic gets another number of
/// partitions.
///
/// Partitions publish these events only while a tail watches them. They stop within 20 s after the tail was dropped.
#[must_use = "a tail returns events only from `next`"]
pub struct Tail {
    partitions: Arc<[PartitionNames]>,
    received: TailReceiver,
    ready: VecDeque<TailItem>,
    /// The task of the subscriber. Dropping the tail aborts it.
    _subscriber: JoinSet<()>,
}

impl Console {
    /// Watches the attempts of these topics, or of all topics that are registered now if `topics` is empty.
    ///
    /// The tail has all events after this call returned. There are three exceptions:
    ///
    /// - A partition that is created later appears within some seconds.
    /// - The tail ends within some seconds after a topic got another number of partitions. Open a new one.
    /// - In a Redis Cluster, events of an unavailable server are missing until it is back or replaced. The tail returns
    ///   [`Missed`] then, and the events of the other servers all the time.
    ///
    /// ```no_run
    /// # async fn watch(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let mut tail = console.tail(&["order.unpaid"]).await?;
    /// while let Some(item) = tail.next().await {
    ///     println!("{}", serde_json::to_string(&item).unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Invalid`](keylapse::ErrorKind::Invalid) if a name is not registered;
    /// - [`Unsupported`](keylapse::ErrorKind::Unsupported) if the server, or a proxy before it, does not support RESP3;
    /// - an error if the server cannot be reached or refuses a command. A tail writes to the `meta` of each partition, and
    ///   subscribes to its channel.
    pub async fn tail<S: AsRef<str>>(&self, topics: &[S]) -> Result<Tail> {
        let all = self.topics_named(topics).await?;
        self.tail_of(all.iter().flat_map(|topic| topic.partition_names().iter().cloned()).collect()).await
    }

    async fn tail_of(&self, partitions: Vec<PartitionNames>) -> Result<Tail> {
        let partitions: Arc<[_]> = partitions.into();
        let (sender, received) = queue();
        let subscriber = TailSubscriber::begin(self.store().clone(), partitions.clone(), sender).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(subscriber.run());
        Ok(Tail { partitions, received, ready: VecDeque::new(), _subscriber: tasks })
    }
}

impl Tail {
    /// Returns the next item, or `None` after a topic got another number of partitions. Cancel safe: dropping the future
    /// loses no items.
    pub async fn next(&mut self) -> Option<TailItem> {
        loop {
            if let Some(one) = self.ready.pop_front() {
                return Some(one);
            }
            match self.received.next().await? {
                QueueItem::Missed(missed) => return Some(TailItem::Missed(missed)),
                QueueItem::Message(place, message) => {
                    let Some(batch) = TailBatch::decode(message) else { continue };
                    self.ready.extend(events(&self.partitions[place], batch));
                }
            }
        }
    }
}

/// Returns the items of one message.
fn events(at: &PartitionNames, batch: TailBatch) -> impl Iterator<Item = TailItem> {
    let TailBatch { at: at_ms, left_out, entries } = batch;
    let event = move |one| TailItem::Event(TailEvent::of(&at.topic, at.index, one, at_ms));
    let missed = (left_out > 0).then_some(TailItem::Missed(Missed::Counted { count: left_out }));
    entries.into_iter().map(event).chain(missed)
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail({})", counted(self.partitions.len() as u64, "partition"))
    }
}
