//! What is bounded by the bytes that it takes, for what comes faster than it can be dealt with: a queue, and any other
//! collection of keys.
//!
//! Most of what waits in a flood are keys: in the queue they lie one behind the other in blocks, with six bytes beside each.

use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::lock::lock;

/// A collection of keys that is full at so many bytes. Whoever puts a key into it takes room first, and gives it back.
#[derive(Debug)]
pub(crate) struct ByteBounded<T> {
    kept: T,
    bytes: usize,
    limit: usize,
    /// What a key takes besides its own bytes, about.
    each: usize,
}

impl<T: Default> ByteBounded<T> {
    pub(crate) fn new(limit: usize, each: usize) -> Self {
        Self { kept: T::default(), bytes: 0, limit, each }
    }

    /// Takes room for a key; false where there is none.
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

    /// All of it, and all room is free.
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

/// Keys begin a new block beyond this many bytes.
const BLOCK: usize = 64 << 10;
/// A key's tag and its length.
const HEAD: usize = 6;

/// What can wait: much of it is a key and a number that says what of it.
pub(crate) trait Item: Sized {
    /// As a number and a key, or as it is.
    fn split(self) -> Result<(u32, Bytes), Self>;
    /// What was split.
    fn join(tag: u32, key: Bytes) -> Self;
    /// What it takes, if it is not split.
    fn size(&self) -> usize;
}

/// A queue of so many bytes.
pub(crate) fn backlog<T: Item>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared { queue: Mutex::default(), news: Notify::new() });
    let (alive, senders) = mpsc::channel(1);
    (Sender { shared: shared.clone(), limit, alive }, Receiver { shared, senders })
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    news: Notify,
}

struct Queue<T> {
    runs: VecDeque<Run<T>>,
    bytes: usize,
}

/// What waits in a row.
enum Run<T> {
    /// Keys, and where the first stands that was not taken yet.
    Keys(Vec<u8>, usize),
    Other(T, usize),
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { runs: VecDeque::new(), bytes: 0 }
    }
}

/// The end at which items come in.
pub(crate) struct Sender<T> {
    shared: Arc<Shared<T>>,
    limit: usize,
    alive: mpsc::Sender<()>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), limit: self.limit, alive: self.alive.clone() }
    }
}

impl<T: Item> Sender<T> {
    /// Puts it behind all others, if there is room; whether there was.
    pub(crate) fn push(&self, item: T) -> bool {
        self.push_below(self.limit, item)
    }

    /// The same, after there was none: not before half of it is free again, or each key that is taken would let in
    /// one, and each of these ends a gap and begins the next.
    pub(crate) fn push_again(&self, item: T) -> bool {
        self.push_below(self.limit / 2, item)
    }

    /// Of what has its own bound.
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

    /// Waits until nobody takes anything any more.
    pub(crate) async fn closed(&self) {
        self.alive.closed().await;
    }
}

impl<T: Item> Queue<T> {
    fn push(&mut self, limit: usize, item: T) -> bool {
        match item.split() {
            Ok((tag, key)) => self.push_key(limit, tag, &key),
            Err(item) => {
                let size = item.size();
                let fits = self.bytes + size <= limit;
                if fits {
                    self.bytes += size;
                    self.runs.push_back(Run::Other(item, size));
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
        let full = |run: &Run<T>| !matches!(run, Run::Keys(block, _) if block.len() + size <= BLOCK);
        if self.runs.back().is_none_or(full) {
            self.runs.push_back(Run::Keys(Vec::new(), 0));
        }
        if let Some(Run::Keys(block, _)) = self.runs.back_mut() {
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
        if let Run::Keys(block, at) = self.runs.front_mut()? {
            let (head, rest) = block[*at..].split_at(HEAD);
            let tag = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let length = u16::from_le_bytes([head[4], head[5]]).into();
            // Not a part of the block: who keeps it would keep them all.
            let key = Bytes::copy_from_slice(&rest[..length]);
            *at += HEAD + length;
            if *at == block.len() {
                self.bytes -= block.capacity();
                self.runs.pop_front();
            }
            return Some(T::join(tag, key));
        }
        match self.runs.pop_front()? {
            Run::Other(item, size) => {
                self.bytes -= size;
                Some(item)
            }
            Run::Keys(..) => None,
        }
    }
}

/// The end at which they are taken, in their order.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    senders: mpsc::Receiver<()>,
}

impl<T: Item> Receiver<T> {
    /// The next; none where nobody has any more. Nothing is lost if this is dropped.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        tokio::task::consume_budget().await; // there may be more at once than others should wait for
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

    /// One key between two others must not cost a block.
    #[test]
    fn what_alternates_is_counted_as_what_it_takes() {
        let (sender, receiver) = backlog(1 << 20);
        for number in 0..1000 {
            assert!(sender.push(key(number)) && sender.push(Thing::Large(10)));
        }
        assert!(lock(&receiver.shared.queue).bytes < 1000 * 100);
    }
}
