//! What was heard and not asked for yet: bounded, and what finds no room is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::tail::event::Missed;
use crate::wire::calls::tail::Told;

/// Messages that may wait, of 64 KiB and one key at most.
const QUEUE: usize = 1024;

/// A message of a partition, by its place in the list.
pub(super) type Message = (usize, Bytes);

/// Where messages come in.
#[derive(Clone)]
pub(super) struct Sender {
    messages: mpsc::Sender<Message>,
    lost: Arc<Lost>,
}

/// Where they are taken out.
pub(super) struct Receiver {
    messages: mpsc::Receiver<Message>,
    lost: Arc<Lost>,
}

/// What was not heard, and not said yet.
#[derive(Default)]
struct Lost {
    count: AtomicU64,
    line: AtomicBool,
    news: Notify,
}

/// What comes next.
pub(super) enum Next {
    Told(usize, Bytes),
    Missed(Missed),
}

pub(super) fn queue() -> (Sender, Receiver) {
    let (messages, receiver) = mpsc::channel(QUEUE);
    let lost = Arc::new(Lost::default());
    (Sender { messages, lost: lost.clone() }, Receiver { messages: receiver, lost })
}

impl Sender {
    /// Waits for nobody: it is called where a connection is read.
    pub(super) fn hear(&self, partition: usize, message: Bytes) {
        let Err(mpsc::error::TrySendError::Full((_, message))) = self.messages.try_send((partition, message))
        else {
            return;
        };
        let told = Told::decode(message).map_or(0, |told| told.left_out + told.entries.len() as u64);
        self.lost.count.fetch_add(told, Ordering::Relaxed);
        self.lost.news.notify_one();
    }

    /// Something may have been missed.
    pub(super) fn lose_line(&self) {
        self.lost.line.store(true, Ordering::Relaxed);
        self.lost.news.notify_one();
    }
}

impl Receiver {
    /// The next message, or that some are missing; none at the end.
    pub(super) async fn next(&mut self) -> Option<Next> {
        loop {
            if let Some(missed) = self.lost.take() {
                return Some(Next::Missed(missed));
            }
            tokio::select! {
                biased;
                () = self.lost.news.notified() => {}
                heard = self.messages.recv() => return heard.map(|(at, message)| Next::Told(at, message)),
            }
        }
    }
}

impl Lost {
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
        for _ in 0..QUEUE + 2 {
            sender.hear(0, message.clone());
        }
        let Some(Next::Missed(missed)) = receiver.next().await else { panic!("some are missing") };
        assert_eq!(missed, Missed::Counted { count: 14 });
        for _ in 0..QUEUE {
            assert!(matches!(receiver.next().await, Some(Next::Told(0, _))));
        }
        sender.lose_line();
        assert!(matches!(receiver.next().await, Some(Next::Missed(Missed::Disconnected))));
        drop(sender);
        assert!(receiver.next().await.is_none());
    }
}
