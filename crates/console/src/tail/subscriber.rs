//! The subscription of a live tail. It subscribes on the servers that hold the partitions, renews the watch on each
//! partition, and subscribes again when a connection ends. Messages wait in a bounded queue; those that find it full are
//! counted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::{Notify, mpsc};

use crate::connection::Address;
use crate::error::{ErrorKind, Result};
use crate::inside::receiving::{TailConnection, TailMessage};
use crate::log::debug;
use crate::tail::Missed;
use crate::wire::TailBatch;
use crate::wire::{PartitionNames, Store};

const WATCH_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
const WATCH_TTL_MS: u64 = 20_000;
const RENEWALS_PER_REQUEST: usize = 250;
/// The pauses between attempts to subscribe, before jitter.
const MIN_RESUBSCRIBE_PAUSE: Duration = Duration::from_millis(50);
const MAX_RESUBSCRIBE_PAUSE: Duration = Duration::from_secs(5);
/// The pause between searches for the servers of partitions without a subscription.
const MISSING_RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct TailSubscriber {
    store: Store,
    partitions: Arc<[PartitionNames]>,
    queue: TailSender,
    connections: Vec<(Address, TailConnection)>,
    /// Notified when one of the connections ends.
    ended: Arc<Notify>,
}

impl TailSubscriber {
    /// Subscribes to all partitions and starts their watches. If the server of a partition is unavailable, the queue reports
    /// missing events, and [`run`](Self::run) subscribes later.
    pub(super) async fn begin(
        store: Store,
        partitions: Arc<[PartitionNames]>,
        queue: TailSender,
    ) -> Result<Self> {
        let mut subscriber =
            Self { store, partitions, queue, connections: Vec::new(), ended: Arc::default() };
        subscriber.subscribe().await?;
        if !subscriber.is_complete() {
            subscriber.queue.mark_disconnected();
        }
        subscriber.renew_watch().await?;
        Ok(subscriber)
    }

    /// Keeps the subscriptions and watches until a topic gets another number of partitions.
    pub(super) async fn run(mut self) {
        loop {
            let is_complete = self.is_complete();
            tokio::select! {
                () = self.ended.notified() => self.resubscribe().await,
                () = self.moved() => self.resubscribe().await,
                () = tokio::time::sleep(MISSING_RETRY_INTERVAL), if !is_complete => self.subscribe_missing().await,
                () = tokio::time::sleep(WATCH_RENEWAL_INTERVAL), if is_complete => {}
            }
            match self.renew_watch().await {
                Err(error) if error.kind() == ErrorKind::Partitions => return,
                Err(error) => debug!(%error, "cannot renew the watch on partitions"),
                Ok(()) => {}
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.subscribed().count() == self.partitions.len()
    }

    /// Returns the indexes of the partitions that have a subscription.
    fn subscribed(&self) -> impl Iterator<Item = usize> {
        self.connections.iter().flat_map(|(_, connection)| connection.subscribed.iter().copied())
    }

    /// Waits until a partition is held by another server than the one with its subscription.
    async fn moved(&self) {
        let subscribed = self.connections.iter().flat_map(|(at, connection)| {
            connection.subscribed.iter().map(move |place| (at.endpoint(), *place))
        });
        let held: Vec<_> = subscribed.map(|(at, place)| (at, self.partitions[place].slot)).collect();
        self.store.topology().wait_until_moved(&held).await;
    }

    /// Closes all connections and opens new ones, until at least one partition has a subscription.
    async fn resubscribe(&mut self) {
        self.queue.mark_disconnected();
        let mut wait = MIN_RESUBSCRIBE_PAUSE;
        loop {
            tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
            match self.subscribe().await {
                Ok(()) => return,
                Err(error) => debug!(%error, "cannot subscribe to partitions; trying again"),
            }
            wait = (wait * 2).min(MAX_RESUBSCRIBE_PAUSE);
        }
    }

    /// Closes all connections and subscribes to all partitions. Returns an error only if no subscription succeeds.
    async fn subscribe(&mut self) -> Result<()> {
        self.connections.clear();
        self.ended = Arc::default();
        let all: Vec<_> = (0..self.partitions.len()).collect();
        self.subscribe_to(&all).await
    }

    /// Subscribes to the partitions without a subscription. The other connections stay open.
    async fn subscribe_missing(&mut self) {
        let subscribed: BTreeSet<_> = self.subscribed().collect();
        let missing: Vec<_> =
            (0..self.partitions.len()).filter(|place| !subscribed.contains(place)).collect();
        match self.subscribe_to(&missing).await {
            // Events between the loss of a server and the new subscription are missing.
            Ok(()) if self.subscribed().count() > subscribed.len() => self.queue.mark_disconnected(),
            Ok(()) => {}
            Err(error) => debug!(%error, "cannot subscribe to some partitions yet; trying again"),
        }
    }

    /// Subscribes to partitions on the servers that hold them. An unavailable server is an error only if no other server
    /// accepts a subscription.
    async fn subscribe_to(&mut self, places: &[usize]) -> Result<()> {
        let holders = self.holders(places).await?;
        let opening = holders.into_iter().map(|(address, places)| self.open(address, places));
        let (mut refused, before) = (None, self.connections.len());
        for opened in join_all(opening).await {
            match opened {
                // While a slot moves, neither server accepts its subscription for a moment.
                Ok((_, connection)) if connection.subscribed.is_empty() => {}
                Ok(opened) => self.connections.push(opened),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if self.connections.len() == before => Err(error),
            _ => Ok(()),
        }
    }

    fn open(
        &self,
        address: Address,
        places: Vec<usize>,
    ) -> impl Future<Output = Result<(Address, TailConnection)>> + use<> {
        let (queue, ended) = (self.queue.clone(), self.ended.clone());
        let partitions = self.partitions.clone();
        let receive = move |message| match message {
            TailMessage::Message(place, message) => queue.push(place, message),
            TailMessage::Ended => ended.notify_one(),
        };
        async move {
            let connection = TailConnection::open(&address, &partitions, &places, receive).await?;
            Ok((address, connection))
        }
    }

    /// Returns the servers that hold these partitions. Partitions without a server are left out.
    async fn holders(&self, places: &[usize]) -> Result<Vec<(Address, Vec<usize>)>> {
        let slots: Vec<_> = places.iter().map(|place| self.partitions[*place].slot).collect();
        let holders = self.store.topology().holders(&slots).await?;
        let places_of = |held: Vec<usize>| held.into_iter().map(|index| places[index]).collect();
        Ok(holders.into_iter().map(|(address, held)| (address, places_of(held))).collect())
    }

    /// Renews the watch on all partitions, so that they continue to publish events. A partition that does not exist yet is
    /// no error; a later renewal reaches it.
    ///
    /// Returns an error if no partition accepts the renewal, or if a topic has another number of partitions.
    async fn renew_watch(&self) -> Result<()> {
        let (mut refused, mut renewed) = (None, false);
        for some in self.partitions.chunks(RENEWALS_PER_REQUEST) {
            let renewals = some.iter().map(|at| self.store.renew_watch(at, WATCH_TTL_MS));
            for answer in join_all(renewals).await {
                match answer {
                    Err(error) if error.kind() == ErrorKind::Partitions => return Err(error),
                    Err(error) if error.code() != Some("NOMETA") => refused = Some(error),
                    _ => renewed = true,
                }
            }
        }
        match refused {
            Some(error) if !renewed => Err(error),
            _ => Ok(()),
        }
    }
}

/// How many messages can wait in the queue. A message has at most 64 KiB and one key.
const MAX_QUEUED_MESSAGES: usize = 1024;

/// The index of a partition, and a message from it.
pub(super) type PartitionMessage = (usize, Bytes);

/// The sending half of the queue.
#[derive(Clone)]
pub(super) struct TailSender {
    messages: mpsc::Sender<PartitionMessage>,
    lost: Arc<MissedCounter>,
}

/// The receiving half of the queue.
pub(super) struct TailReceiver {
    messages: mpsc::Receiver<PartitionMessage>,
    lost: Arc<MissedCounter>,
}

/// Missing events that the tail has not reported yet.
#[derive(Default)]
struct MissedCounter {
    count: AtomicU64,
    disconnected: AtomicBool,
    changed: Notify,
}

pub(super) enum QueueItem {
    Message(usize, Bytes),
    Missed(Missed),
}

pub(super) fn queue() -> (TailSender, TailReceiver) {
    let (messages, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let lost = Arc::new(MissedCounter::default());
    (TailSender { messages, lost: lost.clone() }, TailReceiver { messages: receiver, lost })
}

impl TailSender {
    /// Adds a message, or counts its events as missing if the queue is full. It never waits, because it runs in the task
    /// that reads the connection.
    pub(super) fn push(&self, partition: usize, message: Bytes) {
        let Err(mpsc::error::TrySendError::Full((_, message))) = self.messages.try_send((partition, message))
        else {
            return;
        };
        let events =
            TailBatch::decode(message).map_or(0, |batch| batch.left_out + batch.entries.len() as u64);
        self.lost.count.fetch_add(events, Ordering::Relaxed);
        self.lost.changed.notify_one();
    }

    /// Records that events may be missing.
    pub(super) fn mark_disconnected(&self) {
        self.lost.disconnected.store(true, Ordering::Relaxed);
        self.lost.changed.notify_one();
    }
}

impl TailReceiver {
    /// Returns the next message or report of missing events. Returns `None` when the subscriber has ended.
    pub(super) async fn next(&mut self) -> Option<QueueItem> {
        loop {
            if let Some(missed) = self.lost.take() {
                return Some(QueueItem::Missed(missed));
            }
            tokio::select! {
                biased;
                () = self.lost.changed.notified() => {}
                received = self.messages.recv() => {
                    return received.map(|(at, message)| QueueItem::Message(at, message));
                }
            }
        }
    }
}

impl MissedCounter {
    fn take(&self) -> Option<Missed> {
        if self.disconnected.swap(false, Ordering::Relaxed) {
            return Some(Missed::Disconnected);
        }
        match self.count.swap(0, Ordering::Relaxed) {
            0 => None,
            count => Some(Missed::Counted { count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_beyond_the_queue_are_counted_and_reported() {
        let (sender, mut receiver) = queue();
        // A message without entries that reports seven left-out events.
        let message = Bytes::from([&b"t"[..], &[0; 8], &7_u32.to_be_bytes()].concat());
        for _ in 0..MAX_QUEUED_MESSAGES + 2 {
            sender.push(0, message.clone());
        }
        let Some(QueueItem::Missed(missed)) = receiver.next().await else { panic!("some are missing") };
        assert_eq!(missed, Missed::Counted { count: 14 });
        for _ in 0..MAX_QUEUED_MESSAGES {
            assert!(matches!(receiver.next().await, Some(QueueItem::Message(0, _))));
        }
        sender.mark_disconnected();
        assert!(matches!(receiver.next().await, Some(QueueItem::Missed(Missed::Disconnected))));
        drop(sender);
        assert!(receiver.next().await.is_none());
    }
}
