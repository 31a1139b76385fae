//! Expiries of the keys of others: where they stand among what servers announce, what each is called, and how they are
//! made lapses.

use std::fmt;

use bytes::Bytes;

use super::attached::{by_node, scatter};
use crate::error::Result;
use crate::id::ArmingId;
use crate::policy::{Policy, Treatment};
use crate::run::ScriptCall;
use crate::time::ServerTime;
use crate::{PartitionNames, Store, scripts};

/// Arguments of each note in a call.
const NOTE_ARGUMENTS: usize = 7;

/// The longest name of a server.
const MAX_NODE: usize = 40;

/// What a server is called among those that hold keys: nothing, where there is one; what it says of itself in a
/// cluster. No more is asked of it than that two servers never have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    bytes: [u8; MAX_NODE],
    size: u8,
}

impl NodeId {
    /// That of the only server.
    pub const NONE: Self = Self { bytes: [0; MAX_NODE], size: 0 };

    /// Up to 40 bytes.
    pub fn new(name: &[u8]) -> Option<Self> {
        let mut node = Self { size: u8::try_from(name.len()).ok()?, ..Self::NONE };
        node.bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(node)
    }

    /// Its bytes, as they stand in Redis.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }

    /// Whether there are others.
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

/// Where something stands in a server's stream of expired keys. Positions of one key are compared, times
/// never: each listener hears the same events in the same order, each late in its own way. Those of two servers
/// are not compared, which is why there is no order of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Whose stream.
    pub node: NodeId,
    /// The number of the last canary heard; 0 where none is heard at all.
    pub canary: u64,
    /// How many expiries of the key since.
    pub count: u32,
}

/// A key was asked for, and is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAbsence {
    /// Where in the stream of the server that has said so.
    pub at: Position,
    /// When, by its clock.
    pub stamp: ServerTime,
    /// The last that was heard of the key's partition before it was asked for; 0 where that is not known.
    pub requested_at: ServerTime,
}

/// What tells an expiry of a key from its others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryIdentity {
    /// Its position, for who hears everything since a canary.
    Anchored {
        /// Where it was heard.
        at: Position,
        /// The number of that canary.
        since: u64,
    },
    /// It was heard in a gap, and all who heard it so agree on this.
    Gap {
        /// Who has announced it.
        node: NodeId,
        /// The number of the canary after it.
        canary: u64,
        /// How many expiries of the key come from there back to it, itself among them.
        back: u32,
        /// Where and when the key was found gone behind that canary, if it was.
        gone: Option<KeyAbsence>,
    },
    /// It was heard in a gap that no canary has ended, or that another followed.
    Unknown(NodeId),
    /// It was announced in a gap by a server that another has replaced, and that one says that the key is gone.
    Replaced {
        /// Who has announced it.
        by: NodeId,
        /// What the other has said.
        gone: KeyAbsence,
    },
}

impl ExpiryIdentity {
    /// Whose positions it names.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Anchored { at, .. } => at.node,
            Self::Gap { node, .. } | Self::Unknown(node) => *node,
            Self::Replaced { gone, .. } => gone.at.node,
        }
    }

    /// The number of the canary that it names.
    pub(super) fn canary(&self) -> Option<u64> {
        match self {
            Self::Anchored { at, .. } => Some(at.canary),
            Self::Gap { canary, .. } => Some(*canary),
            Self::Unknown(_) | Self::Replaced { .. } => None,
        }
    }

    /// Who was replaced.
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

    /// When the key was asked for, by its partition's clock.
    pub(super) fn asked(&self) -> ServerTime {
        self.gone().map_or_else(ServerTime::default, |gone| gone.requested_at)
    }
}

/// An expiry that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedExpiry {
    /// Of which key.
    pub key: Bytes,
    /// Which of the key's expiries it is.
    pub identity: ExpiryIdentity,
    /// The arming of the lapse to be.
    pub arming: ArmingId,
}

/// The result of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedExpiry {
    /// Another listener was first.
    Known,
    /// It is a lapse now.
    Lapse,
    /// It was fired before, as a recovery.
    Recovered,
    /// Its deadline had not been read, and the topic ignores such keys.
    Ignored,
    /// It is older than the history.
    Stale,
    /// It was the key that was written back for a retry.
    Returned,
    /// It is a lapse now, in place of a retry: the key's writer was first.
    Superseding,
}

impl Store {
    /// Makes lapses of expiries that were heard. One call for each server that has announced some.
    pub async fn record_expiries(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        notes: &[AnnouncedExpiry],
    ) -> Result<Vec<RecordedExpiry>> {
        let mut noted = vec![RecordedExpiry::Known; notes.len()];
        for (node, places) in by_node(notes, NOTE_ARGUMENTS, |note| note.identity.node()) {
            let some: Vec<&AnnouncedExpiry> = places.iter().map(|place| &notes[*place]).collect();
            scatter(&mut noted, &places, self.note_of(at, policy, node, &some).await?);
        }
        Ok(noted)
    }

    async fn note_of(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        node: NodeId,
        notes: &[&AnnouncedExpiry],
    ) -> Result<Vec<RecordedExpiry>> {
        use RecordedExpiry::{Ignored, Known, Lapse, Recovered, Returned, Stale, Superseding};
        let heard = notes.iter().filter_map(|note| note.identity.canary());
        let mut call = self.history_call(&scripts::RECORD_EXPIRIES, at, heard, policy.restores(), node);
        call.arg(if policy.topic.untracked == Treatment::Fire { "fire" } else { "ignore" });
        for note in notes {
            call.arg(&note.key[..]);
            add_identity(&mut call, &note.identity);
            call.arg(note.arming.as_bytes());
            if node.is_named() {
                call.arg(note.identity.asked().ms());
            }
        }
        let codes = [Known, Lapse, Recovered, Ignored, Stale, Returned, Superseding];
        call.reply().await?.codes(notes.len(), &codes)
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
