//! Subscriptions of tools that only watch: the live tail of partitions, or a server's expired keys. Each has its own
//! connection, which ends when it is dropped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::{fmt, mem};

use bytes::Bytes;
use keylapse_connection::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::watch;

use crate::backlog::BacklogReceiver;
use crate::connection::{Address, Server, Subscription, classify, lacks_resp3};
use crate::error::{Error, ErrorKind, Result};
use crate::events::calls::check_canary;
use crate::events::decoder::{Decoded, Decoder};
use crate::events::open::{OPEN_TIMEOUT, OpenSubscription, open, subscribe_wake_ups};
use crate::events::{Deployment, Event, NodeAssignment, SubscriptionSource};
use crate::rounds::PollTimer;
use crate::wire::{PartitionNames, TAIL_PREFIX};

/// A message for the watcher of partitions.
#[derive(Debug, PartialEq, Eq)]
pub enum TailMessage {
    /// A message of the partition at this index of the list.
    Message(usize, Bytes),
    /// No more messages of at least one partition: the connection is lost, or a slot has moved.
    Ended,
}

/// A connection that is subscribed to the live tail of partitions. Dropping it ends the subscription.
#[derive(Debug)]
pub struct TailConnection {
    _connection: Subscription,
    /// The indices of the partitions that are subscribed to. Other servers hold the rest.
    pub subscribed: BTreeSet<usize>,
}

impl TailConnection {
    /// Subscribes to the partitions at these indices. Each message goes to `receive`.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or does not support RESP3.
    pub async fn open(
        address: &Address,
        partitions: &[PartitionNames],
        indices: &[usize],
        receive: impl Fn(TailMessage) + Send + Sync + 'static,
    ) -> Result<Self> {
        let late = |_| Error::new(ErrorKind::Timeout, "watching: no answer within 5 s");
        let opening = subscribe(address, partitions, indices, receive);
        tokio::time::timeout(OPEN_TIMEOUT, opening).await.map_err(late)?
    }
}

async fn subscribe(
    address: &Address,
    partitions: &[PartitionNames],
    indices: &[usize],
    receive: impl Fn(TailMessage) + Send + Sync + 'static,
) -> Result<TailConnection> {
    let namespace = partitions.first().map_or("", |first| &first.namespace);
    let decoder = Decoder::new(namespace, address.db(), partitions, &[], false);
    let push_decoder = decoder.clone();
    let push = move |push| {
        if let Some(message) = decode_tail_push(&push_decoder, push) {
            receive(message);
        }
    };
    let connection =
        Subscription::in_resp3(address, push).await.map_err(|error| match lacks_resp3(&error) {
            true => Error::new(
                ErrorKind::Unsupported,
                format!("{address} does not support RESP3, which is needed to watch partitions"),
            ),
            false => classify("watching", &error),
        })?;
    let subscribed = subscribe_wake_ups(&connection, &decoder, indices).await;
    let subscribed = subscribed.map_err(|error| classify("watching", &error))??;
    Ok(TailConnection { _connection: connection, subscribed })
}

/// Decodes a pushed message for the watcher of partitions.
fn decode_tail_push(decoder: &Decoder, mut push: PushInfo) -> Option<TailMessage> {
    use Value::BulkString as Text;
    match (push.kind, &mut push.data[..]) {
        (PushKind::Disconnection, _) => Some(TailMessage::Ended),
        (PushKind::SUnsubscribe, [Text(channel), ..]) => {
            decoder.partition(channel).map(|_| TailMessage::Ended)
        }
        (PushKind::SMessage, [Text(channel), Text(message)]) if message.first() == Some(&TAIL_PREFIX) => {
            Some(TailMessage::Message(decoder.partition(channel)?, mem::take(message).into()))
        }
        _ => None,
    }
}

/// A subscription to the expired keys of a server. Dropping it ends the subscription.
pub struct ExpirySubscription {
    connection: Subscription,
    pushed: BacklogReceiver<Decoded>,
    ordered: bool,
}

impl ExpirySubscription {
    /// Connects and subscribes, within `OPEN_TIMEOUT`.
    pub async fn of(server: &Server, namespace: &str) -> Result<Self> {
        let address = server.find().await?;
        let source = SubscriptionSource {
            server: server.clone(),
            deployment: Deployment::Alone,
            slots_move: false,
            decoder: Decoder::new(namespace, address.db(), &[], &[], false),
            assignment: watch::channel(NodeAssignment::default()).1,
            prompts: Arc::default(),
            rounds: PollTimer::default(),
        };
        let OpenSubscription { connection, pushed, ordered, .. } =
            open(&address, &source, &NodeAssignment::default()).await?;
        Ok(Self { connection, pushed, ordered })
    }

    /// Returns the connection for commands. In RESP3 it is the subscribed one, so events precede the answers to later
    /// commands.
    pub fn connection(&self) -> SubscribedConnection {
        SubscribedConnection(self.connection.clone())
    }

    /// Returns whether events and answers are ordered. In RESP2, commands use another connection.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Returns the next expired key, or `None` once the connection has ended.
    pub async fn expired(&mut self) -> Option<Bytes> {
        loop {
            match self.pushed.recv().await? {
                Decoded::Event(Event::Expired(key)) => return Some(key),
                Decoded::Disconnected => return None,
                _ => {}
            }
        }
    }
}

impl fmt::Debug for ExpirySubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpirySubscription").field("ordered", &self.ordered).finish_non_exhaustive()
    }
}

/// Sends commands on a subscribed connection.
#[derive(Clone, Debug)]
pub struct SubscribedConnection(Subscription);

impl SubscribedConnection {
    /// Sends a command.
    ///
    /// # Errors
    /// The server refuses the command, or does not answer.
    pub async fn ask(&self, doing: &str, command: &Cmd) -> Result<Value> {
        self.0.call(doing, command).await
    }

    /// Reads a key with a TTL of 1 ms after its deadline, until it is gone.
    pub async fn check_key(&self, key: String) -> Result<()> {
        check_canary(key, self.0.clone()).await
    }
}
