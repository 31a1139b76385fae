//! Connections to other servers, with a carrier for their messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

use crate::carrier::{MessageCarrier, PubSubMessage};
use crate::connection::write;
use crate::outbox::{ConnectionOutbox, encoded};
use crate::reply::RedisReply;
use crate::resp::{Protocol, whole};

/// The capacity of the stream in each direction.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// A connection through a relay. Clones are the same connection.
#[derive(Clone, Debug, Default)]
pub struct RelayedConnection(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    outbox: ConnectionOutbox,
    /// True after a subscription.
    subscribed: AtomicBool,
    /// True if the subscription was confirmed in RESP3.
    resp3: AtomicBool,
}

/// Relays a connection to any server through a carrier. `far` is the stream to the server. Returns the stream for the
/// client, on which messages arrive as the carrier decides. `connection` is the ID of the connection in these messages.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn relay<S>(
    far: S,
    connection: u64,
    carrier: Arc<dyn MessageCarrier>,
) -> (DuplexStream, RelayedConnection)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (near, ours) = tokio::io::duplex(STREAM_BUFFER_BYTES);
    let relayed = RelayedConnection::default();
    let handle = relayed.clone();
    tokio::spawn(async move {
        let (mut from_server, mut to_server) = tokio::io::split(far);
        let (mut from_client, mut to_client) = tokio::io::split(ours);
        tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
            () = handle.read(&mut from_server, connection, &carrier) => {}
            _ = write(&handle.0.outbox, &mut to_client) => {}
        }
        handle.0.outbox.close();
        let _ = write(&handle.0.outbox, &mut to_client).await; // the output before the end
        let _ = (to_server.shutdown().await, to_client.shutdown().await);
    });
    (near, relayed)
}

impl RelayedConnection {
    /// Sends a message without the carrier, if the connection has subscriptions.
    pub fn push(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) {
        if self.0.subscribed.load(Ordering::Relaxed) {
            let protocol =
                if self.0.resp3.load(Ordering::Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 };
            let parts = [b"message", channel.as_ref(), payload.as_ref()];
            let push = RedisReply::Push(parts.iter().map(RedisReply::bulk).collect());
            self.0.outbox.send_bytes(encoded(&push, protocol));
        }
    }

    /// Closes the connection if it has subscriptions.
    pub fn disconnect_subscriber(&self) {
        if self.0.subscribed.load(Ordering::Relaxed) {
            self.0.outbox.close();
        }
    }

    /// Returns whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.outbox.is_closed()
    }

    /// Relays the output of the server until the stream ends.
    async fn read(
        &self,
        server: &mut (impl AsyncRead + Unpin),
        connection: u64,
        carrier: &Arc<dyn MessageCarrier>,
    ) {
        let mut buffer = BytesMut::new();
        while server.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
            while let Some((length, words)) = whole(&buffer) {
                let words: Vec<_> = words.map(|word| buffer[word].to_vec().into()).collect();
                self.pass(buffer.split_to(length).freeze(), &words, connection, carrier);
            }
        }
    }

    fn pass(&self, bytes: Bytes, words: &[Bytes], connection: u64, carrier: &Arc<dyn MessageCarrier>) {
        match words {
            [kind, .., channel, payload] if matches!(&kind[..], b"message" | b"pmessage" | b"smessage") => {
                let message =
                    PubSubMessage { connection, channel: channel.clone(), payload: payload.clone() };
                return self.0.outbox.carry(carrier, message, bytes);
            }
            [kind, ..] if matches!(&kind[..], b"subscribe" | b"psubscribe" | b"ssubscribe") => {
                self.0.subscribed.store(true, Ordering::Relaxed);
                self.0.resp3.store(bytes.first() == Some(&b'>'), Ordering::Relaxed);
                if kind.starts_with(b"p") {
                    self.0.outbox.keep_order();
                }
                if !carrier.admits() {
                    return self.0.outbox.close();
                }
            }
            _ => {}
        }
        self.0.outbox.send_bytes(bytes);
    }
}
