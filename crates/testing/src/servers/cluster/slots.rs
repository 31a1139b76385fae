//! Moves of slots, atomically or step by step.

use std::ops::RangeInclusive;

use crate::servers::cluster::view::{ClusterView, check_epochs};
use crate::servers::cluster::{CLUSTER_TIMEOUT, LocalCluster};
use crate::servers::{LocalNode, failed, poll_until};
use keylapse::{Error, ErrorKind, Result};

/// The number of keys in one MIGRATE.
const MIGRATE_BATCH: &str = "100";
const MIGRATE_TIMEOUT_MILLIS: &str = "5000";

impl LocalCluster {
    /// Moves a slot with its keys, step by step (`CLUSTER SETSLOT` and `MIGRATE`).
    ///
    /// # Errors
    /// Returns the errors of [`begin_move`](Self::begin_move), or an error if a server refuses a later step.
    pub async fn move_slot(&self, slot: u16, to: &LocalNode) -> Result<()> {
        let slot = self.begin_move(slot, to).await?;
        slot.move_keys().await?;
        slot.end().await
    }

    /// Starts to move a slot, and moves no key yet. From now on the source replies ASK for keys that it does not have, and
    /// TRYAGAIN if it has only some of a command's keys.
    ///
    /// First it waits until all primaries have the result of the last move. Without this wait, a slot could lose its owner.
    ///
    /// # Errors
    /// Returns an error if no node serves the slot, a server refuses, or the primaries do not agree on their epochs within
    /// 30 s.
    pub async fn begin_move(&self, slot: u16, to: &LocalNode) -> Result<SlotMove> {
        poll_until(CLUSTER_TIMEOUT, "the primaries to agree on their epochs", async || {
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

    /// Returns whether the servers can move slots atomically, as Valkey 9, Redis 8.4 and newer can.
    ///
    /// # Errors
    /// Returns an error if no node runs, or the node that is asked does not reply.
    pub async fn can_move_slots_atomically(&self) -> Result<bool> {
        Ok(self.atomic_move().await?.is_some())
    }

    /// Moves slots of one node atomically, with all their keys. The command is `CLUSTER MIGRATESLOTS` on Valkey, and
    /// `CLUSTER MIGRATION` on Redis.
    ///
    /// # Errors
    /// Returns an error of kind [`Unsupported`](ErrorKind::Unsupported) if the servers have no such command. Returns an
    /// error if a server refuses, or the move takes more than 30 s.
    pub async fn move_slots_atomically(&self, slots: RangeInclusive<u16>, to: &LocalNode) -> Result<()> {
        let Some(command) = self.atomic_move().await? else {
            let message = "the servers cannot move slots atomically: use Valkey 9, Redis 8.4 or newer";
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
                to.execute_all(&[format!("CLUSTER MIGRATION IMPORT {first} {last}")]).await?;
            }
        }
        poll_until(CLUSTER_TIMEOUT, "the slots to have moved", async || {
            let view = ClusterView::of(to).await?;
            let mine = view.myself()?;
            if slots.clone().all(|slot| mine.has(slot)) {
                Ok(())
            } else {
                Err(failed("some have not moved yet"))
            }
        })
        .await?;
        self.wait_until_ok().await
    }

    /// Returns the command of these servers that moves slots atomically.
    async fn atomic_move(&self) -> Result<Option<AtomicMove>> {
        let command = "COMMAND INFO cluster|migrateslots cluster|migration";
        let known: Vec<redis::Value> = self.any()?.ask(command).await?;
        let is_known = |at: usize| known.get(at).is_some_and(|command| *command != redis::Value::Nil);
        Ok(match (is_known(0), is_known(1)) {
            (true, _) => Some(AtomicMove::OfSource),
            (false, true) => Some(AtomicMove::OfTarget),
            (false, false) => None,
        })
    }
}

/// The node that receives the command for an atomic move.
enum AtomicMove {
    /// The node that has the slots: `CLUSTER MIGRATESLOTS`.
    OfSource,
    /// The node that gets the slots: `CLUSTER MIGRATION IMPORT`.
    OfTarget,
}

/// A slot that is moving from one node to another.
#[derive(Debug)]
#[must_use = "the slot stays between two nodes until `end` or `cancel`"]
pub struct SlotMove {
    slot: u16,
    from: LocalNode,
    to: LocalNode,
    others: Vec<LocalNode>,
}

impl SlotMove {
    /// Returns the node that owns the slot until the move ends.
    pub fn source(&self) -> &LocalNode {
        &self.from
    }

    /// Moves one key. Returns false if the source does not have it.
    ///
    /// # Errors
    /// Returns an error if a server refuses.
    pub async fn move_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.migrate(&[key]).await
    }

    /// Moves all keys of the slot, and returns how many it found.
    ///
    /// # Errors
    /// Returns an error if a server refuses.
    pub async fn move_keys(&self) -> Result<usize> {
        let command = format!("CLUSTER GETKEYSINSLOT {} {MIGRATE_BATCH}", self.slot);
        let mut moved = 0;
        loop {
            let keys: Vec<Vec<u8>> = self.from.ask(&command).await?;
            if keys.is_empty() {
                return Ok(moved);
            }
            moved += keys.len();
            self.migrate(&keys).await?;
        }
    }

    /// Assigns the slot to its new owner on all primaries.
    ///
    /// # Errors
    /// Returns an error if the source still has keys of the slot, or a server refuses.
    pub async fn end(self) -> Result<()> {
        let command = [set_slot(self.slot, "NODE", &self.to)];
        // The new owner comes first. If the source came first, the slot would have no owner for a moment.
        for node in [&self.to, &self.from].into_iter().chain(&self.others) {
            node.execute_all(&command).await?;
        }
        Ok(())
    }

    /// Cancels the move: the source keeps the slot. Keys that were moved stay at the target.
    ///
    /// # Errors
    /// Returns an error if a server refuses.
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
