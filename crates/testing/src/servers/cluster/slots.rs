//! Slots that move, all at once or step by step.

use std::ops::RangeInclusive;

use crate::servers::cluster::view::{ClusterView, check_epochs};
use crate::servers::cluster::{CLUSTER_TIMEOUT, LocalCluster};
use crate::servers::{LocalNode, failed, poll_until};
use keylapse::{Error, ErrorKind, Result};

/// How many keys one MIGRATE takes.
const MIGRATE_BATCH: &str = "100";
const MIGRATE_TIMEOUT_MILLIS: &str = "5000";

impl LocalCluster {
    /// Moves a slot with its keys, step by step: `SETSLOT` and `MIGRATE`.
    ///
    /// # Errors
    /// As for [`begin_move`](Self::begin_move), and when a server refuses another step.
    pub async fn move_slot(&self, slot: u16, to: &LocalNode) -> Result<()> {
        let slot = self.begin_move(slot, to).await?;
        slot.move_keys().await?;
        slot.end().await
    }

    /// Marks a slot as on its way, and stops there: the source answers ASK for keys that it
    /// has not, and TRYAGAIN where some of several are missing. Before it does, it waits until all primaries
    /// have heard what became of the last move: slots that move faster than that can lose their owner.
    ///
    /// # Errors
    /// When nobody serves the slot, a server refuses it, or primaries do not come to know each other's epochs within
    /// half a minute.
    pub async fn begin_move(&self, slot: u16, to: &LocalNode) -> Result<SlotMove> {
        poll_until(CLUSTER_TIMEOUT, "the epochs of primaries to be known", async || {
            let views: Vec<_> = self.views().await?.into_iter().map(|(_, view)| view).collect();
            check_epochs(&views)
        })
        .await?;
        let from = self.owner_of_slot(slot).await?;
        to.execute_all(&[set_slot(slot, "IMPORTING", &from)]).await?;
        from.execute_all(&[set_slot(slot, "MIGRATING", to)]).await?;
        let others = self.primaries().await?.into_iter().filter(|node| *node != from && node != to);
        Ok(SlotMove { slot, others: others.collect(), from, to: to.clone() })
    }

    /// Whether the servers move slots as one, as Valkey 9, Redis 8.4 and newer do.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn can_move_slots_atomically(&self) -> Result<bool> {
        Ok(self.atomic_move().await?.is_some())
    }

    /// Moves slots of one node as one, with all their keys: `CLUSTER MIGRATESLOTS` of Valkey, `CLUSTER MIGRATION` of Redis.
    ///
    /// # Errors
    /// Of kind [`Unsupported`](ErrorKind::Unsupported) where the servers have no such command. When one
    /// refuses, or it is not done within half a minute.
    pub async fn move_slots_atomically(&self, slots: RangeInclusive<u16>, to: &LocalNode) -> Result<()> {
        let Some(command) = self.atomic_move().await? else {
            let message = "the servers do not move slots as one: Valkey 9, Redis 8.4 and newer do";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let (first, last) = (*slots.start(), *slots.end());
        match command {
            AtomicMove::OfSource => {
                let id = to.id().unwrap_or_default();
                let from = self.owner_of_slot(first).await?;
                from.execute_all(&[format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {id}")])
                    .await?;
            }
            AtomicMove::OfTarget => {
                to.execute_all(&[format!("CLUSTER MIGRATION IMPORT {first} {last}")]).await?
            }
        }
        poll_until(CLUSTER_TIMEOUT, "the slots to have moved", async || {
            let view = ClusterView::of(to).await?;
            let mine = view.myself()?;
            if slots.clone().all(|slot| mine.has(slot)) {
                Ok(())
            } else {
                Err(failed("they are on their way"))
            }
        })
        .await?;
        self.wait_until_ok().await
    }

    /// The command with which the servers do so.
    async fn atomic_move(&self) -> Result<Option<AtomicMove>> {
        let question = "COMMAND INFO cluster|migrateslots cluster|migration";
        let known: Vec<redis::Value> = self.any()?.ask(question).await?;
        let is_known = |at: usize| known.get(at).is_some_and(|command| *command != redis::Value::Nil);
        Ok(match (is_known(0), is_known(1)) {
            (true, _) => Some(AtomicMove::OfSource),
            (false, true) => Some(AtomicMove::OfTarget),
            (false, false) => None,
        })
    }
}

/// Who is sent the command that moves slots as one.
enum AtomicMove {
    /// The node that has them: `CLUSTER MIGRATESLOTS`.
    OfSource,
    /// The node that gets them: `CLUSTER MIGRATION IMPORT`.
    OfTarget,
}

/// A slot that is on its way from one node to another.
#[derive(Debug)]
#[must_use = "it stays on its way until `end` or `cancel`"]
pub struct SlotMove {
    slot: u16,
    from: LocalNode,
    to: LocalNode,
    others: Vec<LocalNode>,
}

impl SlotMove {
    /// Who has the slot until the move ends.
    pub fn source(&self) -> &LocalNode {
        &self.from
    }

    /// Moves one key; false if the source has none of that name.
    ///
    /// # Errors
    /// When a server refuses it.
    pub async fn move_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.migrate(&[key]).await
    }

    /// Moves all keys that the slot has now, and answers how many it found.
    ///
    /// # Errors
    /// When a server refuses it.
    pub async fn move_keys(&self) -> Result<usize> {
        let question = format!("CLUSTER GETKEYSINSLOT {} {MIGRATE_BATCH}", self.slot);
        let mut moved = 0;
        loop {
            let keys: Vec<Vec<u8>> = self.from.ask(&question).await?;
            if keys.is_empty() {
                return Ok(moved);
            }
            moved += keys.len();
            self.migrate(&keys).await?;
        }
    }

    /// Gives the slot to its new owner, and tells all other primaries.
    ///
    /// # Errors
    /// When the source still has keys of it, or a server refuses it.
    pub async fn end(self) -> Result<()> {
        let command = [set_slot(self.slot, "NODE", &self.to)];
        // The new owner first: were the source the first, nobody would have the slot for a moment.
        for node in [&self.to, &self.from].into_iter().chain(&self.others) {
            node.execute_all(&command).await?;
        }
        Ok(())
    }

    /// Leaves the slot to its source. Keys that have been moved stay where they are.
    ///
    /// # Errors
    /// When a server refuses it.
    pub async fn cancel(self) -> Result<()> {
        let command = [format!("CLUSTER SETSLOT {} STABLE", self.slot)];
        self.from.execute_all(&command).await?;
        self.to.execute_all(&command).await
    }

    async fn migrate(&self, keys: &[impl AsRef<[u8]>]) -> Result<bool> {
        let port = self.to.connect_port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_TIMEOUT_MILLIS];
        if let Some(password) = self.to.password() {
            words.extend(["AUTH", password]);
        }
        words.push("KEYS");
        let words = words.into_iter().map(str::as_bytes).chain(keys.iter().map(AsRef::as_ref));
        let answer: String = self.from.send(&words.collect::<Vec<_>>()).await?;
        Ok(answer == "OK")
    }
}

fn set_slot(slot: u16, state: &str, node: &LocalNode) -> String {
    format!("CLUSTER SETSLOT {slot} {state} {}", node.id().unwrap_or_default())
}
