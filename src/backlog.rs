//! A queue and a collection of keys whose size is bounded in bytes.
//!
//! They buffer events that arrive faster than they are processed. Most items in a flood are keys, so the queue packs
//! keys into blocks, with an overhead of six bytes for each key.

use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::lock::lock;

/// A collection of keys with a limit in bytes. The caller reserves room before it adds a key, and frees it after it
/// removes the key.
#[derive(Debug)]
pub(crate) struct ByteBounded<T> {
    kept: T,
    bytes: usize,
    limit: usize,
    /// The approximate overhead of a key in bytes.
    each: usize,
}

impl<T: Default> ByteBounded<T> {
    pub(crate) fn new(limit: usize, each: usize) -> Self {
        Self { kept: T::default(), bytes: 0, limit, each }
    }

    /// Reserves room for a key, or returns `false` if it does not fit.
    pub(crate) fn take_room(&mut self, key: &[u8]) -> bool {
        let bytes = self.bytes + key.len() + self.each;
        let fits = bytes <= self.limit;
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    pub(crate) fn give_room(&mut self, key: &[u8]) {
        self.bytes -= key.len() + self.each;
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the collection and leaves an empty one.
    pub(crate) fn take_all(&mut self) -> T {
        self.bytes = 0;
        mem::take(&mut self.kept)
    }
}

impl<T> Deref for ByteBounded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.kept
    }
}

impl<T> DerefMut for ByteBounded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.kept
    }
}

/// The capacity of a block of keys in bytes. A longer key has its own block.
const BLOCK: usize = 64 << 10;
/// Bytes of a key's tag and length.
const HEAD: usize = 6;

/// An item of the queue. Most items consist of a key and a number.
pub(crate) trait Item: Sized {
    /// Splits the item into a number and a key, or returns it unchanged.
    fn split(self) -> Result<(u32, Bytes), Self>;
    /// Restores an item from its number and key.
    fn join(tag: u32, key: Bytes) -> Self;
    /// Returns the bytes that an item takes if it is not split.
    fn size(&self) -> usize;
}

/// Creates a queue with a limit in bytes.
pub(crate) fn backlog<T: Item>(limit: usize) -> (BacklogSender<T>, BacklogReceiver<T>) {
    let shared = Arc::new(SharedBacklog { queue: Mutex::default(), news: Notify::new() });
    let (alive, senders) = mpsc::channel(1);
    (BacklogSender { shared: shared.clone(), limit, alive }, BacklogReceiver { shared, senders })
}

struct SharedBacklog<T> {
    queue: Mutex<BacklogQueue<T>>,
    news: Notify,
}

struct BacklogQueue<T> {
    runs: VecDeque<BacklogRun<T>>,
    bytes: usize,
}

/// Consecutive items of one kind.
enum BacklogRun<T> {
    /// A block of keys, and the offset of the first key that was not taken yet.
    Keys(Vec<u8>, usize),
    Other(T, usize),
}

impl<T> Default for BacklogQueue<T> {
    fn default() -> Self {
        Self { runs: VecDeque::new(), bytes: 0 }
    }
}

/// The sending half of a queue.
pub(crate) struct BacklogSender<T> {
    shared: Arc<SharedBacklog<T>>,
    limit: usize,
    alive: mpsc::Sender<()>,
}

impl<T> Clone for BacklogSender<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), limit: self.limit, alive: self.alive.clone() }
    }
}

impl<T: Item> BacklogSender<T> {
    /// Appends an item. Returns `false` if the queue is full.
    pub(crate) fn push(&self, item: T) -> bool {
        self.push_below(self.limit, item)
    }

    /// Appends an item after [`push`](Self::push) has failed. It succeeds only if half of the limit is free.
    ///
    /// Otherwise each key that is taken would admit one key, and each of these would end a gap and begin another.
    pub(crate) fn push_again(&self, item: T) -> bool {
        self.push_below(self.limit / 2, item)
    }

    /// Appends an item without a limit. The caller bounds the number of these items.
    pub(crate) fn push_always(&self, item: T) {
        self.push_below(usize::MAX, item);
    }

    fn push_below(&self, limit: usize, item: T) -> bool {
        let pushed = lock(&self.shared.queue).push(limit, item);
        if pushed {
            self.shared.news.notify_one();
        }
        pushed
    }

    /// Waits until the receiver is dropped.
    pub(crate) async fn closed(&self) {
        self.alive.closed().await;
    }
}

impl<T: Item> BacklogQueue<T> {
    fn push(&mut self, limit: usize, item: T) -> bool {
        match item.split() {
            Ok((tag, key)) => self.push_key(limit, tag, &key),
            Err(item) => {
                let size = item.size();
                let fits = self.bytes + size <= limit;
                if fits {
                    self.bytes += size;
                    self.runs.push_back(BacklogRun::Other(item, size));
                }
                fits
            }
        }
    }

    fn push_key(&mut self, limit: usize, tag: u32, key: &[u8]) -> bool {
        let size = HEAD + key.len();
        if self.bytes + size > limit {
            return false;
        }
        let full =
            |run: &BacklogRun<T>| !matches!(run, BacklogRun::Keys(block, _) if block.len() + size <= BLOCK);
        if self.runs.back().is_none_or(full) {
            self.runs.push_back(BacklogRun::Keys(Vec::new(), 0));
        }
        if let Some(BacklogRun::Keys(block, _)) = self.runs.back_mut() {
            let before = block.capacity();
            if before - block.len() < size {
                block.reserve_exact(block.len().max(size).min(BLOCK.max(size) - block.len()));
            }
            block.extend_from_slice(&tag.to_le_bytes());
            let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
            block.extend_from_slice(&length.to_le_bytes());
            block.extend_from_slice(&key[..length.into()]);
            self.bytes += block.capacity() - before;
        }
        true
    }

    fn pop(&mut self) -> Option<T> {
        if let BacklogRun::Keys(block, at) = self.runs.front_mut()? {
            let (head, rest) = block[*at..].split_at(HEAD);
            let tag = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let length = u16::from_le_bytes([head[4], head[5]]).into();
            // A copy: a slice of the block would keep the whole block in memory.
            let key = Bytes::copy_from_slice(&rest[..length]);
            *at += HEAD + length;
            if *at == block.len() {
                self.bytes -= block.capacity();
                self.runs.pop_front();
            }
            return Some(T::join(tag, key));
        }
        match self.runs.pop_front()? {
            BacklogRun::Other(item, size) => {
                self.bytes -= size;
                Some(item)
            }
            BacklogRun::Keys(..) => None,
        }
    }
}

/// The receiving half of a queue.
pub(crate) struct BacklogReceiver<T> {
    shared: Arc<SharedBacklog<T>>,
    senders: mpsc::Receiver<()>,
}

impl<T: Item> BacklogReceiver<T> {
    /// Returns the next item, or `None` if the queue is empty and all senders are dropped. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        tokio::task::consume_budget().await; // a full queue must not starve other tasks
        loop {
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            tokio::select! {
                biased;
                () = self.shared.news.notified() => {}
                _ = self.senders.recv() => return self.try_recv(),
            }
        }
    }

    pub(crate) fn try_recv(&self) -> Option<T> {
        lock(&self.shared.queue).pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.shared.queue).runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Thing {
        Key(u32, Bytes),
        Large(usize),
    }

    impl Item for Thing {
        fn split(self) -> Result<(u32, Bytes), Self> {
            match self {
                Self::Key(tag, key) => Ok((tag, key)),
                other => Err(other),
            }
        }

        fn join(tag: u32, key: Bytes) -> Self {
            Self::Key(tag, key)
        }

        fn size(&self) -> usize {
            if let Self::Large(size) = self { *size } else { 0 }
        }
    }

    fn key(number: usize) -> Thing {
        Thing::Key(u32::try_from(number).expect("few"), format!("app:order:{number:09}").into())
    }

    #[tokio::test]
    async fn all_come_out_in_the_order_in_which_they_went_in() {
        let (sender, mut receiver) = backlog(64 << 20);
        for number in 0..10_000 {
            assert!(sender.push(key(number)));
            if number % 7 == 0 {
                assert!(sender.push(Thing::Large(number)));
            }
        }
        for number in 0..10_000 {
            assert_eq!(receiver.recv().await, Some(key(number)));
            if number % 7 == 0 {
                assert_eq!(receiver.recv().await, Some(Thing::Large(number)));
            }
        }
        assert_eq!(lock(&receiver.shared.queue).bytes, 0);
        drop(sender);
        assert_eq!(receiver.recv().await, None);
    }

    #[test]
    fn a_million_short_keys_take_no_more_than_their_bytes_and_six_each() {
        let (sender, receiver) = backlog(32 << 20);
        (0..1_000_000).for_each(|number| assert!(sender.push(key(number)), "{number}"));
        let bytes = lock(&receiver.shared.queue).bytes;
        assert!(bytes <= 1_000_000 * 27, "{bytes}");
    }

    #[test]
    fn it_is_full_by_bytes_and_goes_on_when_half_of_them_are_free() {
        let (sender, receiver) = backlog(1 << 20);
        let long = |tag| Thing::Key(tag, vec![b'x'; 4096].into());
        let held = (0..).take_while(|tag| sender.push(long(*tag))).count();
        assert!((230..=255).contains(&held), "{held} keys of 4 KiB in a MiB");
        assert!(lock(&receiver.shared.queue).bytes <= (1 << 20) + 2 * BLOCK);
        let mut freed = 0;
        while !sender.push_again(Thing::Large(1)) {
            assert!(receiver.try_recv().is_some());
            freed += 1;
        }
        assert!((held / 2 - 16..held / 2 + 32).contains(&freed), "{freed} of {held}");
        assert!(!sender.push(Thing::Large(1 << 20)));
        sender.push_always(Thing::Large(1 << 20));
    }

    /// A key between two other items must not take a whole block.
    #[test]
    fn what_alternates_is_counted_as_what_it_takes() {
        let (sender, receiver) = backlog(1 << 20);
        for number in 0..1000 {
            assert!(sender.push(key(number)) && sender.push(Thing::Large(10)));
        }
        assert!(lock(&receiver.shared.queue).bytes < 1000 * 100);
    }
}
