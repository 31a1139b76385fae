//! The connections and their subscriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::carrier::{MessageCarrier, PubSubMessage};
use crate::glob;
use crate::outbox::{ConnectionOutbox, encoded};
use crate::reply::RedisReply;
use crate::resp::Protocol;

/// The kind of name in a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Channel,
    Pattern,
    Shard,
}

/// A connection to which messages are published.
#[derive(Debug)]
pub(crate) struct PubSubConnection {
    pub(crate) outbox: ConnectionOutbox,
    pub(crate) protocol: Protocol,
    pub(crate) user: String,
    topics: BTreeSet<(Kind, Bytes)>,
}

/// All connections and their subscriptions.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    /// `None` delivers messages directly.
    pub(crate) carrier: Option<Arc<dyn MessageCarrier>>,
    connections: BTreeMap<u64, PubSubConnection>,
    topics: BTreeMap<(Kind, Bytes), BTreeSet<u64>>,
}

impl PubSub {
    pub(crate) fn open(&mut self, id: u64, outbox: ConnectionOutbox, user: &str) {
        let connection = PubSubConnection {
            outbox,
            protocol: Protocol::Resp2,
            user: user.to_owned(),
            topics: BTreeSet::new(),
        };
        self.connections.insert(id, connection);
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.unsubscribe_all(id);
        self.connections.remove(&id);
    }

    pub(crate) fn connection_mut(&mut self, id: u64) -> Option<&mut PubSubConnection> {
        self.connections.get_mut(&id)
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = (u64, &PubSubConnection)> {
        self.connections.iter().map(|(id, connection)| (*id, connection))
    }

    pub(crate) fn subscribe(&mut self, id: u64, kind: Kind, name: &Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if kind == Kind::Pattern {
            connection.outbox.keep_order();
        }
        connection.topics.insert((kind, name.clone()));
        self.topics.entry((kind, name.clone())).or_default().insert(id);
    }

    pub(crate) fn unsubscribe(&mut self, id: u64, kind: Kind, name: &Bytes) {
        let topic = (kind, name.clone());
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.topics.remove(&topic);
        }
        if let Some(ids) = self.topics.get_mut(&topic) {
            ids.remove(&id);
            if ids.is_empty() {
                self.topics.remove(&topic);
            }
        }
    }

    pub(crate) fn unsubscribe_all(&mut self, id: u64) {
        for (kind, name) in
            self.connections.get(&id).map(|connection| connection.topics.clone()).unwrap_or_default()
        {
            self.unsubscribe(id, kind, &name);
        }
    }

    pub(crate) fn names(&self, id: u64, kind: Kind) -> Vec<Bytes> {
        let topics = self.connections.get(&id).into_iter().flat_map(|connection| &connection.topics);
        topics.filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }

    /// Returns the number of subscriptions for a confirmation. Shard channels count alone, channels and patterns together.
    pub(crate) fn count(&self, id: u64, kind: Kind) -> usize {
        let Some(connection) = self.connections.get(&id) else { return 0 };
        connection.topics.iter().filter(|(of, _)| (*of == Kind::Shard) == (kind == Kind::Shard)).count()
    }

    /// Returns the number of connections that have subscribed to a name.
    pub(crate) fn subscribers(&self, kind: Kind, name: &Bytes) -> usize {
        self.topics.get(&(kind, name.clone())).map_or(0, BTreeSet::len)
    }

    pub(crate) fn is_subscriber(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(PubSubConnection::is_subscriber)
    }

    /// Publishes a message, and returns the number of receivers.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        self.publish_by(self.carrier.as_ref(), channel, message)
    }

    /// Publishes a message without the carrier, and returns the number of receivers.
    pub(crate) fn push(&self, channel: &[u8], message: &[u8]) -> usize {
        self.publish_by(None, channel, message)
    }

    fn publish_by(&self, carrier: Option<&Arc<dyn MessageCarrier>>, channel: &[u8], message: &[u8]) -> usize {
        let mut receivers = 0;
        if let Some(ids) = self.topics.get(&(Kind::Channel, Bytes::copy_from_slice(channel))) {
            receivers += self.send(carrier, ids, &[b"message", channel, message]);
        }
        let patterns = self.topics.range((Kind::Pattern, Bytes::new())..(Kind::Shard, Bytes::new()));
        for ((_, pattern), ids) in patterns.filter(|((_, pattern), _)| glob::matches(pattern, channel)) {
            receivers += self.send(carrier, ids, &[b"pmessage", pattern, channel, message]);
        }
        receivers
    }

    pub(crate) fn publish_to_shard(&self, channel: &Bytes, message: &[u8]) -> usize {
        let ids = self.topics.get(&(Kind::Shard, channel.clone()));
        ids.map_or(0, |ids| self.send(self.carrier.as_ref(), ids, &[b"smessage", channel, message]))
    }

    /// Sends a push of these parts, of which the last two are the channel and the payload. Returns the number of receivers.
    fn send(&self, carrier: Option<&Arc<dyn MessageCarrier>>, ids: &BTreeSet<u64>, parts: &[&[u8]]) -> usize {
        let push = RedisReply::Push(parts.iter().map(RedisReply::bulk).collect());
        for (id, connection) in ids.iter().filter_map(|id| Some((*id, self.connections.get(id)?))) {
            match (carrier, parts) {
                (Some(carrier), [.., channel, payload]) => {
                    let [channel, payload] = [channel, payload].map(|part| Bytes::copy_from_slice(part));
                    let message = PubSubMessage { connection: id, channel, payload };
                    connection.outbox.carry(carrier, message, encoded(&push, connection.protocol));
                }
                _ => connection.outbox.send(&push, connection.protocol),
            }
        }
        ids.len()
    }
}

impl PubSubConnection {
    pub(crate) fn is_subscriber(&self) -> bool {
        !self.topics.is_empty()
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = (Kind, &Bytes)> {
        self.topics.iter().map(|(kind, name)| (*kind, name))
    }
}
