//! One topic: what waits, what is late, and who would run it.

use std::time::Duration;

use crate::error::Result;
use crate::escape::plain;
use crate::wire::{PartitionNames, TopicEntry, WIRE_VERSION};
use crate::{Overview, counted};

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
    /// By how much the first that nobody has claimed is late: what is claimed is scored with the end of its lease.
    overdue: Option<Duration>,
    /// Why nothing is given out.
    paused: Option<String>,
}

impl Seen {
    /// Refuses what another version has made.
    pub(super) fn of(
        entry: TopicEntry,
        partitions: Vec<PartitionNames>,
        held: Overview,
        served: usize,
    ) -> Result<Self> {
        if let Some(version) = held.other_version {
            return Err(strange(format!(
                "it is of wire version {version}, and this program's is {WIRE_VERSION}"
            )));
        }
        let timers = held.timers + if entry.attached { held.enrolled } else { 0 };
        let overdue = (held.first_late_ms > 0).then(|| Duration::from_millis(held.first_late_ms));
        let paused = held.paused.map(|reason| plain(&reason, 200));
        Ok(Self { entry, partitions, served, timers, overdue, paused })
    }
}

pub(super) fn check(topics: &mut Topics<'_>, seen: &Seen) {
    let Seen { entry, served, timers, overdue, paused, .. } = seen;
    let late = overdue.map_or_else(String::new, |late| format!(", the first {} s overdue", late.as_secs()));
    let observed = format!("{}{late}", counted(*timers, "timer"));
    let code = match (paused, served, overdue) {
        (Some(reason), ..) => {
            return topics.say(&codes::PAUSED, &entry.name, &format!("{observed}; because: {reason}"));
        }
        (None, 0, Some(_)) => codes::OVERDUE_UNSERVED,
        (None, 0, None) if *timers > 0 => codes::UNSERVED,
        (None, 1.., Some(late)) if *late > LATE => codes::OVERDUE,
        _ => return,
    };
    topics.say(&code, &entry.name, &format!("{observed}, {}", counted(*served as u64, "listener")));
}
