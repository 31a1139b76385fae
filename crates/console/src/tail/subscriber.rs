//! Keeps partitions heard: subscribes where they are held, says again and again that somebody looks on, and begins anew
//! when a line ends. What was heard and not asked for yet stands in a queue: it is bounded, and what finds no room is
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

/// So often partitions are told that somebody looks on ...
const WATCH_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// ... for so long.
const WATCH_TTL_MS: u64 = 20_000;
/// Partitions that are told at the same time.
const TOLD: usize = 250;
/// Waits between tries to subscribe, before jitter.
const MIN_RESUBSCRIBE_PAUSE: Duration = Duration::from_millis(50);
const MAX_RESUBSCRIBE_PAUSE: Duration = Duration::from_secs(5);
/// While some partitions are heard nowhere, they are looked for this often.
const ALERT: Duration = Duration::from_secs(1);

pub(super) struct TailSubscriber {
    store: Store,
    partitions: Arc<[PartitionNames]>,
    queue: TailSender,
    lines: Vec<(Address, TailConnection)>,
    /// One of the present lines has ended.
    ended: Arc<Notify>,
}

impl TailSubscriber {
    /// Once it is answered, all that starts and ends is heard, but of partitions whose server is away: that is said, and
    /// they are looked for.
    pub(super) async fn begin(
        store: Store,
        partitions: Arc<[PartitionNames]>,
        queue: TailSender,
    ) -> Result<Self> {
        let mut keeper = Self { store, partitions, queue, lines: Vec::new(), ended: Arc::default() };
        keeper.subscribe().await?;
        if !keeper.is_whole() {
            keeper.queue.mark_disconnected();
        }
        keeper.renew_watch().await?;
        Ok(keeper)
    }

    /// Until it is dropped, or a topic has another number of partitions.
    pub(super) async fn run(mut self) {
        loop {
            let is_whole = self.is_whole();
            tokio::select! {
                () = self.ended.notified() => self.begin_anew().await,
                () = self.moved() => self.begin_anew().await,
                () = tokio::time::sleep(ALERT), if !is_whole => self.subscribe_missing().await,
                () = tokio::time::sleep(WATCH_RENEWAL_INTERVAL), if is_whole => {}
            }
            match self.renew_watch().await {
                Err(error) if error.kind() == ErrorKind::Partitions => return,
                Err(error) => debug!(%error, "partitions were not told that somebody looks on"),
                Ok(()) => {}
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.heard().count() == self.partitions.len()
    }

    /// The places of the partitions that are heard.
    fn heard(&self) -> impl Iterator<Item = usize> {
        self.lines.iter().flat_map(|(_, line)| line.heard.iter().copied())
    }

    /// Returns when a partition is held by another than the one that is heard.
    async fn moved(&self) {
        let heard = self
            .lines
            .iter()
            .flat_map(|(at, line)| line.heard.iter().map(move |place| (at.endpoint(), *place)));
        let held: Vec<_> = heard.map(|(at, place)| (at, self.partitions[place].slot)).collect();
        self.store.topology().wait_until_moved(&held).await;
    }

    /// All lines anew, until there are some.
    async fn begin_anew(&mut self) {
        self.queue.mark_disconnected();
        let mut wait = MIN_RESUBSCRIBE_PAUSE;
        loop {
            tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
            match self.subscribe().await {
                Ok(()) => return,
                Err(error) => debug!(%error, "nobody can look on"),
            }
            wait = (wait * 2).min(MAX_RESUBSCRIBE_PAUSE);
        }
    }

    /// All that can be heard; an error where that is nothing.
    async fn subscribe(&mut self) -> Result<()> {
        self.lines.clear();
        self.ended = Arc::default();
        let all: Vec<_> = (0..self.partitions.len()).collect();
        self.push(&all).await
    }

    /// Subscribes to those that nobody could be asked for before, and leaves the others' lines alone.
    async fn subscribe_missing(&mut self) {
        let heard: BTreeSet<_> = self.heard().collect();
        let missing: Vec<_> = (0..self.partitions.len()).filter(|place| !heard.contains(place)).collect();
        match self.push(&missing).await {
            // What they have done since they were lost was not heard.
            Ok(()) if self.heard().count() > heard.len() => self.queue.mark_disconnected(),
            Ok(()) => {}
            Err(error) => debug!(%error, "some partitions are not heard yet"),
        }
    }

    /// Subscribes to these where they are held. A server that is away does not keep the others from being heard: it is an
    /// error only if there is no other.
    async fn push(&mut self, places: &[usize]) -> Result<()> {
        let holders = self.holders(places).await?;
        let listening = holders.into_iter().map(|(address, places)| self.listen(address, places));
        let (mut refused, before) = (None, self.lines.len());
        for line in join_all(listening).await {
            match line {
                // Of a slot that moves, nothing is heard at either place for a moment.
                Ok((_, line)) if line.heard.is_empty() => {}
                Ok(line) => self.lines.push(line),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if self.lines.len() == before => Err(error),
            _ => Ok(()),
        }
    }

    fn listen(
        &self,
        address: Address,
        places: Vec<usize>,
    ) -> impl Future<Output = Result<(Address, TailConnection)>> + use<> {
        let (queue, ended) = (self.queue.clone(), self.ended.clone());
        let partitions = self.partitions.clone();
        let hear = move |heard| match heard {
            TailMessage::Message(place, message) => queue.push(place, message),
            TailMessage::Ended => ended.notify_one(),
        };
        async move {
            let line = TailConnection::open(&address, &partitions, &places, hear).await?;
            Ok((address, line))
        }
    }

    /// Where these partitions are held; those that nobody has are left out.
    async fn holders(&self, places: &[usize]) -> Result<Vec<(Address, Vec<usize>)>> {
        let slots: Vec<_> = places.iter().map(|place| self.partitions[*place].slot).collect();
        let holders = self.store.topology().holders(&slots).await?;
        let places_of = |held: Vec<usize>| held.into_iter().map(|index| places[index]).collect();
        Ok(holders.into_iter().map(|(address, held)| (address, places_of(held))).collect())
    }

    /// Tells all partitions that somebody looks on; an error where none would hear of it, or where one is of another
    /// number than it was. One that is not there is told once it is.
    async fn renew_watch(&self) -> Result<()> {
        let (mut refused, mut told) = (None, false);
        for some in self.partitions.chunks(TOLD) {
            let asked = some.iter().map(|at| self.store.renew_watch(at, WATCH_TTL_MS));
            for answer in join_all(asked).await {
                match answer {
                    Err(error) if error.kind() == ErrorKind::Partitions => return Err(error),
                    Err(error) if error.code() != Some("NOMETA") => refused = Some(error),
                    _ => told = true,
                }
            }
        }
        match refused {
            Some(error) if !told => Err(error),
            _ => Ok(()),
        }
    }
}

/// Messages that may wait, of 64 KiB and one key at most.
const MAX_QUEUED_MESSAGES: usize = 1024;

/// A message of a partition, by its place in the list.
pub(super) type PartitionMessage = (usize, Bytes);

/// Where messages come in.
#[derive(Clone)]
pub(super) struct TailSender {
    messages: mpsc::Sender<PartitionMessage>,
    lost: Arc<MissedCounter>,
}

/// Where they are taken out.
pub(super) struct TailReceiver {
    messages: mpsc::Receiver<PartitionMessage>,
    lost: Arc<MissedCounter>,
}

/// What was not heard, and not said yet.
#[derive(Default)]
struct MissedCounter {
    count: AtomicU64,
    line: AtomicBool,
    news: Notify,
}

/// What comes next.
pub(super) enum QueueItem {
    Told(usize, Bytes),
    Missed(Missed),
}

pub(super) fn queue() -> (TailSender, TailReceiver) {
    let (messages, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let lost = Arc::new(MissedCounter::default());
    (TailSender { messages, lost: lost.clone() }, TailReceiver { messages: receiver, lost })
}

impl TailSender {
    /// Waits for nobody: it is called where a connection is read.
    pub(super) fn push(&self, partition: usize, message: Bytes) {
        let Err(mpsc::error::TrySendError::Full((_, message))) = self.messages.try_send((partition, message))
        else {
            return;
        };
        let told = TailBatch::decode(message).map_or(0, |told| told.left_out + told.entries.len() as u64);
        self.lost.count.fetch_add(told, Ordering::Relaxed);
        self.lost.news.notify_one();
    }

    /// Something may have been missed.
    pub(super) fn mark_disconnected(&self) {
        self.lost.line.store(true, Ordering::Relaxed);
        self.lost.news.notify_one();
    }
}

impl TailReceiver {
    /// The next message, or that some are missing; none at the end.
    pub(super) async fn next(&mut self) -> Option<QueueItem> {
        loop {
            if let Some(missed) = self.lost.take() {
                return Some(QueueItem::Missed(missed));
            }
            tokio::select! {
                biased;
                () = self.lost.news.notified() => {}
                heard = self.messages.recv() => return heard.map(|(at, message)| QueueItem::Told(at, message)),
            }
        }
    }
}

impl MissedCounter {
    fn take(&self) -> Option<Missed> {
        if self.line.swap(false, Ordering::Relaxed) {
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
    async fn what_finds_no_room_is_counted_and_said() {
        let (sender, mut receiver) = queue();
        // Nothing in it, and that so many were left out.
        let message = Bytes::from([&b"t"[..], &[0; 8], &7_u32.to_be_bytes()].concat());
        for _ in 0..MAX_QUEUED_MESSAGES + 2 {
            sender.push(0, message.clone());
        }
        let Some(QueueItem::Missed(missed)) = receiver.next().await else { panic!("some are missing") };
        assert_eq!(missed, Missed::Counted { count: 14 });
        for _ in 0..MAX_QUEUED_MESSAGES {
            assert!(matches!(receiver.next().await, Some(QueueItem::Told(0, _))));
        }
        sender.mark_disconnected();
        assert!(matches!(receiver.next().await, Some(QueueItem::Missed(Missed::Disconnected))));
        drop(sender);
        assert!(receiver.next().await.is_none());
    }
}
