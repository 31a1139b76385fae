//! What a connection has still to be sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::carrier::{MessageCarrier, PubSubMessage};
use crate::reply::RedisReply;
use crate::resp::{Protocol, encode};

/// A client that leaves more than this unread is cut off, as the server does.
const MAX_UNREAD_BYTES: usize = 64 * 1024 * 1024;

/// Replies and pushes of one connection, in order.
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
    /// What arrives later: by time, then in order.
    later: BTreeMap<(Instant, i64), Late>,
    /// How many have ever been late.
    count: i64,
    /// Whether what is sent waits behind what arrives later.
    keeps_order: bool,
    closed: bool,
    /// Nothing is ever sent again, and the connection stays.
    hung: bool,
}

#[derive(Debug)]
struct Late {
    bytes: Bytes,
    times: usize,
    /// None: an answer.
    carried: Option<(Arc<dyn MessageCarrier>, PubSubMessage)>,
}

impl ConnectionOutbox {
    pub(crate) fn send(&self, reply: &RedisReply, protocol: Protocol) {
        let mut queue = self.lock();
        if !queue.is_open() {
            return;
        }
        if queue.must_wait() {
            queue.put_off(encoded(reply, protocol));
        } else {
            encode(reply, protocol, &mut queue.bytes);
        }
        self.sent(queue);
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&self, bytes: Bytes) {
        let mut queue = self.lock();
        if !queue.is_open() {
            return;
        }
        if queue.must_wait() {
            queue.put_off(bytes);
        } else {
            queue.bytes.extend_from_slice(&bytes);
        }
        self.sent(queue);
    }

    /// Sends a message as its carrier says.
    pub(crate) fn carry(&self, carrier: &Arc<dyn MessageCarrier>, message: PubSubMessage, bytes: Bytes) {
        let passage = carrier.take(&message);
        let mut queue = self.lock();
        if !queue.is_open() || passage.times == 0 {
            return;
        }
        let now = Instant::now();
        // What is later than there is time never arrives.
        let Some(at) = now.checked_add(passage.late) else { return };
        let late = Late { bytes, times: passage.times, carried: Some((carrier.clone(), message)) };
        if at <= now && !queue.must_wait() {
            late.arrive(&mut queue.bytes);
        } else {
            queue.insert(at, passage.overtakes, late);
        }
        self.sent(queue);
    }

    fn sent(&self, mut queue: MutexGuard<'_, OutboxQueue>) {
        queue.closed |= queue.bytes.len() > MAX_UNREAD_BYTES;
        drop(queue);
        self.0.changed.notify_one();
    }

    /// From now on nothing overtakes what arrives later.
    pub(crate) fn keep_order(&self) {
        self.lock().keeps_order = true;
    }

    /// Ends the connection, after what was sent before.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_one();
    }

    /// From now on the client hears nothing.
    pub(crate) fn hang(&self) {
        self.lock().hung = true;
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.lock().hung
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// What is to be written next; nothing once the connection is to end.
    pub(crate) async fn next(&self) -> Option<Bytes> {
        loop {
            // Before looking, or what comes in between would not wake anybody.
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

    /// The same as far as it is known, and when more arrives.
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
        self.keeps_order && !self.later.is_empty()
    }

    /// Puts an answer behind all that arrives later.
    fn put_off(&mut self, bytes: Bytes) {
        self.insert(Instant::now(), false, Late { bytes, times: 1, carried: None });
    }

    fn insert(&mut self, at: Instant, overtakes: bool, late: Late) {
        self.count += 1;
        let last = self.later.last_key_value().map(|((last, _), _)| *last);
        let at = last.filter(|_| self.keeps_order).map_or(at, |last| at.max(last));
        self.later.insert((at, if overtakes { -self.count } else { self.count }), late);
    }

    /// Takes what has arrived; when the next does.
    fn receive(&mut self) -> Option<Instant> {
        while let Some(first) = self.later.first_entry() {
            let at = first.key().0;
            if at > Instant::now() {
                return Some(at);
            }
            first.remove().arrive(&mut self.bytes);
        }
        None
    }
}

impl Late {
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
