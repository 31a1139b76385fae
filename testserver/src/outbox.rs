//! What a connection has still to be sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use crate::reply::Reply;
use crate::resp::{Protocol, encode};

/// A client that leaves more than this unread is cut off, as the server does.
const MOST: usize = 64 * 1024 * 1024;

/// Replies and pushes of one connection, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: BytesMut,
    closed: bool,
    /// Nothing is ever sent again, and the connection stays.
    hung: bool,
}

impl Outbox {
    pub(crate) fn send(&self, reply: &Reply, protocol: Protocol) {
        let mut queue = self.lock();
        if queue.closed || queue.hung {
            return;
        }
        encode(reply, protocol, &mut queue.bytes);
        queue.closed = queue.bytes.len() > MOST;
        drop(queue);
        self.0.changed.notify_one();
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
            if let Some(next) = self.take() {
                return next;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<Option<Bytes>> {
        let mut queue = self.lock();
        if !queue.bytes.is_empty() {
            return Some(Some(queue.bytes.split().freeze()));
        }
        queue.closed.then_some(None)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
