//! What only several servers have: places that others take, and what they had not been told by then.

use std::collections::BTreeMap;
use std::fmt;

use super::excuse::{TO_RECONNECT, overlaps};
use super::oracle::{Arm, Run};
use super::report::ms_of;
use crate::clock::{Micros, SECOND};
use crate::job::shard_of;
use crate::ledger::Succession;

/// A replica has what its primary acknowledged so long ago, on a busy machine, too. What is older and not there was lost
/// otherwise.
const LAG: Micros = SECOND;
/// Writes of so long before a primary fell show how long enrolling took then.
const RECENT: Micros = 10 * SECOND;
/// From when a server is seen in its new place until what was overdue there has begun.
const TO_CATCH_UP: Micros = 2 * SECOND;

/// An answer that was sent just before its server fell is read so much later at the most, on a busy machine. Nobody takes that
/// server's place sooner than a second after: sentinels wait for one, nodes of a cluster for two.
const READ_LATE: Micros = 250_000;

/// What befell the servers that keep parts of a topic.
#[derive(Debug, Default)]
pub(super) struct Shards {
    replacements: Vec<Replacement>,
    outages: Vec<Outage>,
    /// By server: from when on how many listeners were subscribed to it.
    subscribed: BTreeMap<u16, Vec<(Micros, usize)>>,
    /// When slots moved, whose ever they were.
    moves: Vec<(Micros, Micros)>,
}

/// A server was out of reach, and kept its place.
#[derive(Debug)]
struct Outage {
    partitions: Vec<u32>,
    node: Option<u16>,
    time: (Micros, Micros),
}

/// What a timer's server went through when it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weather {
    /// It was being replaced.
    Failed,
    /// Slots were moving.
    Moving,
    /// Neither.
    Calm,
}

/// A server that took another's place.
#[derive(Debug)]
struct Replacement {
    record: Succession,
    /// When the old one knew it.
    over: Micros,
    /// How long the slowest enrolment took, of the keys that were written in the seconds before the primary fell.
    enrolling_took: Micros,
    /// From when on a listener was subscribed to the new one.
    subscribed: Micros,
}

/// When a write was acknowledged, and its key was seen to be enrolled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enrolment {
    pub(super) told: Micros,
    pub(super) seen: Micros,
}

/// A key that another program wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) asked: Micros,
    pub(super) told: Micros,
    pub(super) deadline: Micros,
    /// Who acknowledged it.
    pub(super) by: Option<u16>,
    /// Whether all replicas that were asked for had it soon after.
    pub(super) reached: Option<bool>,
}

impl Replacement {
    /// From the first thing that may not have reached the new one until nobody asks the old one any more.
    fn time(&self) -> (Micros, Micros) {
        (self.record.since.saturating_sub(LAG), self.over + SECOND)
    }

    /// Returns true if the old primary acknowledged the write after it fell, or at most `before` earlier.
    fn was_told_within(&self, before: Micros, write: &Write) -> bool {
        let is_by_the_old = write.by == Some(self.record.node) && write.asked <= self.over;
        is_by_the_old && self.record.since.saturating_sub(write.told) <= before
    }

    /// When every listener was subscribed to the new one, if nothing held it up, or the first was.
    fn is_listened_to(&self) -> Micros {
        self.subscribed.max(self.record.promoted + TO_RECONNECT)
    }

    fn measure_subscribing(&mut self, subscribed: &BTreeMap<u16, Vec<(Micros, usize)>>) {
        let promoted = self.record.promoted;
        let of_it = subscribed.get(&self.record.successor).map(Vec::as_slice).unwrap_or_default();
        let (before, after) = of_it.split_at(of_it.partition_point(|(at, _)| *at <= promoted));
        let was_before = before.last().is_some_and(|(_, listeners)| *listeners > 0);
        let first = after.iter().find(|(_, listeners)| *listeners > 0).map(|(at, _)| *at);
        self.subscribed = if was_before { promoted } else { first.unwrap_or(promoted) };
    }

    fn measure_enrolling(&mut self, enrolments: &[Enrolment]) {
        let recent = self.record.since.saturating_sub(RECENT)..self.record.since;
        let of_then =
            enrolments.iter().filter(|one| recent.contains(&one.told) && one.seen <= self.record.since);
        self.enrolling_took = of_then.map(|one| one.seen.saturating_sub(one.told)).max().unwrap_or_default();
    }

    /// Whether the old one acknowledged it then, and the new one did not have it. What had
    /// expired by the time that one was looked at may have been there.
    fn has_lost(&self, key: &str, write: &Write) -> bool {
        let had_lost_its_place = write.asked >= self.record.promoted;
        let would_be_seen = write.deadline > self.record.held.looked;
        let is_there = self.record.held.keys.binary_search_by(|held| held.as_str().cmp(key)).is_ok();
        self.was_told_within(LAG, write) && (had_lost_its_place || would_be_seen && !is_there)
    }

    /// Returns true if nobody may have enrolled the key, and it expired before listeners had subscribed to the new primary: the
    /// old one acknowledged it too late for that, or the new one did.
    fn came_and_went_unheard(&self, write: &Write) -> bool {
        let was_too_late = self.was_told_within(LAG.max(self.enrolling_took), write);
        let was_too_early = write.by == Some(self.record.successor) && self.record.since <= write.asked;
        (was_too_late || was_too_early) && write.deadline <= self.is_listened_to()
    }
}

impl Shards {
    pub(super) fn succession(&mut self, at: Micros, record: &Succession) {
        let mut record = record.clone();
        record.held.numbers.sort_unstable();
        record.held.keys.sort_unstable();
        self.replacements.push(Replacement { record, over: at, enrolling_took: 0, subscribed: 0 });
    }

    pub(super) fn subscribed(&mut self, at: Micros, node: u16, listeners: usize) {
        self.subscribed.entry(node).or_default().push((at, listeners));
    }

    /// Measures for each succession how far behind enrolling was when the primary fell, and when the new one had a listener.
    pub(super) fn measure(&mut self, enrolments: &[Enrolment]) {
        for one in &mut self.replacements {
            one.measure_enrolling(enrolments);
            one.measure_subscribing(&self.subscribed);
        }
    }

    pub(super) fn outage(&mut self, partitions: &[u32], node: Option<u16>, time: (Micros, Micros)) {
        self.outages.push(Outage { partitions: partitions.to_vec(), node, time });
    }

    /// Returns true if what this server announced in this time may have reached no listener.
    pub(super) fn was_unheard(&self, node: u16, time: (Micros, Micros)) -> bool {
        self.outages_of(Some(node)).any(|outage| overlaps(outage, time))
    }

    /// Returns true if the key was written while the line to its server was broken, or before a listener was back.
    pub(super) fn was_written_unheard(&self, write: &Write) -> bool {
        self.outages_of(write.by).any(|(since, until)| (since..=until).contains(&write.asked))
    }

    /// Returns true if the key expired by then, too.
    pub(super) fn lived_unheard(&self, write: &Write) -> bool {
        self.outages_of(write.by).any(|(since, until)| since <= write.asked && write.deadline <= until)
    }

    fn outages_of(&self, node: Option<u16>) -> impl Iterator<Item = (Micros, Micros)> {
        self.outages.iter().filter(move |one| one.node.is_some() && one.node == node).map(|one| one.time)
    }

    /// Returns true if the key was written and expired while another took the place of its partition's server.
    pub(super) fn lived_without_partition(&self, key: &str, write: &Write) -> bool {
        let is_over = |one: &Replacement| write.deadline <= one.is_listened_to();
        self.of(key).any(|one| !one.record.is_orderly && one.record.since <= write.asked && is_over(one))
    }

    pub(super) fn moved(&mut self, time: (Micros, Micros)) {
        self.moves.push(time);
    }

    /// When the server of this key was out of reach.
    pub(super) fn outages(&self, key: &str) -> impl Iterator<Item = (Micros, Micros)> {
        let shard = shard_of(key);
        let ours = move |one: &&Outage| shard.is_some_and(|shard| one.partitions.contains(&shard));
        self.outages.iter().filter(ours).map(|one| one.time)
    }

    fn of(&self, key: &str) -> impl Iterator<Item = &Replacement> {
        let shard = shard_of(key);
        self.replacements
            .iter()
            .filter(move |one| shard.is_some_and(|shard| one.record.partitions.contains(&shard)))
    }

    /// Whether what was done in this time may not have reached the server that was promoted, or was done by one that had
    /// been replaced.
    pub(super) fn excuse(&self, key: &str, time: (Micros, Micros)) -> bool {
        self.of(key).any(|one| !one.record.is_orderly && overlaps(one.time(), time))
    }

    /// Whether an answer may have been lost in this time.
    pub(super) fn had_trouble(&self, key: &str, time: (Micros, Micros)) -> bool {
        let mut times = self.of(key).map(Replacement::time).chain(self.outages(key));
        times.any(|trouble| overlaps(trouble, time))
    }

    /// How long before its server's fall an arming was acknowledged that never reached the one in its place. None if it did,
    /// or if that cannot be why it has no end.
    pub(super) fn unreplicated(&self, n: u64, arm: &Arm, runs: &[Run]) -> Option<Micros> {
        let (told, _) = arm.told?;
        let lost_by = |one: &&Replacement| {
            let only_the_old_could = one.record.sole_until.max(one.record.since + READ_LATE);
            let was_told_by_the_old =
                arm.asked < one.record.since.max(one.record.sole_until) && told <= only_the_old_could;
            let is_recent = one.record.since.saturating_sub(told) <= LAG;
            let has_begun_since = runs.iter().any(|run| run.started >= one.record.promoted);
            was_told_by_the_old
                && is_recent
                && !has_begun_since
                && one.record.held.numbers.binary_search(&n).is_err()
        };
        self.of(&arm.key)
            .filter(|one| !one.record.is_orderly)
            .find(lost_by)
            .map(|one| one.record.since.saturating_sub(told))
    }

    /// The same of a key that another program wrote: it lies where it was written, wherever its timers are kept.
    pub(super) fn unreplicated_key(&self, key: &str, write: &Write) -> Option<Micros> {
        let lost_by = |one: &&Replacement| !one.record.is_orderly && one.has_lost(key, write);
        self.replacements.iter().find(lost_by).map(|one| one.record.since.saturating_sub(write.told))
    }

    /// Returns true if no listener could learn of this key: it was written when its primary had just fallen, or to the new
    /// one, and it expired before listeners had subscribed to that one.
    pub(super) fn came_and_went_unheard(&self, write: &Write) -> bool {
        self.replacements.iter().any(|one| !one.record.is_orderly && one.came_and_went_unheard(write))
    }

    /// What happened to this key's server when a timer of that deadline was due.
    pub(super) fn weather(&self, key: &str, deadline: Micros) -> Weather {
        let failed =
            |one: &Replacement| (one.record.since..=one.record.promoted + TO_CATCH_UP).contains(&deadline);
        if self.of(key).any(failed) {
            Weather::Failed
        } else if self.moves.iter().any(|(since, until)| (since..=until).contains(&&deadline)) {
            Weather::Moving
        } else {
            Weather::Calm
        }
    }

    /// How long after its server's place was taken began what had come due while it was empty.
    pub(super) fn caught_up_after(&self, key: &str, deadline: Micros, started: Micros) -> Option<Micros> {
        let was_empty = |one: &&Replacement| (one.record.since..=one.record.promoted).contains(&deadline);
        self.of(key).find(was_empty).map(|one| started.saturating_sub(one.record.promoted))
    }

    /// With which the report begins.
    pub(super) fn report(&self) -> ByShard {
        let promoted_after = self.replacements.iter().map(|one| one.record.promoted - one.record.since).max();
        ByShard { promoted_after, ..ByShard::default() }
    }
}

/// What is told of a run with several servers.
#[derive(Clone, Debug, Default)]
pub struct ByShard {
    /// The longest that a server's place was empty.
    pub promoted_after: Option<Micros>,
    /// The longest from then on until the last had begun that had come due meanwhile.
    pub caught_up_after: Option<Micros>,
    /// How late what was due began.
    pub late: BTreeMap<Weather, Vec<Micros>>,
    /// Armings that were acknowledged without waiting for a replica and never reached the one that was promoted: how
    /// old each was when its server fell.
    pub unreplicated: Vec<Micros>,
}

impl ByShard {
    /// The 99th percentile of what was due where the fault was, and of all else, in milliseconds.
    pub fn late_there_and_elsewhere(&self) -> (f64, f64) {
        let there = self.late_ms(Weather::Failed).or_else(|| self.late_ms(Weather::Moving));
        (there.unwrap_or(0.0), self.late_ms(Weather::Calm).unwrap_or(0.0))
    }

    fn late_ms(&self, weather: Weather) -> Option<f64> {
        self.late.get(&weather).map(|late| ms_of(late, 0.99))
    }
}

/// The end of the last line.
impl fmt::Display for ByShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let promoted = self.promoted_after.unwrap_or_default() / 1000;
        let [others, failed] =
            [Weather::Calm, Weather::Failed].map(|weather| self.late_ms(weather).unwrap_or(0.0));
        write!(f, "promoted_after_ms={promoted} late_p99_ms_other_shards={others:.1} ")?;
        write!(f, "late_p99_ms_failed_shard={failed:.1} unreplicated={}", self.unreplicated.len())?;
        if let Some(moving) = self.late_ms(Weather::Moving) {
            write!(f, " late_p99_ms_while_slots_move={moving:.1}")?;
        }
        if let Some(after) = self.caught_up_after {
            write!(f, " caught_up_after_ms={:.0}", after as f64 / 1000.0)?;
        }
        match self.unreplicated.iter().max() {
            Some(oldest) => write!(f, " unreplicated_max_age_ms={:.1}", *oldest as f64 / 1000.0),
            None => Ok(()),
        }
    }
}
