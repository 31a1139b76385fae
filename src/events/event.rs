//! What is heard of a server.

use bytes::Bytes;

use crate::error::{ErrorKind, Result};
use crate::log::debug;
use crate::policy::Capture;
use crate::time::ServerTime;
use crate::wire::{Found, Held, Index, NodeId};

/// Something heard. It is only a reason to look, never a command: anybody may publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The head of an index may have moved to this ms.
    Wake {
        /// The place of the partition in the list that the stream was opened for.
        partition: usize,
        /// Which of its indexes.
        index: Index,
        /// The new head.
        at: u64,
    },
    /// An operator asks for a call to a destination that is held back.
    TryNow {
        /// The place of the partition in the list that the stream was opened for.
        partition: usize,
        /// Which.
        destination: String,
    },
    /// What is due from this ms on is left to others: it is more than a listener can run, or the one that led has
    /// ended.
    Left {
        /// The place of the partition in the list that the stream was opened for.
        partition: usize,
        /// The earliest deadline of it; 0: of everything.
        at: u64,
    },
    /// A cancel has fenced this claim of this key.
    Fence {
        /// The place of the partition in the list that the stream was opened for.
        partition: usize,
        /// What was fenced.
        held: Held,
    },
    /// The server says that this key has expired.
    Expired(Bytes),
    /// Something may have been missed.
    Gap(Gap),
    /// Events flow again, as far as a canary can tell.
    Anchored,
    /// The server is this one from here on, where one may take another's place.
    Server {
        /// What it is called.
        node: NodeId,
        /// Where it is.
        at: String,
    },
    /// A canary, where touches are answered in the stream.
    Canary(Canary),
    /// A canary was heard that cannot be the server's next, and is not believed.
    Refused,
    /// A canary of this number that is not believed. All hear it, so what was heard in a gap has a name by it.
    Hearsay(u64),
    /// What these partitions' wake-ups would have said until now may have been missed: they were held elsewhere.
    Joined(Vec<usize>),
    /// A partition is held elsewhere from now on.
    Moved,
    /// From here on, events are missing; so many, as far as they were counted.
    Lost(u64),
    /// A key of an attached topic has changed.
    Changed(Bytes, Change),
    /// A touch was answered, or will not be.
    Touched(Touched),
    /// Changes of attached topics' keys were subscribed to: for each topic, in the order of their prefixes, why that is
    /// refused, if it is.
    Subscribed(Vec<Option<String>>),
}

/// A canary, heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canary {
    /// Its number.
    pub number: u64,
    /// The number of the one before.
    pub before: u64,
    /// Whether its `set` was heard on its keyspace channel.
    pub writes: bool,
    /// Whether its `expire` was.
    pub expires: bool,
}

/// What a keyspace channel says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Its deadline may be another.
    Written,
    /// It was deleted or renamed.
    Gone,
}

/// Why something may have been missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gap {
    /// The connection is not there, or not there yet.
    Disconnected,
    /// Nobody heard the canary: flags cleared, a demoted master, a dead link.
    Silent,
    /// The queue was full, and events were dropped.
    Overflow,
    /// Wake-ups cannot be heard here: new heads are found by sweeps.
    NoWakeUps,
    /// No subscription can be had: the server refuses it, or cannot be reached.
    NoSubscription,
    /// The server has emptied or loaded its data set. It announces nothing of the keys that it drops then.
    Reloaded,
}

impl Gap {
    /// A word for metrics and reports.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Silent => "silent",
            Self::Overflow => "overflow",
            Self::NoWakeUps => "no_wake_ups",
            Self::NoSubscription => "no_subscription",
            Self::Reloaded => "reloaded",
        }
    }
}

/// Keys to be read on the connection of the subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The asker's number for it.
    pub id: u64,
    /// Which.
    pub keys: Vec<Bytes>,
    /// What is asked of them.
    pub question: Question,
}

/// What is asked of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Their deadlines alone, one by one: each was so at some time before the answer's.
    Glance,
    /// Deadlines and values, all of one moment.
    Read {
        /// What of their values is wanted.
        capture: Capture,
        /// Whose values are: of the keys whose deadline is at most this, in ms; none: of all.
        horizon: Option<u64>,
    },
}

impl Touch {
    /// What came of it.
    pub(super) fn answered(self, answer: Result<Answer>) -> Touched {
        let answer = answer.inspect_err(|error| debug!(%error, "keys were not read"));
        let refused = answer.as_ref().err().filter(|error| error.kind() == ErrorKind::Permission);
        let refused = refused.map(ToString::to_string);
        Touched { id: self.id, answer: answer.ok(), refused }
    }
}

/// The answer to a touch, in the stream behind everything that was published before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The asker's number.
    pub id: u64,
    /// In the order in which the keys were asked for; none where there was no answer.
    pub answer: Option<Answer>,
    /// Why the server refuses, where a right is missing.
    pub refused: Option<String>,
}

/// The server's time, and what was found of each key.
pub type Answer = (ServerTime, Vec<Found>);

impl Touched {
    /// There is no answer.
    pub(super) fn none(id: u64) -> Self {
        Self { id, answer: None, refused: None }
    }

    /// How many bytes the copies of values are.
    pub(crate) fn size(&self) -> usize {
        self.answer.iter().flat_map(|(_, found)| found).map(|one| size_of::<Found>() + one.copy.len()).sum()
    }
}
