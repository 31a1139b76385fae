//! The ledgers' lines, put together by arming, key and process.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::attached::Keys;
use super::excuse::Troubles;
use super::orders::Orders;
use crate::clock::{Micros, micros};
use crate::job::{ANSWERS_IN_A_LEASE, Work};
use crate::ledger::{End, Entry, Line, Told};

/// Everything that a run left behind.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) arms: BTreeMap<u64, Arm>,
    /// What was done to each key, in its order: one call after the other, by one producer.
    pub(super) calls: HashMap<String, Vec<Call>>,
    pub(super) runs: HashMap<u64, Vec<Run>>,
    /// When handlers of an arming saw that they held its lease.
    pub(super) leased: HashMap<u64, Vec<(Micros, Micros)>>,
    pub(super) troubles: Troubles,
    /// How long a call waits before it is made again.
    answer_within: Micros,
    pub(super) keys: Keys,
    pub(super) orders: Orders,
}

/// One arming.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) key: String,
    pub(super) work: Work,
    /// The producer's process.
    pub(super) by: u32,
    pub(super) asked: Micros,
    pub(super) delay_ms: u64,
    pub(super) told: Option<(Micros, Told)>,
    pub(super) deadline: Option<Micros>,
    /// Whether as many replicas had it by then as were asked for; none if none were.
    pub(super) reached: Option<bool>,
}

/// One call of a producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The arming's number; none for a cancel.
    pub(super) arm: Option<u64>,
    pub(super) told: Option<(Micros, Told)>,
}

/// One start of a handler.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) key: String,
    pub(super) pid: u32,
    pub(super) attempt: u32,
    pub(super) deadline: Micros,
    pub(super) started: Micros,
    pub(super) ended: Option<(Micros, End)>,
}

impl Run {
    pub(super) fn has_ended(&self, how: End) -> bool {
        self.ended.is_some_and(|(_, end)| end == how)
    }
}

impl Oracle {
    /// Reads lines that are sorted by time.
    pub(super) fn read(lines: &[Line], lease: Micros) -> Self {
        let answer_within = lease / Micros::from(ANSWERS_IN_A_LEASE);
        let mut oracle = Self { troubles: Troubles::new(lease), answer_within, ..Self::default() };
        lines.iter().for_each(|line| oracle.enter(line));
        oracle.troubles.close();
        oracle.troubles.shards.measure(&oracle.orders.enrolments());
        oracle
    }

    fn enter(&mut self, line: &Line) {
        let (at, pid) = (line.at, line.pid);
        if self.orders.enter(at, pid, &line.entry) || self.keys.enter(at, pid, &line.entry) {
            return;
        }
        match &line.entry {
            Entry::ArmAsked { n, key, work, delay_ms } => {
                let (key, work, delay_ms) = (key.clone(), *work, *delay_ms);
                self.calls_of(&key).push(Call { arm: Some(*n), told: None });
                let (told, deadline, reached) = Default::default();
                let arm = Arm { key, work, by: pid, asked: at, delay_ms, told, deadline, reached };
                self.arms.insert(*n, arm);
            }
            Entry::ArmTold { n, told, deadline, reached } => {
                let Some(arm) = self.arms.get_mut(n) else { return };
                (arm.told, arm.deadline, arm.reached) = (Some((at, *told)), *deadline, *reached);
                let key = arm.key.clone();
                self.told(&key, at, *told);
            }
            Entry::CancelAsked { key } => self.calls_of(key).push(Call { arm: None, told: None }),
            Entry::CancelTold { key, told } => self.told(key, at, *told),
            Entry::Started { n, key, attempt, deadline, .. } => {
                let (key, attempt, deadline) = (key.clone(), *attempt, *deadline);
                let run = Run { key, pid, attempt, deadline, started: at, ended: None };
                self.runs.entry(*n).or_default().push(run);
            }
            Entry::Ended { n, attempt, end } => {
                let runs = self.runs.entry(*n).or_default();
                let run = runs.iter_mut().rfind(|run| run.pid == pid && run.attempt == *attempt);
                run.into_iter().for_each(|run| run.ended = Some((at, *end)));
            }
            Entry::Leased { n, since, until } => {
                self.leased.entry(*n).or_default().push((*since, *until));
            }
            about_processes => self.troubles.enter(at, pid, about_processes),
        }
    }

    fn calls_of(&mut self, key: &str) -> &mut Vec<Call> {
        self.calls.entry(key.to_owned()).or_default()
    }

    /// The last call to this key has returned.
    fn told(&mut self, key: &str, at: Micros, told: Told) {
        if let Some(call) = self.calls_of(key).last_mut() {
            call.told = Some((at, told));
        }
    }

    /// What was done to the key of an arming next.
    pub(super) fn call_after(&self, n: u64) -> Option<&Call> {
        let calls = self.calls.get(&self.arms.get(&n)?.key)?;
        let place = calls.iter().position(|call| call.arm == Some(n))?;
        calls.get(place + 1)
    }

    /// Returns true if the producer may have made the call again, because its first answer was lost or came too late. If
    /// the timer has run and ended in between, the second call arms it again (docs/internals/wire.md).
    pub(super) fn may_be_repeated(&self, arm: &Arm) -> bool {
        let until = arm.told.map_or(Micros::MAX, |(at, _)| at);
        let time = (arm.asked, until);
        let waited = until.saturating_sub(arm.asked) >= self.answer_within;
        waited || self.troubles.had_outage(arm.by, time) || self.troubles.shards.had_trouble(&arm.key, time)
    }

    /// The same of an arming by its number.
    pub(super) fn is_repeated(&self, n: u64) -> bool {
        self.arms.get(&n).is_some_and(|arm| self.may_be_repeated(arm))
    }

    /// Whether this run of an arming began before its call returned.
    pub(super) fn ran_before_it_was_told(&self, arm: &Arm, run: &Run) -> bool {
        self.may_be_repeated(arm) && arm.told.is_none_or(|(at, _)| run.started < at)
    }

    /// Returns whether a call that the producer had given up can have armed this run after its repeat was answered. Such a call
    /// may wait in its connection behind others that wait for replicas.
    pub(super) fn was_armed_late(&self, arm: &Arm, run: &Run) -> bool {
        let Some((told, _)) = arm.told.filter(|_| arm.reached.is_some()) else { return false };
        let armed_at = run.deadline.saturating_sub(micros(Duration::from_millis(arm.delay_ms)));
        self.may_be_repeated(arm) && (told..told + self.answer_within).contains(&armed_at)
    }

    /// Whether any did.
    pub(super) fn was_armed_again(&self, n: u64) -> bool {
        let (arm, runs) = (self.arms.get(&n), self.runs.get(&n));
        arm.zip(runs).is_some_and(|(arm, runs)| runs.iter().any(|run| self.ran_before_it_was_told(arm, run)))
    }
}
