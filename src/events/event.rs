//! What is heard of a server: events, which have a place in its stream, and hints, which have none.
//!
//! That a key was written is a hint to read it, and nothing else: where the hint stands in the stream says nothing,
//! as the reading has a place of its own. So hints do not queue among events. `Prompts` keeps them until the keys are
//! read, each key once, however often it is written, and at most so many bytes of them.

use std::collections::HashMap;
use std::mem;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::backlog::ByteBounded;
use crate::error::{ErrorKind, Result};
use crate::lock::lock;
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

/// What waits takes so many bytes at most: with short names, 140,000 keys.
const BYTES: usize = 16 << 20;
/// About what a key costs beside its own bytes.
const EACH: usize = 96;

/// Why a key is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Prompt {
    /// It was heard to change.
    Changed,
    /// Somebody has to know more of it, its value above all.
    Wanted,
}

/// The keys that wait, and those who wait for them.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug)]
struct Waiting {
    keys: ByteBounded<HashMap<Bytes, Prompt>>,
    dropped: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { keys: ByteBounded::new(BYTES, EACH), dropped: 0 }
    }
}

/// What has waited.
#[derive(Debug)]
pub(crate) struct Prompted {
    pub(crate) keys: HashMap<Bytes, Prompt>,
    /// How many found no room.
    pub(crate) dropped: usize,
}

impl Prompts {
    /// A key was heard to be written. Never waits.
    pub(crate) fn hear(&self, key: Bytes) {
        self.add(key, Prompt::Changed);
    }

    /// Has a key read. One that waits already is read once.
    pub(crate) fn add(&self, key: Bytes, why: Prompt) {
        let mut waiting = lock(&self.waiting);
        let first = waiting.keys.is_empty();
        if let Some(there) = waiting.keys.get_mut(&key) {
            if why == Prompt::Wanted {
                *there = why;
            }
        } else if waiting.keys.take_room(&key) {
            waiting.keys.insert(key, why);
        } else {
            waiting.dropped += 1;
        }
        drop(waiting);
        if first {
            self.news.notify_one();
        }
    }

    /// So many others found no room, where they had to wait.
    pub(crate) fn leave_out(&self, count: usize) {
        lock(&self.waiting).dropped += count;
        self.news.notify_one();
    }

    /// Waits until there are any.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// All that wait.
    pub(crate) fn take(&self) -> Prompted {
        let mut waiting = lock(&self.waiting);
        Prompted { keys: waiting.keys.take_all(), dropped: mem::take(&mut waiting.dropped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_written_over_and_over_waits_once_and_what_is_wanted_stays_so() {
        let prompts = Prompts::default();
        for why in [Prompt::Changed, Prompt::Wanted, Prompt::Changed] {
            prompts.add("a".into(), why);
        }
        prompts.hear("b".into());
        prompts.hear("b".into());
        let Prompted { keys, dropped } = prompts.take();
        assert_eq!(keys, [("a".into(), Prompt::Wanted), ("b".into(), Prompt::Changed)].into());
        assert_eq!((dropped, prompts.take().keys.len()), (0, 0));
    }

    #[test]
    fn prompts_take_bounded_bytes_and_what_is_dropped_is_counted() {
        let prompts = Prompts::default();
        let key = |number: u32| Bytes::from(format!("{number:04000}"));
        let fitting = u32::try_from(BYTES / (4000 + EACH)).expect("few");
        (0..fitting + 3).for_each(|number| prompts.hear(key(number)));
        prompts.hear(key(0));
        let Prompted { keys, dropped } = prompts.take();
        assert_eq!((keys.len(), dropped), (fitting as usize, 3), "one that waits already is not dropped");
        prompts.hear(key(1));
        prompts.leave_out(2);
        let Prompted { keys, dropped } = prompts.take();
        assert_eq!((keys.len(), dropped), (1, 2), "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_hears_of_the_first_key() {
        let prompts = Prompts::default();
        prompts.hear("a".into());
        prompts.news().await;
        prompts.take();
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, prompts.news()).await.is_err(), "there is no news");
        prompts.hear("b".into());
        prompts.news().await;
        prompts.take();
        prompts.leave_out(1);
        prompts.news().await;
    }
}
