//! How much of what has ended is kept: the topic's word, and the partitions that are told of it.

use futures::future::join_all;

use crate::error::Result;
use crate::lock::lock;
use crate::log::debug;
use crate::names::WIRE_VERSION;
use crate::{PartitionNames, Store, scripts};

/// Partitions that are told at the same time.
const TOLD: usize = 250;

/// How much of what has ended each partition keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBounds {
    /// How many ends; 0: none, and what was kept goes.
    pub count: u64,
    /// For how long, in ms.
    pub age_ms: u64,
}

impl Store {
    /// Has partitions keep so much of what ends; also those of them that are made anew later.
    pub async fn keep_journals(
        &self,
        topic: &str,
        bounds: JournalBounds,
        partitions: &[PartitionNames],
    ) -> Result<()> {
        lock(&self.0.journals).insert(topic.to_owned(), bounds);
        for some in partitions.chunks(TOLD) {
            for told in join_all(some.iter().map(|at| self.keep_journal(at, bounds))).await {
                match told {
                    // As for the topic itself: one server that is away does not keep it from the others.
                    Err(error) if self.0.topology.are_many() && error.is_away() => {
                        debug!(topic, %error, "a part of the journal is on a server that is away");
                    }
                    told => _ = told?,
                }
            }
        }
        Ok(())
    }

    /// Has a partition keep so much of what ends; whether that is news.
    pub async fn keep_journal(&self, at: &PartitionNames, bounds: JournalBounds) -> Result<bool> {
        let mut call = self.call(&scripts::JOURNAL, at);
        call.arg(bounds.count).arg(bounds.age_ms);
        Ok(call.reply().await?.int()? == 1)
    }

    /// The same of one that was just made, and of the first, which is made with it, if their topic asks for it.
    pub(crate) async fn journal_anew(&self, at: &PartitionNames) {
        let Some(bounds) = lock(&self.0.journals).get(&at.topic).copied() else { return };
        if bounds.count == 0 {
            return;
        }
        let first = PartitionNames::new(&at.namespace, &at.topic, 0, at.of, at.attached);
        for made in [Some(at), (at.index != 0).then_some(&first)].into_iter().flatten() {
            let mut call = self.call_with(&scripts::JOURNAL, &[made.key("meta"), made.key("journal")]);
            call.arg(WIRE_VERSION).arg(made.of).arg(&made.wake).arg(bounds.count).arg(bounds.age_ms);
            if let Err(error) = call.run_once().await {
                debug!(topic = %at.topic, %error, "a new partition keeps no journal");
            }
        }
    }
}
