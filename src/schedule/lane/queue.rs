//! What waits to be sent, in the order in which it was asked.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use super::ask::Waiting;
use super::batch::Batch;
use super::{BATCH, BATCH_BYTES};

/// Asks that nobody waits for any more are cleared away when so many wait, and twice as many as the last time.
const MANY: usize = 1000;
/// The fewest timers for which a call is made while another is on its way.
pub(super) const HALF: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Somebody has sent a call alone, and waits for its answer.
    pub(super) alone: bool,
    /// There is a driver.
    pub(super) driven: bool,
    waiting: VecDeque<Waiting>,
    /// Timers that are asked for, and bytes of their keys and payloads.
    count: usize,
    bytes: usize,
    /// How many asks were left when it was last cleared.
    left: usize,
    /// How many timers are worth a call of their own beside those that are on their way.
    pub(super) worth: usize,
}

impl Queue {
    pub(super) fn push(&mut self, waiting: Waiting) {
        if self.waiting.len() >= MANY.max(2 * self.left) || self.bytes > 64 * BATCH_BYTES {
            self.clear_forsaken();
        }
        self.count += waiting.ask().len();
        self.bytes += waiting.ask().bytes();
        self.waiting.push_back(waiting);
    }

    /// Whether enough waits for a call beside those that are on their way.
    pub(super) fn is_worth_a_call(&self) -> bool {
        self.count >= self.worth.min(BATCH) || self.bytes >= BATCH_BYTES
    }

    /// How many timers are to go now, of those that wait.
    pub(super) fn share(&self, alone: bool) -> usize {
        // In two halves, so that the second is put together and sent while the first is executed.
        if alone && self.count >= 2 * HALF { self.count.div_ceil(2).min(BATCH) } else { BATCH }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the patience of the first ends, who has the least: all have the same.
    pub(super) fn first_until(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.until)
    }

    /// Takes out the first if its time is over.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Waiting> {
        self.first_until().filter(|until| *until <= now)?;
        self.pop()
    }

    /// Takes the first asks, up to so many timers, to the bounds of a call and to the first whose key is on its way
    /// already, and adds their keys to those. So of what concerns one key the later comes later, whatever it is.
    pub(super) fn take(&mut self, most: usize, on_their_way: &mut HashSet<Bytes>) -> Batch {
        let mut batch = Batch::default();
        let (mut count, mut bytes) = (0, 0);
        while let Some(first) = self.waiting.front() {
            if first.is_forsaken() {
                self.pop();
                continue;
            }
            let ask = first.ask();
            count += ask.len();
            bytes += ask.bytes();
            let fits = batch.is_empty() || count <= most && bytes <= BATCH_BYTES;
            if !fits || ask.keys().any(|key| on_their_way.contains(key)) {
                break;
            }
            on_their_way.extend(ask.keys().cloned());
            if let Some(first) = self.pop() {
                batch.add(first);
            }
        }
        batch
    }

    /// Everything that waits.
    pub(super) fn take_all(&mut self) -> VecDeque<Waiting> {
        (self.count, self.bytes) = (0, 0);
        std::mem::take(&mut self.waiting)
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.count -= waiting.ask().len();
        self.bytes -= waiting.ask().bytes();
        Some(waiting)
    }

    fn clear_forsaken(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_forsaken());
        self.count = self.waiting.iter().map(|waiting| waiting.ask().len()).sum();
        self.bytes = self.waiting.iter().map(|waiting| waiting.ask().bytes()).sum();
        self.left = self.waiting.len();
    }
}
