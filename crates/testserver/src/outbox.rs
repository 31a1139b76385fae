//! The output queue of a connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::carrier::{MessageCarrier, PubSubMessage};
use crate::reply::RedisReply;
use crate::resp::{Protocol, encode};

/// The server disconnects a client that leaves more bytes unread.
const MAX_UNREAD_BYTES: usize = 64 * 1024 * 1024;

/// The replies and pushes to one connection, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOutbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queue: Mutex<OutboxQueue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    bytes: BytesMut,
    /// The delayed output, by arrival time and then by order.
    delayed: BTreeMap<(Instant, i64), Delayed>,
    /// The number of entries that were ever delayed.
    count: i64,
    /// True if output waits behind delayed output.
    keeps_order: bool,
    closed: bool,
    /// True if the connection stays open and sends nothing.
    hung: bool,
}

#[derive(Debug)]
struct Delayed {
    bytes: Bytes,
    times: usize,
    /// `None` for a reply.
    carried: Option<(Arc<dyn MessageCarrier>, PubSubMessage)>,
}

impl ConnectionOutbox {
    pub(crate) fn send(&self, reply: &RedisReply, protocol: Protocol) {
        let mut queue = self.lock();
        if !queue.is_open() {
            return;
        }
        if queue.must_wait() {
            queue.delay(encoded(reply, protocol));
        } else {
            encode(reply, protocol, &mut queue.bytes);
        }
        self.sent(queue);
    }

    /// Sends encoded bytes.
    pub(crate) fn send_bytes(&self, bytes: Bytes) {
        let mut queue = self.lock();
        if !queue.is_open() {
            return;
        }
        if queue.must_wait() {
            queue.delay(bytes);
        } else {
            queue.bytes.extend_from_slice(&bytes);
        }
        self.sent(queue);
    }

    /// Sends a message through its carrier.
    pub(crate) fn carry(&self, carrier: &Arc<dyn MessageCarrier>, message: PubSubMessage, bytes: Bytes) {
        let passage = carrier.take(&message);
        let mut queue = self.lock();
        if !queue.is_open() || passage.times == 0 {
            return;
        }
        let now = Instant::now();
        // A delay beyond the range of `Instant` means never.
        let Some(at) = now.checked_add(passage.late) else { return };
        let delayed = Delayed { bytes, times: passage.times, carried: Some((carrier.clone(), message)) };
        if at <= now && !queue.must_wait() {
            delayed.arrive(&mut queue.bytes);
        } else {
            queue.insert(at, passage.overtakes, delayed);
        }
        self.sent(queue);
    }

    fn sent(&self, mut queue: MutexGuard<'_, OutboxQueue>) {
        queue.closed |= queue.bytes.len() > MAX_UNREAD_BYTES;
        drop(queue);
        self.0.changed.notify_one();
    }

    /// Lets nothing overtake delayed output from now on.
    pub(crate) fn keep_order(&self) {
        self.lock().keeps_order = true;
    }

    /// Closes the connection after the output so far.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_one();
    }

    /// Sends nothing from now on.
    pub(crate) fn hang(&self) {
        self.lock().hung = true;
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.lock().hung
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits for the next bytes to write. Returns `None` when the connection is to end.
    pub(crate) async fn next(&self) -> Option<Bytes> {
        loop {
            // Created before the queue is read, so that no change is missed.
            let changed = self.0.changed.notified();
            let (next, arrives) = self.take();
            if let Some(next) = next {
                return next;
            }
            match arrives {
                None => changed.await,
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    /// Returns the result of [`next`](Self::next) if it is known, and when delayed output arrives.
    fn take(&self) -> (Option<Option<Bytes>>, Option<Instant>) {
        let mut queue = self.lock();
        let arrives = queue.receive();
        if !queue.bytes.is_empty() {
            return (Some(Some(queue.bytes.split().freeze())), arrives);
        }
        (queue.closed.then_some(None), arrives)
    }

    fn lock(&self) -> MutexGuard<'_, OutboxQueue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutboxQueue {
    fn is_open(&self) -> bool {
        !self.closed && !self.hung
    }

    fn must_wait(&self) -> bool {
        self.keeps_order && !self.delayed.is_empty()
    }

    /// Queues a reply behind all delayed output.
    fn delay(&mut self, bytes: Bytes) {
        self.insert(Instant::now(), false, Delayed { bytes, times: 1, carried: None });
    }

    fn insert(&mut self, at: Instant, overtakes: bool, delayed: Delayed) {
        self.count += 1;
        let last = self.delayed.last_key_value().map(|((last, _), _)| *last);
        let at = last.filter(|_| self.keeps_order).map_or(at, |last| at.max(last));
        self.delayed.insert((at, if overtakes { -self.count } else { self.count }), delayed);
    }

    /// Moves delayed output that is due to the bytes, and returns when the next arrives.
    fn receive(&mut self) -> Option<Instant> {
        while let Some(first) = self.delayed.first_entry() {
            let at = first.key().0;
            if at > Instant::now() {
                return Some(at);
            }
            first.remove().arrive(&mut self.bytes);
        }
        None
    }
}

impl Delayed {
    fn arrive(&self, bytes: &mut BytesMut) {
        for _ in 0..self.times {
            bytes.extend_from_slice(&self.bytes);
            if let Some((carrier, message)) = &self.carried {
                carrier.arrived(message);
            }
        }
    }
}

pub(crate) fn encoded(reply: &RedisReply, protocol: Protocol) -> Bytes {
    let mut bytes = BytesMut::new();
    encode(reply, protocol, &mut bytes);
    bytes.freeze()
}
