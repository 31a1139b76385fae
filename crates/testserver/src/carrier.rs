//! Faults of messages between the server and its subscribers.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// A message to a subscribed connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PubSubMessage {
    /// The ID of the connection, as `CLIENT ID` returns it.
    pub connection: u64,
    /// The channel, even if the connection has subscribed to a pattern.
    pub channel: Bytes,
    /// The message itself.
    pub payload: Bytes,
}

/// The delivery of a message to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The number of times that it arrives. With 0 it is lost.
    pub times: usize,
    /// The delay after it was published.
    pub late: Duration,
    /// True if it arrives before earlier messages that arrive at the same time.
    pub overtakes: bool,
}

impl Passage {
    /// Arrives once, immediately.
    pub const DIRECT: Self = Self { times: 1, late: Duration::ZERO, overtakes: false };
    /// Never arrives.
    pub const NONE: Self = Self { times: 0, ..Self::DIRECT };
}

/// Decides how messages are delivered. The server is locked during its calls, so it must not call the server.
///
/// Messages and replies overtake a delayed message. On a connection with subscriptions to patterns they wait behind it,
/// because a subscriber to all changes of keys may rely on the order.
pub trait MessageCarrier: fmt::Debug + Send + Sync {
    /// Returns how this message is delivered.
    fn take(&self, message: &PubSubMessage) -> Passage;

    /// Receives a notice of each delivery of a message.
    fn arrived(&self, _message: &PubSubMessage) {}

    /// Returns whether connections may subscribe. If not, a connection that subscribes is closed without a reply.
    fn admits(&self) -> bool {
        true
    }
}
