//! Keys that other programs write where there are several servers: each is written once, by as many tries as that takes.
//!
//! The last try was answered, and gave the key the deadline that counts. One before it that had no answer may have been
//! done as well: then the key had a life more, which may have fired, too.

use std::collections::BTreeMap;

use super::excuse::Troubles;
use super::fired::Fires;
use super::report::{Finding, Report, Wrong, digits, story};
use super::shards::{Enrolment, Shards, Write};
use crate::clock::{Micros, SECOND};
use crate::job::{is_order, shard_of};
use crate::ledger::{Entry, Life, Line, Succession, Wrote};

/// So many listeners enrol what they hear written, ...
const ENROL: usize = 2;
/// ... so many look for what nobody heard, ...
const SCAN: usize = 1;
/// ... and another does so this long after one has died, at the latest.
const TO_TAKE_OVER: Micros = 8 * SECOND;
/// From when a server announces something until a subscriber has it.
const ON_ITS_WAY: Micros = SECOND / 10;

/// All that is known of them.
#[derive(Debug, Default)]
pub(super) struct Orders(BTreeMap<String, Order>);

#[derive(Debug, Default)]
struct Order {
    tries: Vec<Try>,
    /// When it was seen to be expected.
    enrolled: Vec<Micros>,
    /// When a server announced its end, and which one.
    announced: Vec<(Micros, u16)>,
    fires: Fires,
}

/// A command that wrote the key, or was to.
#[derive(Clone, Copy, Debug)]
struct Try {
    asked: Micros,
    deadline: Micros,
    /// When it was answered, by whom, and whether the replicas had it soon after.
    told: Option<(Micros, Wrote, Option<u16>, Option<bool>)>,
}

impl Try {
    fn may_be_done(&self) -> bool {
        self.told.is_none_or(|(_, wrote, ..)| wrote != Wrote::Nothing)
    }

    /// If it was done, before its deadline.
    fn done(&self) -> Option<Write> {
        let (told, wrote, by, reached) = self.told?;
        let write = Write { asked: self.asked, told, deadline: self.deadline, by, reached };
        (wrote == Wrote::Done && told < self.deadline).then_some(write)
    }
}

impl Orders {
    /// Whether the line is about them.
    pub(super) fn enter(&mut self, at: Micros, pid: u32, entry: &Entry) -> bool {
        match entry {
            Entry::WriteAsked { key, life: Life::Until(deadline), .. } if is_order(key) => {
                self.of(key).tries.push(Try { asked: at, deadline: *deadline, told: None });
            }
            Entry::WriteTold { key, wrote, by, reached } if is_order(key) => {
                let last = self.of(key).tries.last_mut();
                last.into_iter().for_each(|one| one.told = Some((at, *wrote, *by, *reached)));
            }
            Entry::Enrolled { key } if is_order(key) => self.of(key).enrolled.push(at),
            Entry::Heard { key, by: Some(by) } if is_order(key) => self.of(key).announced.push((at, *by)),
            // Those who took the place may have ended it before the next look. It is about servers, too.
            Entry::Succession(Succession { held, .. }) => {
                let orders = held.enrolled.iter().filter(|key| is_order(key));
                orders.for_each(|key| self.of(key).enrolled.push(held.looked));
                return false;
            }
            Entry::Fired { key, .. } | Entry::FiredEnded { key, .. } if is_order(key) => {
                self.of(key).fires.enter(at, pid, entry);
            }
            _ => return false,
        }
        true
    }

    fn of(&mut self, key: &str) -> &mut Order {
        self.0.entry(key.to_owned()).or_default()
    }

    /// Returns when each order was acknowledged, and was seen to be enrolled.
    pub(super) fn enrolments(&self) -> Vec<Enrolment> {
        self.0.values().filter_map(Order::enrolment).collect()
    }

    /// Adds to the report what became of them.
    pub(super) fn judge(&self, lines: &[Line], troubles: &Troubles, report: &mut Report) {
        for (key, order) in &self.0 {
            let mut wrongs = Vec::new();
            order.judge(key, troubles, report, &mut |wrong, what| wrongs.push((wrong, what.to_owned())));
            for (wrong, what) in wrongs {
                let kept = shard_of(key).unwrap_or_default();
                let what = format!("{key}, of partition {kept}: {what}");
                report.findings.push(Finding { n: digits(key), wrong, what, story: story(key, lines) });
            }
        }
    }
}

impl Order {
    fn enrolment(&self) -> Option<Enrolment> {
        let write = self.tries.last()?.done()?;
        let seen = self.enrolled.iter().copied().filter(|at| *at >= write.asked).min()?;
        Some(Enrolment { told: write.told, seen })
    }

    /// Returns true if no listener may have received the announcement of its expiry. A server announces the expiry of a key that
    /// nobody reads when its own cycle finds the key, up to seconds after the deadline.
    fn was_unheard(&self, write: &Write, shards: &Shards) -> bool {
        let mut announced = self.announced.iter().filter(|(at, _)| *at >= write.deadline).peekable();
        if announced.peek().is_none() {
            let time = (write.deadline, write.deadline + SECOND);
            return write.by.is_some_and(|node| shards.was_unheard(node, time));
        }
        announced.all(|(at, node)| shards.was_unheard(*node, (at - ON_ITS_WAY, at + ON_ITS_WAY)))
    }

    /// Returns true if no listener can have enrolled the key or heard its end: docs/attach.md lists these cases.
    fn is_unknowable(&self, key: &str, write: &Write, troubles: &Troubles) -> bool {
        let was_enrolled = self.enrolled.iter().any(|at| *at >= write.asked);
        let (shards, before) =
            (&troubles.shards, (write.deadline.saturating_sub(TO_TAKE_OVER), write.deadline));
        // A write that no listener heard is found by the one that scans.
        let enrolling = if shards.was_written_unheard(write) { SCAN } else { ENROL };
        let nobody_enrols =
            troubles.listeners_in_trouble(before) >= enrolling || shards.lived_without_partition(key, write);
        let is_unheard = self.was_unheard(write, shards);
        let came_and_went = shards.came_and_went_unheard(write) || shards.lived_unheard(write);
        !was_enrolled && (nobody_enrols && is_unheard || came_and_went)
    }

    fn judge(&self, key: &str, troubles: &Troubles, report: &mut Report, find: &mut impl FnMut(Wrong, &str)) {
        let has_fired = self.fires.iter().next().is_some();
        if let Some(write) = self.tries.last().and_then(Try::done) {
            report.attached += 1;
            report.fired += usize::from(has_fired);
            match troubles.shards.unreplicated_key(key, &write) {
                _ if has_fired => {}
                Some(age) if write.reached != Some(true) => report.shards.unreplicated.push(age),
                Some(_) => {
                    find(
                        Wrong::Lost,
                        "it had reached the replicas, and the one that was promoted had it not",
                    );
                }
                None if self.is_unknowable(key, &write, troubles) => report.unknowable += 1,
                None => find(Wrong::Lost, "it was written, and did not fire"),
            }
        }
        let lives: Vec<_> =
            self.tries.iter().filter(|one| one.may_be_done()).map(|one| one.deadline).collect();
        match lives.iter().min() {
            None if has_fired => find(Wrong::Unexpected, "it fired, and all servers had refused it"),
            Some(first) if self.fires.iter().any(|fired| fired.run.started < *first) => {
                find(Wrong::Early, "a handler began before any deadline that it had");
            }
            _ => self.fires.repetitions(&lives, self.fires.was_said(), troubles, report, find),
        }
    }
}
