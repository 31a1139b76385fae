//! All that one store keeps, behind one lock.

use std::collections::HashMap;

use crate::wire::memory::stream::EventStream;
use crate::wire::memory::ledger::Ledger;
use crate::wire::memory::triggers::Triggers;
use crate::wire::memory::turn::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::events::event::Event;
use crate::wire::names::Partition;
use crate::time::ServerTime;

#[derive(Debug, Default)]
pub(super) struct World {
    /// How many partitions each topic has, by namespace and name.
    topics: HashMap<(String, String), u32>,
    /// By the names of their meta keys.
    ledgers: HashMap<String, Ledger>,
    pub(super) triggers: Triggers,
    pub(super) stream: EventStream,
}

impl World {
    /// Makes sure that the partition exists as the caller believes, as
    /// init.lua and the prelude do.
    pub(super) fn agree(&mut self, at: &Partition) -> Result<&mut Ledger> {
        let topic = (at.namespace.clone(), at.topic.clone());
        let of = *self.topics.entry(topic).or_insert(at.of);
        if of != at.of {
            let message = format!(
                "topic {} has {of} partitions, this program says {}; use the same number everywhere",
                at.topic, at.of
            );
            return Err(Error::new(ErrorKind::Partitions, message));
        }
        Ok(self.ledgers.entry(at.meta.clone()).or_default())
    }

    /// The partition as it is, if it is.
    pub(super) fn ledger(&mut self, at: &Partition) -> Option<&mut Ledger> {
        self.ledgers.get_mut(&at.meta)
    }

    pub(super) fn timers(&self) -> usize {
        self.ledgers.values().map(|ledger| ledger.rec.len()).sum()
    }

    /// Makes one call on a partition, and tells of it.
    pub(super) fn call<T>(
        &mut self,
        at: &Partition,
        stamp: ServerTime,
        call: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> Result<T> {
        let mut turn = Turn::new(self.agree(at)?, stamp);
        let answer = call(&mut turn);
        let signals = turn.signals();
        self.stream.tell(at, signals);
        Ok(answer)
    }

    /// Works on the trigger keys, and tells of those that expired by it.
    pub(super) fn triggering<T>(&mut self, call: impl FnOnce(&mut Triggers) -> T) -> T {
        let answer = call(&mut self.triggers);
        for key in self.triggers.take_expired() {
            self.stream.tell_all(&Event::Expired(key));
        }
        answer
    }
}
