//! What partitions tell of starts and ends, for whoever looks on: a subscription of its own, as listeners have no use for
//! that.

use std::collections::BTreeSet;
use std::mem;

use bytes::Bytes;
use keylapse_connection::{PushInfo, PushKind, Value};

use crate::connection::{Address, Subscription, classify, lacks_resp3};
use crate::error::{Error, ErrorKind, Result};
use crate::events::decoder::Decoder;
use crate::events::open::{OPEN_WITHIN, hear_wake_ups};
use crate::wire::PartitionNames;
use crate::wire::calls::tail::LETTER;

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
        (PushKind::SMessage, [Text(channel), Text(message)]) if message.first() == Some(&LETTER) => {
            Some(Overheard::Told(decoder.partition(channel)?, mem::take(message).into()))
        }
        _ => None,
    }
}
