//! Opening a subscription: RESP3, or RESP2 where a proxy speaks nothing else.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, ErrorKind as RedisErrorKind, PushInfo, PushKind, RedisResult, cmd};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::connection::{Address, classify};
use crate::error::{Error, ErrorKind, Result};
use crate::events::decoder::{Decoded, Decoder};

/// Messages that may wait between the socket and the session. The closure that
/// fills the queue runs in the connection's driver and must not block.
const PUSHED: usize = 65_536;
/// Everything before the first canary has to be done within this.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// A subscribed connection and what comes out of it.
pub(super) struct Opened {
    /// For canaries: where it can be, the very connection that is subscribed.
    pub(super) connection: MultiplexedConnection,
    pub(super) pushed: mpsc::Receiver<Decoded>,
    /// Whether wake-ups and fences are heard, too.
    pub(super) wake_ups: bool,
    /// The other end of `pushed`.
    pub(super) queue: mpsc::Sender<Decoded>,
    /// Whether an answer on the connection follows what was published before it.
    pub(super) ordered: bool,
}

/// Connects and subscribes, within a deadline.
pub(super) async fn open(address: &Address, decoder: Decoder) -> Result<Opened> {
    let queue = Queue::new();
    let resp3 = within(in_resp3(address, &decoder, queue.0.clone())).await?;
    let (connection, wake_ups, ordered) = match resp3 {
        Ok((connection, wake_ups)) => (connection, wake_ups, true),
        Err(error) if lacks_resp3(&error) => {
            info!(server = %address, "no RESP3: subscribing in RESP2, without wake-ups");
            let opened = within(in_resp2(address, &decoder, queue.0.clone())).await?;
            (opened.map_err(|error| classify("subscribing", &error))?, false, false)
        }
        Err(error) => return Err(classify("subscribing", &error)),
    };
    let Queue(Sender { queue, .. }, pushed) = queue;
    Ok(Opened { connection, pushed, queue, ordered, wake_ups })
}

async fn within<T>(opening: impl Future<Output = T>) -> Result<T> {
    let late = |_| Error::new(ErrorKind::Timeout, "subscribing: no answer within 5 s");
    tokio::time::timeout(OPEN_WITHIN, opening).await.map_err(late)
}

fn lacks_resp3(error: &redis::RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.kind() == RedisErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || detail.contains("unknown command") && detail.contains("HELLO")
}

async fn in_resp3(
    address: &Address,
    decoder: &Decoder,
    sender: Sender,
) -> RedisResult<(MultiplexedConnection, bool)> {
    let of_pushes = decoder.clone();
    let config = config().set_push_sender(move |push| sender.hear(&of_pushes, push));
    let mut connection = address.resp3().connect(&config).await?;
    connection.subscribe(&decoder.expired).await?;
    hear_changes(&mut connection, decoder).await?;
    if decoder.wake.is_empty() {
        return Ok((connection, true));
    }
    match cmd("SSUBSCRIBE").arg(&decoder.wake).exec_async(&mut connection).await {
        Ok(()) => Ok((connection, true)),
        // Better without wake-ups than without anything.
        Err(error) if error.code().is_some() => {
            warn!(error = %classify("SSUBSCRIBE", &error), "no wake-ups: new timers are found by sweeps");
            Ok((connection, false))
        }
        Err(error) => Err(error),
    }
}

/// Changes of attached keys, where the operator and the ACL grant them. Canaries prove it only where all
/// are granted: they are heard last, or not at all.
async fn hear_changes(connection: &mut MultiplexedConnection, decoder: &Decoder) -> RedisResult<()> {
    let Some((canaries, topics)) = decoder.patterns.split_last() else { return Ok(()) };
    let mut all = true;
    for pattern in topics {
        match connection.psubscribe(pattern).await {
            Err(error) if error.code().is_some() => {
                let error = classify("PSUBSCRIBE", &error);
                info!(%error, %pattern, "changes of these keys are not heard: they are found by scanning");
                all = false;
            }
            done => done?,
        }
    }
    if !all {
        return Ok(());
    }
    match connection.psubscribe(canaries).await {
        Err(error) if error.code().is_some() => {
            let error = classify("PSUBSCRIBE", &error);
            info!(%error, pattern = %canaries, "cannot tell whether changes of attached keys are heard");
            Ok(())
        }
        done => done,
    }
}

/// `redis` cannot SSUBSCRIBE in RESP2, so only expired keys are heard here.
async fn in_resp2(
    address: &Address,
    decoder: &Decoder,
    sender: Sender,
) -> RedisResult<MultiplexedConnection> {
    let connection = address.connect(&config()).await?;
    let (mut sink, mut messages) = address.connect_pubsub().await?.split();
    sink.subscribe(&decoder.expired).await?;
    let decoder = decoder.clone();
    tokio::spawn(async move {
        let _subscribed = sink; // dropping it would end the subscription
        loop {
            // A session that has ended is told from an idle one by its queue.
            let message = tokio::select! {
                biased;
                () = sender.queue.closed() => return,
                message = messages.next() => message,
            };
            let Some(message) = message else { break };
            sender.message(&decoder, message.get_channel_name().as_bytes(), message.get_payload_bytes());
        }
        let _ = sender.queue.send(Decoded::Disconnected).await;
    });
    Ok(connection)
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(OPEN_WITHIN))
        .set_response_timeout(Some(OPEN_WITHIN))
}

struct Queue(Sender, mpsc::Receiver<Decoded>);

/// Fills the bounded queue, and counts what does not fit.
#[derive(Clone)]
struct Sender {
    queue: mpsc::Sender<Decoded>,
    /// Since the queue last took anything.
    dropped: Arc<AtomicU64>,
}

impl Queue {
    fn new() -> Self {
        let (queue, receiver) = mpsc::channel(PUSHED);
        Self(Sender { queue, dropped: Arc::default() }, receiver)
    }
}

impl Sender {
    fn hear(&self, decoder: &Decoder, push: PushInfo) -> std::result::Result<(), SendError> {
        self.put(decoder.hear(push));
        Ok(())
    }

    fn message(&self, decoder: &Decoder, channel: &[u8], payload: &[u8]) {
        let data = [channel, payload].map(|bytes| redis::Value::BulkString(bytes.to_vec())).into();
        self.put(decoder.hear(PushInfo { kind: PushKind::Message, data }));
    }

    /// That something found no room is said before anything else is let in.
    fn put(&self, heard: Option<Decoded>) {
        let Some(heard) = heard else { return };
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 && self.queue.try_send(Decoded::Dropped(dropped)).is_ok() {
            self.dropped.fetch_sub(dropped, Ordering::Relaxed);
        }
        let missing = self.dropped.load(Ordering::Relaxed) > 0;
        if missing || self.queue.try_send(heard).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
