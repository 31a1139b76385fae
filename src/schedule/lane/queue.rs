//! What waits to be sent, in the order in which it was asked.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::ask::{Ask, Waiting};
use super::batch::Batch;
use super::{BATCH, BATCH_BYTES};

/// Asks that nobody waits for any more are cleared away when so many wait, and twice as many as the last time.
const MANY: usize = 1000;
/// So long a call that goes alone keeps others of its key from overtaking it. It is in the hands of its caller, who
/// may have stopped polling: so nobody waits for it any longer.
const KEPT: Duration = Duration::from_secs(1);
/// The fewest timers for which a call is made while another is on its way.
pub(super) const HALF: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Somebody has sent a call alone, and waits for its answer.
    pub(super) alone: Option<Alone>,
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

/// A call that goes alone.
#[derive(Debug)]
pub(super) struct Alone {
    key: Bytes,
    /// So long others of its key wait for it.
    until: Instant,
}

impl Alone {
    pub(super) fn with(ask: &Ask) -> Option<Self> {
        Some(Self { key: ask.keys().next()?.clone(), until: Instant::now() + KEPT })
    }
}

impl Queue {
    pub(super) fn push(&mut self, waiting: Waiting) {
        if self.waiting.len() >= MANY.max(2 * self.left) || self.bytes > 64 * BATCH_BYTES {
            self.clear_forsaken();
        }
        self.count += waiting.ask.len();
        self.bytes += waiting.ask.bytes();
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

    /// When to look again, though nothing has happened: when the patience of the first ends, who has the least, as
    /// all have the same, or when nobody waits for the call that goes alone any longer.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        let first = self.waiting.front()?.until;
        let alone = self.alone.as_ref().map(|alone| alone.until).filter(|until| *until > now);
        Some(alone.map_or(first, |alone| alone.min(first)))
    }

    /// Takes out the first if its time is over.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Waiting> {
        self.waiting.front().filter(|waiting| waiting.until <= now)?;
        self.pop()
    }

    /// Takes the first asks, up to so many timers and to the bounds of a call, and adds their keys to those on their
    /// way. Who names a key that is on its way stays, and so does who names one of theirs: of what concerns one key
    /// the later comes later, whatever it is.
    pub(super) fn take(&mut self, most: usize, now: Instant, on_their_way: &mut HashSet<Bytes>) -> Batch {
        let (mut batch, mut stays, mut kept) = (Batch::default(), VecDeque::new(), HashSet::new());
        kept.extend(self.alone.as_ref().filter(|alone| alone.until > now).map(|alone| alone.key.clone()));
        let (mut count, mut bytes) = (0, 0);
        while let Some(first) = self.waiting.front() {
            if first.is_forsaken() {
                self.pop();
                continue;
            }
            let ask = &first.ask;
            count += ask.len();
            bytes += ask.bytes();
            if count > most.max(ask.len()) || bytes > BATCH_BYTES.max(ask.bytes()) {
                break;
            }
            let waits = ask.keys().any(|key| on_their_way.contains(key) || kept.contains(key));
            if waits {
                kept.extend(ask.keys().cloned());
            } else {
                on_their_way.extend(ask.keys().cloned());
            }
            match self.waiting.pop_front() {
                Some(first) if waits => stays.push_back(first),
                Some(first) => {
                    self.leave(&first.ask);
                    batch.add(first);
                }
                None => break,
            }
        }
        while let Some(last) = stays.pop_back() {
            self.waiting.push_front(last);
        }
        batch
    }

    /// Takes out everything that waits, as nobody drives it any more.
    pub(super) fn abandon(&mut self) -> VecDeque<Waiting> {
        (self.driven, self.count, self.bytes) = (false, 0, 0);
        std::mem::take(&mut self.waiting)
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.leave(&waiting.ask);
        Some(waiting)
    }

    fn leave(&mut self, ask: &Ask) {
        self.count -= ask.len();
        self.bytes -= ask.bytes();
    }

    fn clear_forsaken(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_forsaken());
        self.count = self.waiting.iter().map(|waiting| waiting.ask.len()).sum();
        self.bytes = self.waiting.iter().map(|waiting| waiting.ask.bytes()).sum();
        self.left = self.waiting.len();
    }
}
