//! Events of a server, which have a position in its stream, and prompts to read keys, which have none.
//!
//! A write of a key only prompts a read of the key, and the read has its own position. So prompts do not wait in the
//! queue of events. `Prompts` keeps each key once until it is read, in bounded memory.

use std::collections::HashMap;
use std::mem;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::backlog::ByteBounded;
use crate::error::{ErrorKind, Result};
use crate::lock::lock;
use crate::log::debug;
use crate::policy::CopySpec;
use crate::time::ServerTime;
use crate::wire::{Index, KeySnapshot, LeaseRef, NodeId};

/// An event of a server, or a change of the subscription to it. Any client may publish messages, so roles act on the data in
/// Redis and not on the message alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The earliest entry of an index may have changed.
    Wake {
        /// The index of the partition in the list that the stream was opened for.
        partition: usize,
        /// The index that has changed.
        index: Index,
        /// The new earliest deadline, in ms.
        at: u64,
    },
    /// An operator requests a call to a destination that is held back.
    TryNow {
        /// The index of the partition in the list that the stream was opened for.
        partition: usize,
        /// The destination.
        destination: String,
    },
    /// The leading listener leaves due timers to others: it is at capacity, or it has stopped.
    Unclaimed {
        /// The index of the partition in the list that the stream was opened for.
        partition: usize,
        /// The earliest deadline that is left, in ms. With 0, all timers are left.
        at: u64,
    },
    /// A cancel has revoked a claim.
    Fence {
        /// The index of the partition in the list that the stream was opened for.
        partition: usize,
        /// The revoked claim.
        held: LeaseRef,
    },
    /// The server announced that this key has expired.
    Expired(Bytes),
    /// Events may have been missed.
    Gap(Gap),
    /// A heartbeat proved that events arrive, for the first time or after a gap.
    Anchored,
    /// The server behind the stream, under Sentinel. Later events are from this server.
    Server {
        /// The server's run ID, or a name made of its address.
        node: NodeId,
        /// The server's address.
        at: String,
    },
    /// An accepted heartbeat. Not reported in RESP2, where replies to key reads have no position among the events.
    Canary(Canary),
    /// A heartbeat was refused, as its number cannot be the server's next.
    CanaryRefused,
    /// A heartbeat with this number that does not follow the last one. All listeners receive it, so its number can identify
    /// expiries from a gap. It may be forged.
    CanaryUnverified(u64),
    /// Wake-ups of more partitions are subscribed to now. Earlier ones may have been missed, so a sweep follows.
    Joined,
    /// Another server may hold some slots or this server's address now: the cluster's map is stale.
    Moved,
    /// Events were lost at this point of the stream. Has the number of those that the full queue dropped.
    Lost(u64),
    /// A key of an attached topic has changed.
    Changed(Bytes, Change),
    /// The reply to a key read, or the notice that none will arrive.
    KeysRead(KeyReadReply),
    /// The subscriptions to changes of attached keys were answered. Each topic, in the order of the prefixes, has the
    /// error if its subscription was refused.
    Subscribed(Vec<Option<String>>),
}

/// A heartbeat: the expired event of a heartbeat key, whose name has the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canary {
    /// The number of this heartbeat: a time in ms, or one more than the previous number.
    pub number: u64,
    /// The number of the previous heartbeat key.
    pub before: u64,
    /// True if the `set` event of the key arrived on its keyspace channel.
    pub writes: bool,
    /// True if the `expire` event of the key arrived on its keyspace channel.
    pub expires: bool,
}

/// A change of a key, from its keyspace channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The key was written, so its deadline may have changed.
    Written,
    /// The key was deleted or renamed.
    Deleted,
}

/// Why events may have been missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gap {
    /// The connection is lost, or was not opened yet.
    Disconnected,
    /// No heartbeat arrived. The flags may be off, the primary demoted or the connection dead.
    Silent,
    /// The queue was full, and events were dropped.
    Overflow,
    /// Wake-ups cannot be subscribed to, so sweeps find new timers.
    NoWakeUps,
    /// The subscription failed: the server refuses it, or cannot be reached.
    NoSubscription,
    /// The server has emptied or loaded its data set. It does not announce the keys that it drops then.
    Reloaded,
}

impl Gap {
    /// Returns the name in metrics and reports.
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

/// A request to read keys on the subscribed connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRead {
    /// The caller's ID of the request.
    pub id: u64,
    /// The keys, in the order of the reply.
    pub keys: Vec<Bytes>,
    /// The data to read, and how.
    pub kind: KeyReadKind,
}

/// The data that a key read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReadKind {
    /// Deadlines only. Each was read at its own time, before the time in the reply.
    Deadlines,
    /// Deadlines and values. In a cluster, all keys of one slot are read at the same time, elsewhere all keys.
    DeadlinesAndValues {
        /// The parts of values to copy.
        capture: CopySpec,
        /// Copies only values of keys whose deadline is at most this, in ms. `None` copies all values.
        horizon: Option<u64>,
    },
}

impl KeyRead {
    /// Turns the server's answer into the reply. A permission error becomes `refused`.
    pub(super) fn into_reply(self, answer: Result<FoundKeys>) -> KeyReadReply {
        let answer = answer.inspect_err(|error| debug!(%error, "keys were not read"));
        let refused = answer.as_ref().err().filter(|error| error.kind() == ErrorKind::Permission);
        let refused = refused.map(ToString::to_string);
        KeyReadReply { id: self.id, answer: answer.ok(), refused }
    }
}

/// The reply to a key read. It follows everything that the server published before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReadReply {
    /// The caller's ID of the request.
    pub id: u64,
    /// The state of each key, in the order of the request. `None` if the read failed.
    pub answer: Option<FoundKeys>,
    /// The server's error, if the user lacks a right.
    pub refused: Option<String>,
}

/// The server's time, and the state of each key.
pub type FoundKeys = (ServerTime, Vec<KeySnapshot>);

impl KeyReadReply {
    /// Returns the reply to a read that found no connection.
    pub(super) fn unanswered(id: u64) -> Self {
        Self { id, answer: None, refused: None }
    }

    /// Returns the size of the reply in bytes, with the copies of values.
    pub(crate) fn size(&self) -> usize {
        self.answer
            .iter()
            .flat_map(|(_, found)| found)
            .map(|one| size_of::<KeySnapshot>() + one.copy.len())
            .sum()
    }
}

/// Maximum bytes of all waiting prompts: 140,000 keys with short names.
const MAX_PROMPT_BYTES: usize = 16 << 20;
/// Estimated bytes that a prompt takes in addition to its key.
const PROMPT_OVERHEAD: usize = 96;

/// Why a key is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PromptReason {
    /// The server announced a change of the key. It is read only if this listener tracks written keys of the topic.
    Changed,
    /// A writer needs the key read again, or its value. It is read in any case.
    Wanted,
}

/// The queue of keys that the prompter reads.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    waiting: Mutex<PromptQueue>,
    news: Notify,
}

#[derive(Debug)]
struct PromptQueue {
    keys: ByteBounded<HashMap<Bytes, PromptReason>>,
    dropped: usize,
}

impl Default for PromptQueue {
    fn default() -> Self {
        Self { keys: ByteBounded::new(MAX_PROMPT_BYTES, PROMPT_OVERHEAD), dropped: 0 }
    }
}

/// The prompts that were taken from the queue.
#[derive(Debug)]
pub(crate) struct TakenPrompts {
    pub(crate) keys: HashMap<Bytes, PromptReason>,
    /// The number of keys for which there was no space.
    pub(crate) dropped: usize,
}

impl Prompts {
    /// Adds a key that was written. Never waits.
    pub(crate) fn add_changed(&self, key: Bytes) {
        self.add(key, PromptReason::Changed);
    }

    /// Adds a key. A key that waits already is not added again, but `Wanted` replaces `Changed`.
    pub(crate) fn add(&self, key: Bytes, why: PromptReason) {
        let mut waiting = lock(&self.waiting);
        let first = waiting.keys.is_empty();
        if let Some(there) = waiting.keys.get_mut(&key) {
            if why == PromptReason::Wanted {
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

    /// Counts keys as dropped for which another queue had no space.
    pub(crate) fn count_dropped(&self, count: usize) {
        lock(&self.waiting).dropped += count;
        self.news.notify_one();
    }

    /// Waits for new or dropped keys.
    pub(crate) async fn wait_for_news(&self) {
        self.news.notified().await;
    }

    /// Takes all waiting keys.
    pub(crate) fn take_all(&self) -> TakenPrompts {
        let mut waiting = lock(&self.waiting);
        TakenPrompts { keys: waiting.keys.take_all(), dropped: mem::take(&mut waiting.dropped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_written_over_and_over_waits_once_and_what_is_wanted_stays_so() {
        let prompts = Prompts::default();
        for why in [PromptReason::Changed, PromptReason::Wanted, PromptReason::Changed] {
            prompts.add("a".into(), why);
        }
        prompts.add_changed("b".into());
        prompts.add_changed("b".into());
        let TakenPrompts { keys, dropped } = prompts.take_all();
        assert_eq!(keys, [("a".into(), PromptReason::Wanted), ("b".into(), PromptReason::Changed)].into());
        assert_eq!((dropped, prompts.take_all().keys.len()), (0, 0));
    }

    #[test]
    fn prompts_take_bounded_bytes_and_what_is_dropped_is_counted() {
        let prompts = Prompts::default();
        let key = |number: u32| Bytes::from(format!("{number:04000}"));
        let fitting = u32::try_from(MAX_PROMPT_BYTES / (4000 + PROMPT_OVERHEAD)).expect("few");
        (0..fitting + 3).for_each(|number| prompts.add_changed(key(number)));
        prompts.add_changed(key(0));
        let TakenPrompts { keys, dropped } = prompts.take_all();
        assert_eq!((keys.len(), dropped), (fitting as usize, 3), "one that waits already is not dropped");
        prompts.add_changed(key(1));
        prompts.count_dropped(2);
        let TakenPrompts { keys, dropped } = prompts.take_all();
        assert_eq!((keys.len(), dropped), (1, 2), "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_key_wakes_the_waiting_task() {
        let prompts = Prompts::default();
        prompts.add_changed("a".into());
        prompts.wait_for_news().await;
        prompts.take_all();
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, prompts.wait_for_news()).await.is_err(), "there is no news");
        prompts.add_changed("b".into());
        prompts.wait_for_news().await;
        prompts.take_all();
        prompts.count_dropped(1);
        prompts.wait_for_news().await;
    }
}
