//! What a test may do to messages on their way to those who have subscribed.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// A message that is on its way to a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PubSubMessage {
    /// Which connection: what `CLIENT ID` answers there.
    pub connection: u64,
    /// Where it was published, also if the connection has subscribed to a pattern.
    pub channel: Bytes,
    /// What it says.
    pub payload: Bytes,
}

/// How a message gets to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// How many times it arrives; 0: it is lost.
    pub times: usize,
    /// How much later than it was published.
    pub late: Duration,
    /// Whether it arrives before what was to arrive at the same moment.
    pub overtakes: bool,
}

impl Passage {
    /// It arrives at once.
    pub const DIRECT: Self = Self { times: 1, late: Duration::ZERO, overtakes: false };
    /// It never arrives.
    pub const NONE: Self = Self { times: 0, ..Self::DIRECT };
}

/// Decides how messages get to connections. It is asked while the server waits, and so calls no server.
///
/// What is sent after a late message overtakes it. Where a connection has subscribed to patterns it waits behind it,
/// answers as well, as on a slow line: whoever hears of each change of a key may rely on the order.
pub trait MessageCarrier: fmt::Debug + Send + Sync {
    /// Returns how this message gets to its connection.
    fn take(&self, message: &PubSubMessage) -> Passage;

    /// A message has arrived, once for each time.
    fn arrived(&self, _message: &PubSubMessage) {}

    /// Returns whether connections may subscribe; one that may not is closed without an answer.
    fn admits(&self) -> bool {
        true
    }
}
