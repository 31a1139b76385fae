//! Subscriptions of those who only look on: at what partitions tell of starts and ends, or for a while at a server's
//! expired keys. Listeners have no use for either, so each is a connection of its own, which ends when it is dropped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::{fmt, mem};

use bytes::Bytes;
use keylapse_connection::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::watch;

use crate::backlog::Receiver;
use crate::connection::{Address, Server, Subscription, classify, lacks_resp3};
use crate::error::{Error, ErrorKind, Result};
use crate::events::calls::release_canary;
use crate::events::decoder::{Decoded, Decoder};
use crate::events::open::{OPEN_WITHIN, Opened, hear_wake_ups, open};
use crate::events::{Among, Event, Share, Source};
use crate::rounds::Rounds;
use crate::wire::{PartitionNames, TAIL_LETTER};

/// What is heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Overheard {
    /// A message of this partition, by its place in the list.
    Told(usize, Bytes),
    /// Nothing more, of one of them at least: the connection is lost, or a slot has moved.
    Ended,
}

/// A subscribed connection. When it is dropped, nothing more is heard.
#[derive(Debug)]
pub struct TailLine {
    _connection: Subscription,
    /// The places of the partitions that are heard. Others are held elsewhere by now.
    pub heard: BTreeSet<usize>,
}

impl TailLine {
    /// Subscribes to these of the partitions.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or does not speak RESP3.
    pub async fn open(
        address: &Address,
        partitions: &[PartitionNames],
        places: &[usize],
        hear: impl Fn(Overheard) + Send + Sync + 'static,
    ) -> Result<Self> {
        let late = |_| Error::new(ErrorKind::Timeout, "looking on: no answer within 5 s");
        let opening = subscribe(address, partitions, places, hear);
        tokio::time::timeout(OPEN_WITHIN, opening).await.map_err(late)?
    }
}

async fn subscribe(
    address: &Address,
    partitions: &[PartitionNames],
    places: &[usize],
    hear: impl Fn(Overheard) + Send + Sync + 'static,
) -> Result<TailLine> {
    let namespace = partitions.first().map_or("", |first| &first.namespace);
    let decoder = Decoder::new(namespace, address.db(), partitions, &[], false);
    let hearing = decoder.clone();
    let push = move |push| {
        if let Some(heard) = overheard(&hearing, push) {
            hear(heard);
        }
    };
    let connection =
        Subscription::in_resp3(address, push).await.map_err(|error| match lacks_resp3(&error) {
            true => Error::new(
                ErrorKind::Unsupported,
                format!("{address} does not speak RESP3, without which no partition can be heard"),
            ),
            false => classify("looking on", &error),
        })?;
    let heard = hear_wake_ups(&connection, &decoder, places).await;
    let heard = heard.map_err(|error| classify("looking on", &error))??;
    Ok(TailLine { _connection: connection, heard })
}

/// What a push means to those who look on.
fn overheard(decoder: &Decoder, mut push: PushInfo) -> Option<Overheard> {
    use Value::BulkString as Text;
    match (push.kind, &mut push.data[..]) {
        (PushKind::Disconnection, _) => Some(Overheard::Ended),
        (PushKind::SUnsubscribe, [Text(channel), ..]) => decoder.partition(channel).map(|_| Overheard::Ended),
        (PushKind::SMessage, [Text(channel), Text(message)]) if message.first() == Some(&TAIL_LETTER) => {
            Some(Overheard::Told(decoder.partition(channel)?, mem::take(message).into()))
        }
        _ => None,
    }
}

/// A subscription that ends when it is dropped.
pub struct Earshot {
    connection: Subscription,
    pushed: Receiver<Decoded>,
    ordered: bool,
}

impl Earshot {
    /// Subscribes, within a deadline.
    pub async fn of(server: &Server, namespace: &str) -> Result<Self> {
        let address = server.find().await?;
        let source = Source {
            server: server.clone(),
            among: Among::Alone,
            slots_move: false,
            decoder: Decoder::new(namespace, address.db(), &[], &[], false),
            share: watch::channel(Share::default()).1,
            prompts: Arc::default(),
            rounds: Rounds::default(),
        };
        let Opened { connection, pushed, ordered, .. } = open(&address, &source, &Share::default()).await?;
        Ok(Self { connection, pushed, ordered })
    }

    /// The connection that is subscribed, where there can be one: what is announced before an answer is heard before.
    pub fn voice(&self) -> Voice {
        Voice(self.connection.clone())
    }

    /// Whether it is: in RESP2 it is another connection.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The next key that is announced; none when the connection has ended.
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

impl fmt::Debug for Earshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Earshot").field("ordered", &self.ordered).finish_non_exhaustive()
    }
}

/// Asks on a subscribed connection.
#[derive(Clone, Debug)]
pub struct Voice(Subscription);

impl Voice {
    /// Sends a command.
    ///
    /// # Errors
    /// When it is refused or has no answer.
    pub async fn ask(&self, doing: &str, command: &Cmd) -> Result<Value> {
        self.0.call(doing, command).await
    }

    /// Reads a key of 1 ms once it is due.
    pub async fn release(&self, key: String) -> Result<()> {
        release_canary(key, self.0.clone()).await
    }
}
