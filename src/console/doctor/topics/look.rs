//! One topic: what waits, what is late, and who would run it.

use std::time::Duration;

use redis::cmd;

use crate::client::Client;
use crate::connection::Seat;
use crate::error::Result;
use crate::escape::plain;
use crate::wire::{Heads, PartitionNames, TopicEntry, WIRE_VERSION};

use super::super::codes;
use super::{Topics, strange};

/// Sweeps find everything within five seconds. What is later than that and as much again is late.
const LATE: Duration = Duration::from_secs(10);

/// A topic, as it was seen.
pub(super) struct Seen {
    pub(super) entry: TopicEntry,
    pub(super) partitions: Vec<PartitionNames>,
    /// How many listeners have it.
    pub(super) served: usize,
    /// Timers, and keys of other programs that are expected to expire.
    pub(super) timers: u64,
    /// By how much the first that nobody has claimed is late.
    overdue: Option<Duration>,
    /// Why nothing is given out.
    paused: Option<String>,
}

impl Seen {
    pub(super) async fn of(client: &Client, entry: TopicEntry, served: usize) -> Result<Self> {
        let TopicEntry { name, partitions: of, attached, .. } = &entry;
        let names = |index| PartitionNames::new(&client.namespace, name, index, *of, *attached);
        let partitions: Vec<_> = (0..*of).map(names).collect();
        let paused = read_meta(client, &partitions[0]).await?;
        let mut timers = client.store.count_timers(&partitions).await?;
        if *attached {
            timers += client.store.count_enrolled(&partitions).await?;
        }
        let overdue = overdue(client, &partitions).await?;
        Ok(Self { partitions, served, timers, overdue, paused, entry })
    }
}

/// Why it is paused, if it is. Refuses what another version has made.
async fn read_meta(client: &Client, at: &PartitionNames) -> Result<Option<String>> {
    let read = cmd("HMGET").arg(at.key("meta")).arg("v").arg("paused").clone();
    let call = |seat: Seat| {
        let read = read.clone();
        async move { seat.call("reading what a topic is", &read).await }
    };
    let said = client.store.topology().at(at.slot, call).await?;
    let (version, paused): (Option<String>, Option<String>) =
        redis::from_redis_value(said).unwrap_or_default();
    // Words stand there while a topic is destroyed or repartitioned.
    match version.and_then(|version| version.parse::<u32>().ok()) {
        Some(version) if version != WIRE_VERSION => {
            Err(strange(format!("it is of wire version {version}, and this program's is {WIRE_VERSION}")))
        }
        _ => Ok(paused.map(|reason| plain(&reason, 200))),
    }
}

/// What is claimed is scored with the end of its lease, and so not late.
async fn overdue(client: &Client, partitions: &[PartitionNames]) -> Result<Option<Duration>> {
    let mut worst = None;
    for heads in client.store.heads(partitions).await {
        let (now, Heads { due, quarantine }) = heads?;
        let late = due.into_iter().chain(quarantine).min().map(|head| now.ms().saturating_sub(head));
        worst = worst.max(late.filter(|late| *late > 0));
    }
    Ok(worst.map(Duration::from_millis))
}

pub(super) fn check(topics: &mut Topics<'_>, seen: &Seen) {
    let Seen { entry, served, timers, overdue, paused, .. } = seen;
    let late = overdue.map_or_else(String::new, |late| format!(", the first {} s overdue", late.as_secs()));
    let observed = format!("{timers} timers{late}");
    let code = match (paused, served, overdue) {
        (Some(reason), ..) => {
            return topics.say(&codes::PAUSED, &entry.name, &format!("{observed}; because: {reason}"));
        }
        (None, 0, Some(_)) => codes::OVERDUE_UNSERVED,
        (None, 0, None) if *timers > 0 => codes::UNSERVED,
        (None, 1.., Some(late)) if *late > LATE => codes::OVERDUE,
        _ => return,
    };
    topics.say(&code, &entry.name, &format!("{observed}, {served} listeners"));
}
