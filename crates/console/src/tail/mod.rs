//! Looking on: starts and ends of attempts, as they happen.

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

/// Starts and ends of attempts, as they happen. It lives until it is dropped, or one of its topics has another number of
/// partitions, and reconnects by itself; what was missed meanwhile, or not asked for in time, it says.
///
/// Partitions tell nothing, and it costs nothing, while nobody looks on; some seconds after this was dropped, they fall
/// silent again.
#[must_use = "nothing is heard until it is asked for"]
pub struct Tail {
    partitions: Arc<[PartitionNames]>,
    heard: TailReceiver,
    ready: VecDeque<TailItem>,
    /// Ends with it.
    _keeper: JoinSet<()>,
}

impl Console {
    /// Looks on as these topics' attempts start and end; without names, on those of all topics that are registered now.
    /// Once this has returned, nothing is missed that a partition does, but of one that is made later: that is heard
    /// within some seconds. When a topic gets another number of partitions meanwhile, the tail ends within some seconds:
    /// look on anew. Of a cluster's servers that are away nothing is heard until they are back or replaced; the
    /// others are heard meanwhile, and what comes first then is [`Missed`].
    ///
    /// ```no_run
    /// # async fn look(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let mut tail = console.tail(&["order.unpaid"]).await?;
    /// while let Some(told) = tail.next().await {
    ///     println!("{}", serde_json::to_string(&told).unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the server cannot be reached or refuses: whoever looks on writes to `meta` of each partition, and subscribes to
    /// its channel. Of kind [`Unsupported`](keylapse::ErrorKind::Unsupported) where the server, or a proxy before it, does not
    /// speak RESP3. Of kind [`Invalid`](keylapse::ErrorKind::Invalid) for a name that nobody has registered.
    pub async fn tail<S: AsRef<str>>(&self, topics: &[S]) -> Result<Tail> {
        let all = self.topics_named(topics).await?;
        self.tail_of(all.iter().flat_map(|topic| topic.partition_names().iter().cloned()).collect()).await
    }

    /// The same of these partitions.
    async fn tail_of(&self, partitions: Vec<PartitionNames>) -> Result<Tail> {
        let partitions: Arc<[_]> = partitions.into();
        let (sender, heard) = queue();
        let keeper = TailSubscriber::begin(self.store().clone(), partitions.clone(), sender).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper.run());
        Ok(Tail { partitions, heard, ready: VecDeque::new(), _keeper: tasks })
    }
}

impl Tail {
    /// What comes next; none once a topic has another number of partitions. Nothing is lost if this is dropped.
    pub async fn next(&mut self) -> Option<TailItem> {
        loop {
            if let Some(one) = self.ready.pop_front() {
                return Some(one);
            }
            match self.heard.next().await? {
                QueueItem::Missed(missed) => return Some(TailItem::Missed(missed)),
                QueueItem::Told(place, message) => {
                    let Some(told) = TailBatch::decode(message) else { continue };
                    self.ready.extend(events(&self.partitions[place], told));
                }
            }
        }
    }
}

/// What one message tells.
fn events(at: &PartitionNames, told: TailBatch) -> impl Iterator<Item = TailItem> {
    let TailBatch { at: at_ms, left_out, entries } = told;
    let event = move |one| TailItem::Event(TailEvent::of(&at.topic, at.index, one, at_ms));
    let missed = (left_out > 0).then_some(TailItem::Missed(Missed::Counted { count: left_out }));
    entries.into_iter().map(event).chain(missed)
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail({})", counted(self.partitions.len() as u64, "partition"))
    }
}
