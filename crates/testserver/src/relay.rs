//! Connections to other servers whose messages are carried as here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

use crate::carrier::{MessageCarrier, PubSubMessage};
use crate::connection::write;
use crate::outbox::{ConnectionOutbox, encoded};
use crate::reply::RedisReply;
use crate::resp::{Protocol, whole};

/// What fits into the stream before it is read.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// A connection that is relayed.
#[derive(Clone, Debug, Default)]
pub struct RelayedConnection(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    outbox: ConnectionOutbox,
    /// Whether it has subscribed to something, and whether in RESP3.
    subscribed: AtomicBool,
    rich: AtomicBool,
}

/// Puts a carrier between a client and a server of any kind, at the other end of `far`. Returns the stream for the client,
/// in which messages arrive as the carrier says. `connection` is the number that they are given.
///
/// # Panics
/// Outside a tokio runtime.
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
    let line = relayed.clone();
    tokio::spawn(async move {
        let (mut from_server, mut to_server) = tokio::io::split(far);
        let (mut from_client, mut to_client) = tokio::io::split(ours);
        tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
            () = line.read(&mut from_server, connection, &carrier) => {}
            _ = write(&line.0.outbox, &mut to_client) => {}
        }
        line.0.outbox.close();
        let _ = write(&line.0.outbox, &mut to_client).await; // what had arrived before the end
        let _ = (to_server.shutdown().await, to_client.shutdown().await);
    });
    (near, relayed)
}

impl RelayedConnection {
    /// Sends a message that the carrier is not asked about, if the connection has subscribed to something.
    pub fn push(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) {
        if self.0.subscribed.load(Ordering::Relaxed) {
            let protocol =
                if self.0.rich.load(Ordering::Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 };
            let parts = [b"message", channel.as_ref(), payload.as_ref()];
            let push = RedisReply::Push(parts.iter().map(RedisReply::bulk).collect());
            self.0.outbox.send_bytes(encoded(&push, protocol));
        }
    }

    /// Ends the connection if it has subscribed to something.
    pub fn disconnect_subscriber(&self) {
        if self.0.subscribed.load(Ordering::Relaxed) {
            self.0.outbox.close();
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.outbox.is_closed()
    }

    /// Reads what the server sends, to the end.
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
                self.0.rich.store(bytes.first() == Some(&b'>'), Ordering::Relaxed);
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
