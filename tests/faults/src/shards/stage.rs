//! A group of servers with those who use it.

use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keylapse_support::{Deadline, Proxy};
use keylapse_testing::{LocalNode, RedisReply};
use tokio::time::sleep;

use super::{Group, Orders};
use crate::clock::Micros;
use crate::harness::{Cast, Troupe};
use crate::job::{SHARDS, shard};
use crate::ledger::Entry;

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A run with several servers.
#[derive(Debug)]
pub struct Stage {
    /// The servers.
    pub group: Group,
    /// The lines of all to each of them, if they are to fail.
    pub lines: Vec<Proxy>,
    /// Who uses them.
    pub troupe: Troupe,
    /// And who writes keys there, and knows nothing of keylapse.
    pub orders: Orders,
    moved: AtomicUsize,
    begun: Instant,
    talks: bool,
}

impl Stage {
    /// Starts those who use the servers.
    ///
    /// # Panics
    /// If something cannot be started.
    pub async fn open(cast: &Cast, group: Group, lines: Vec<Proxy>, folder: &Path, talks: bool) -> Self {
        let troupe = Troupe::with_servers(cast, &group.url(), folder).await;
        let orders = Orders::new(cast, &group, &troupe.ledger);
        Self { group, lines, troupe, orders, moved: AtomicUsize::new(0), begun: Instant::now(), talks }
    }

    /// Tells whoever watches what happens.
    pub fn say(&self, what: &str) {
        if self.talks {
            println!("{:5.1} s  {what}", self.begun.elapsed().as_secs_f64());
        }
    }

    /// One more slot has another owner.
    pub fn slot_moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// How many slots have.
    pub fn slots_moved(&self) -> usize {
        self.moved.load(Ordering::Relaxed)
    }

    /// Who has a partition, as soon as somebody has.
    ///
    /// # Panics
    /// If nobody has for half a minute.
    pub async fn owner(&self, partition: u32) -> LocalNode {
        let deadline = Deadline::after(Duration::from_secs(30));
        loop {
            if let Some(owner) = self.group.owner(partition).await {
                return owner;
            }
            assert!(!deadline.is_over(), "nobody has partition {partition}");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Puts on record that this server, which has these, was out of reach, and kept them.
    pub fn record_outage(&self, since: Micros, node: &LocalNode, partitions: Vec<u32>, fault: &impl Debug) {
        let (fault, partitions, node) = (format!("{fault:?}"), Some(partitions), Some(node.port()));
        let fault = Entry::Fault { since, actor: None, fault, is_outage: true, partitions, node };
        self.troupe.ledger.write(fault);
    }

    /// Waits until no timer is left, and no key is expected; how many are after this long.
    pub async fn drain(&self, limit: Duration) -> u64 {
        let deadline = Deadline::after(limit);
        loop {
            let left = self.timers().await;
            if left == 0 || deadline.is_over() {
                return left;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Records, what is kept behind running attempts, and keys that are expected. A server that does not answer may have one.
    async fn timers(&self) -> u64 {
        let mut left = 0;
        for partition in 0..SHARDS {
            let owner = self.owner(partition).await;
            for hash in ["timers", "queued", "tracked"] {
                left += match owner.command(["HLEN", shard(partition).key(hash)]).await {
                    Ok(RedisReply::Int(count)) => u64::try_from(count).unwrap_or_default(),
                    _ => 1,
                };
            }
        }
        left
    }
}
