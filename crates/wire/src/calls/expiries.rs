//! Expiries of attached keys: their positions in event streams, their identities, and the lapses that they create.

use std::fmt;

use bytes::Bytes;

use super::attached::{by_node, scatter};
use crate::error::Result;
use crate::id::ArmingId;
use crate::policy::{Policy, Treatment};
use crate::run::ScriptCall;
use crate::time::ServerTime;
use crate::{PartitionNames, Store, scripts};

/// The maximum number of arguments of each expiry in a call: those of a server with a name.
const EXPIRY_ARGUMENTS: usize = 7;

/// The maximum length of a server's name, in bytes.
const MAX_NODE: usize = 40;

/// The name of a server that holds keys, which no other server has. It is empty for a single server, the node ID in a Redis
/// Cluster, and with Sentinel the run ID or the address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    bytes: [u8; MAX_NODE],
    size: u8,
}

impl NodeId {
    /// The empty name of a single server.
    pub const NONE: Self = Self { bytes: [0; MAX_NODE], size: 0 };

    /// Creates a name. Returns `None` over 40 bytes.
    pub fn new(name: &[u8]) -> Option<Self> {
        let mut node = Self { size: u8::try_from(name.len()).ok()?, ..Self::NONE };
        node.bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(node)
    }

    /// Returns the bytes of the name, as Redis holds them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }

    /// Returns whether the name is not empty, so that there are several servers.
    pub fn is_named(&self) -> bool {
        self.size > 0
    }
}

impl Default for NodeId {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.as_bytes().escape_ascii())
    }
}

/// A position in a server's stream of expired keys.
///
/// Positions of one key are compared, and times are not. All listeners receive the same events in the same order, but each
/// with its own delay. Positions of two servers are not comparable, so the type has no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The server of the stream.
    pub node: NodeId,
    /// The number of the last heartbeat key received; 0 if none is received.
    pub canary: u64,
    /// How many expiries of the key were received since.
    pub count: u32,
}

/// A reading that found no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAbsence {
    /// The position in the stream of the server that was read.
    pub at: Position,
    /// When it was read, by that server's clock.
    pub stamp: ServerTime,
    /// The last known time of the partition's server before the key was requested; 0 if there is none.
    pub requested_at: ServerTime,
}

/// The identity of an expiry among all expiries of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryIdentity {
    /// The position, if the listener has received all events since a heartbeat key.
    Anchored {
        /// The position of the expiry.
        at: Position,
        /// The number of that heartbeat key.
        since: u64,
    },
    /// A place in a gap. All listeners that received the expiry in the gap agree on it.
    Gap {
        /// The server that announced the expiry.
        node: NodeId,
        /// The number of the heartbeat key that ended the gap.
        canary: u64,
        /// How many expiries of the key there are from this one, inclusive, to that heartbeat key.
        back: u32,
        /// The reading after that heartbeat key, if it found no key.
        gone: Option<KeyAbsence>,
    },
    /// Unknown: no heartbeat key ended the gap, or another gap followed.
    Unknown(NodeId),
    /// A server announced the expiry in a gap and was replaced, and the new server has no such key.
    Replaced {
        /// The server that announced the expiry.
        by: NodeId,
        /// The reading of the new server.
        gone: KeyAbsence,
    },
}

impl ExpiryIdentity {
    /// Returns the server whose positions it names.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Anchored { at, .. } => at.node,
            Self::Gap { node, .. } | Self::Unknown(node) => *node,
            Self::Replaced { gone, .. } => gone.at.node,
        }
    }

    /// Returns the number of the heartbeat key that it names.
    pub(super) fn canary(&self) -> Option<u64> {
        match self {
            Self::Anchored { at, .. } => Some(at.canary),
            Self::Gap { canary, .. } => Some(*canary),
            Self::Unknown(_) | Self::Replaced { .. } => None,
        }
    }

    /// Returns the name of the replaced server; empty if there is none.
    pub(super) fn replaced(&self) -> &[u8] {
        if let Self::Replaced { by, .. } = self { by.as_bytes() } else { &[] }
    }

    pub(super) fn gone(&self) -> Option<KeyAbsence> {
        match *self {
            Self::Gap { gone, .. } => gone,
            Self::Replaced { gone, .. } => Some(gone),
            Self::Anchored { .. } | Self::Unknown(_) => None,
        }
    }

    /// Returns when the key was requested, by its partition's clock.
    fn requested_at(&self) -> ServerTime {
        self.gone().map_or_else(ServerTime::default, |gone| gone.requested_at)
    }
}

/// An expiry that a server has announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedExpiry {
    /// The key.
    pub key: Bytes,
    /// The identity of the expiry.
    pub identity: ExpiryIdentity,
    /// The arming of the lapse that it may create.
    pub arming: ArmingId,
}

/// The result of recording an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedExpiry {
    /// The expiry was recorded before, mostly by another listener. Or a replaced server has announced it, and an expiry or a
    /// reading on its successor decides.
    Known,
    /// The expiry has created a lapse.
    Lapse,
    /// A recovery has fired for this expiry before.
    Recovered,
    /// The topic ignores expiries of untracked keys. The key was untracked, or was tracked with a later deadline.
    Ignored,
    /// The expiry is older than the history.
    Stale,
    /// It was the expiry of a key that was written back until a retry.
    Returned,
    /// The expiry has created a lapse in place of a retry, because the key's writer wrote the key again.
    Superseding,
}

impl Store {
    /// Records announced expiries and creates their lapses. Sends one call for each server that announced some.
    pub async fn record_expiries(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        expiries: &[AnnouncedExpiry],
    ) -> Result<Vec<RecordedExpiry>> {
        let mut results = vec![RecordedExpiry::Known; expiries.len()];
        for (node, places) in by_node(expiries, EXPIRY_ARGUMENTS, |expiry| expiry.identity.node()) {
            let some: Vec<&AnnouncedExpiry> = places.iter().map(|place| &expiries[*place]).collect();
            scatter(&mut results, &places, self.record_expiries_of(at, policy, node, &some).await?);
        }
        Ok(results)
    }

    async fn record_expiries_of(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        node: NodeId,
        expiries: &[&AnnouncedExpiry],
    ) -> Result<Vec<RecordedExpiry>> {
        use RecordedExpiry::{Ignored, Known, Lapse, Recovered, Returned, Stale, Superseding};
        let numbers = expiries.iter().filter_map(|expiry| expiry.identity.canary());
        let mut call = self.history_call(&scripts::RECORD_EXPIRIES, at, numbers, policy.restores(), node);
        call.arg(if policy.topic.untracked == Treatment::Fire { "fire" } else { "ignore" });
        for expiry in expiries {
            call.arg(&expiry.key[..]);
            add_identity(&mut call, &expiry.identity);
            call.arg(expiry.arming.as_bytes());
            if node.is_named() {
                call.arg(expiry.identity.requested_at().ms());
            }
        }
        let codes = [Known, Lapse, Recovered, Ignored, Stale, Returned, Superseding];
        call.reply().await?.codes(expiries.len(), &codes)
    }
}

fn add_identity(call: &mut ScriptCall<'_>, identity: &ExpiryIdentity) {
    let (canary, count, since) = match *identity {
        ExpiryIdentity::Anchored { at, since } => (at.canary, at.count, since),
        ExpiryIdentity::Gap { canary, back, .. } => (canary, back, 0),
        ExpiryIdentity::Unknown(_) => (0, 0, 0),
        ExpiryIdentity::Replaced { .. } => (0, 1, 0),
    };
    let replaced = identity.replaced();
    let gone = identity.gone().map_or_else(Vec::new, |KeyAbsence { at, stamp, .. }| {
        [&at.canary.to_be_bytes()[..], &at.count.to_be_bytes(), &stamp.0.to_be_bytes(), replaced].concat()
    });
    call.arg(canary).arg(count).arg(since).arg(gone);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_forty_bytes_at_most() {
        assert_eq!(NodeId::new(&[7; 40]).unwrap().as_bytes(), [7; 40]);
        assert_eq!(NodeId::new(&[7; 41]), None);
        assert_eq!(NodeId::new(&[7; 300]), None);
        assert_eq!(NodeId::new(b""), Some(NodeId::NONE));
        assert!(!NodeId::NONE.is_named() && NodeId::new(b"\0").unwrap().is_named());
    }
}
