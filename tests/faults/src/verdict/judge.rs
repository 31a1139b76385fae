//! Compares what ran with what was promised.

use std::collections::{BTreeMap, HashMap};

use super::excuse::overlaps;
use super::oracle::{Arm, Call, Oracle, Run};
use super::report::{Finding, Report, Wrong};
use crate::clock::{Micros, micros};
use crate::job::{LEASES, RETRY_AFTER};
use crate::ledger::{End, Line, Told};

/// Each story is looked for among all lines, and nobody reads a thousand.
const STORIES: usize = 20;

/// A dead letter, as it was found when all was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The arming's number, from the payload.
    pub n: u64,
    /// Whether it died of lost leases.
    pub by_lost_leases: bool,
    /// When.
    pub died: Micros,
}

/// What is to have become of an arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Done, or dead.
    AnEnd,
    /// At least begun: an arming behind a running attempt takes the place of its retry.
    AStart,
    /// Nothing is certain.
    Nothing,
}

/// Judges a run by its lines, sorted by time, its dead letters and what was left in the index.
pub fn judge(lines: &[Line], letters: &[Letter], lease: Micros, left: u64) -> Report {
    let oracle = Oracle::read(lines, lease);
    let mut dead_letters_of_key: HashMap<u64, Vec<Letter>> = HashMap::new();
    letters.iter().for_each(|letter| dead_letters_of_key.entry(letter.n).or_default().push(*letter));
    let shards = oracle.troubles.shards.report();
    let mut report =
        Report { shards, left, dead: letters.len(), armed: oracle.arms.len(), ..Report::default() };
    for n in oracle.runs.keys().chain(dead_letters_of_key.keys()).filter(|n| !oracle.arms.contains_key(n)) {
        report.find(*n, Wrong::Unexpected, "nobody ever armed it");
    }
    for (n, arm) in &oracle.arms {
        let runs = oracle.runs.get(n).map(Vec::as_slice).unwrap_or_default();
        let letters = dead_letters_of_key.get(n).map(Vec::as_slice).unwrap_or_default();
        Case { n: *n, arm, runs, letters, next: oracle.call_after(*n), oracle: &oracle }.judge(&mut report);
    }
    report.tell_stories(lines, &oracle);
    oracle.keys.judge(lines, &oracle.troubles, &mut report);
    oracle.orders.judge(lines, &oracle.troubles, &mut report);
    report
}

/// One arming before the court.
struct Case<'a> {
    n: u64,
    arm: &'a Arm,
    runs: &'a [Run],
    letters: &'a [Letter],
    /// What was done to its key next.
    next: Option<&'a Call>,
    oracle: &'a Oracle,
}

impl Case<'_> {
    fn judge(&self, report: &mut Report) {
        let is_done = self.runs.iter().any(|run| run.has_ended(End::Done));
        report.acknowledged += usize::from(self.stands());
        report.handled += usize::from(is_done);
        let has_ended = is_done || !self.letters.is_empty();
        match self.due() {
            Due::AnEnd if !has_ended => self.no_end(report),
            Due::AStart if self.runs.is_empty() => {
                report.find(self.n, Wrong::Lost, "it was running and never began");
            }
            _ => {}
        }
        self.early(report);
        self.unexpected(report);
        self.deaths(report);
        self.repetitions(report);
        self.leases(report);
        self.lateness(report);
    }

    /// What never reached the server that was promoted is gone, and that is nobody's fault but of those who did not wait
    /// for a replica.
    fn no_end(&self, report: &mut Report) {
        match self.oracle.troubles.shards.unreplicated(self.n, self.arm, self.runs) {
            None => report.find(self.n, Wrong::Lost, "it was acknowledged and has no end"),
            Some(_) if self.arm.reached == Some(true) => {
                report.find(
                    self.n,
                    Wrong::Lost,
                    "it had reached the replicas, and the one that was promoted had it not",
                );
            }
            Some(age) => report.shards.unreplicated.push(age),
        }
    }

    fn told(&self) -> Option<Told> {
        self.arm.told.map(|(_, told)| told)
    }

    fn stands(&self) -> bool {
        matches!(self.told(), Some(Told::Armed | Told::Replaced | Told::AfterRunning))
    }

    fn due(&self) -> Due {
        if !self.stands() {
            return Due::Nothing;
        }
        let Some(next) = self.next else { return Due::AnEnd };
        match next.told.map(|(_, told)| told) {
            // The first try may have replaced it, and run; what was told is of the second.
            Some(Told::Armed) if next.arm.is_some_and(|next| self.oracle.was_armed_again(next)) => {
                Due::Nothing
            }
            // The first try may have been kept behind it, and have followed it since.
            Some(Told::Armed) if next.arm.is_some_and(|next| self.oracle.is_repeated(next)) => Due::AStart,
            // Only what has ended leaves the key free.
            Some(Told::Armed | Told::NotArmed) => Due::AnEnd,
            Some(Told::AfterRunning) => Due::AStart,
            // A refusal changed nothing.
            Some(Told::Refused) => Due::AnEnd,
            _ => Due::Nothing,
        }
    }

    /// P2, by three witnesses: what the producer asked for, what it was told, and what the handler was told.
    fn early(&self, report: &mut Report) {
        let asked = self.arm.asked + self.arm.delay_ms * 1000;
        if self.arm.deadline.is_some_and(|told| told < asked) {
            report.find(self.n, Wrong::Early, "its deadline is earlier than what was asked for");
        }
        for run in self.runs {
            let earliest = match run.attempt {
                // Until the call returned, it may have armed before, with an earlier deadline.
                1 if self.oracle.may_be_repeated(self.arm) => asked,
                1 => self.arm.deadline.unwrap_or(asked),
                _ => self.retry_not_before(run),
            };
            if run.started < run.deadline || run.started < earliest {
                report.find(self.n, Wrong::Early, "an attempt began before its deadline");
            }
        }
    }

    /// A retry's deadline is counted from the end of a failed attempt.
    fn retry_not_before(&self, run: &Run) -> Micros {
        let before = self.runs.iter().filter(|before| before.attempt + 1 == run.attempt);
        let failed = before.filter(|before| before.has_ended(End::Failed)).filter_map(|before| before.ended);
        failed.map(|(at, _)| at + micros(RETRY_AFTER)).min().unwrap_or_default()
    }

    /// P7, and what was never armed.
    fn unexpected(&self, report: &mut Report) {
        let mut find = |what: &str| report.find(self.n, Wrong::Unexpected, what);
        if self.runs.iter().any(|run| run.key != self.arm.key) {
            find("it ran under another key");
        }
        if self.told() == Some(Told::Refused) && !(self.runs.is_empty() && self.letters.is_empty()) {
            find("its arm was refused");
        }
        let Some((at, told)) = self.next.and_then(|next| next.told) else { return };
        let later: Vec<_> = self.runs.iter().filter(|run| run.started > at).collect();
        match told {
            Told::Cancelled if !later.is_empty() => find("it began after it was cancelled"),
            Told::Replaced if !later.is_empty() => find("it began after it was replaced"),
            Told::Armed | Told::NotArmed if !later.is_empty() => find("it began after it had ended"),
            // One that was claimed before and had not begun.
            Told::InFlight if later.len() > 1 => find("it began twice after it was cancelled in flight"),
            _ => {}
        }
    }

    /// P6: what dies has deserved it, by its work or by lost leases.
    fn deaths(&self, report: &mut Report) {
        // Whose arm had no answer at first may have died, and was armed again by the repeat.
        if self.letters.len() > 1 && !self.oracle.may_be_repeated(self.arm) {
            report.find(self.n, Wrong::Unexpected, "it died twice");
        }
        for letter in self.letters.iter().filter(|_| !self.arm.work.is_deadly()) {
            if !letter.by_lost_leases || self.leases_lost_until(letter.died) < LEASES {
                report.find(self.n, Wrong::Unexpected, "it died, and nothing on record explains why");
            }
        }
    }

    /// How many leases it can have lost, by what is on record: those of its runs, and of processes that
    /// died, dropped their listeners, or were cut off, with it in their hands and had not begun.
    fn leases_lost_until(&self, died: Micros) -> usize {
        let troubles = &self.oracle.troubles;
        let lost = self.runs.iter().filter(|run| troubles.excuse(run)).count();
        let seen: Vec<_> = self.runs.iter().map(|run| run.pid).collect();
        let not_begun = |(by, at): &(u32, Micros)| {
            let held = |run: &&Run| {
                run.pid == *by && run.started <= *at && run.ended.is_none_or(|(end, _)| end >= *at)
            };
            !self.runs.iter().any(|run| held(&run))
        };
        lost + troubles.deaths_between(self.arm.asked, died).filter(|pid| !seen.contains(pid)).count()
            + troubles.let_go_between(self.arm.asked, died).filter(not_begun).count()
            + troubles.unanswered_claims(self.runs, (self.arm.asked, died))
    }

    /// An attempt that runs again, or goes on to the next after it was done.
    fn repetitions(&self, report: &mut Report) {
        let mut by_attempt: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
        self.runs.iter().for_each(|run| by_attempt.entry(run.attempt).or_default().push(run));
        let mut done_before: Option<&Run> = None;
        for runs in by_attempt.values() {
            let firsts = done_before.into_iter().chain(runs.iter().copied());
            for before in firsts.take(runs.len() - usize::from(done_before.is_none())) {
                report.duplicated += 1;
                let troubles = &self.oracle.troubles;
                if troubles.excuse(before)
                    || self.oracle.ran_before_it_was_told(self.arm, before)
                    || runs.iter().any(|run| self.oracle.was_armed_late(self.arm, run))
                    || runs.iter().any(|run| troubles.stood_still_at_its_start(run))
                {
                    report.explained += 1;
                } else {
                    report.find(
                        self.n,
                        Wrong::Unexplained,
                        "an attempt ran again, and nothing on record explains why",
                    );
                }
            }
            done_before = done_before.or(runs.iter().copied().find(|run| run.has_ended(End::Done)));
        }
    }

    /// P4, but where a claim had not reached the server that was promoted.
    fn leases(&self, report: &mut Report) {
        let mut leased = self.oracle.leased.get(&self.n).cloned().unwrap_or_default();
        leased.sort_unstable();
        let shards = &self.oracle.troubles.shards;
        for pair in leased.windows(2).filter(|pair| overlaps(pair[0], pair[1])) {
            if !shards.excuse(&self.arm.key, pair[0]) {
                report.find(self.n, Wrong::Unexpected, "two attempts saw that they held the lease at a time");
            }
        }
    }

    /// Of the first start of each attempt: what runs again was on time before.
    fn lateness(&self, report: &mut Report) {
        let mut last = 0;
        for run in self.runs.iter().filter(|run| std::mem::replace(&mut last, run.attempt) != run.attempt) {
            let late = run.started.saturating_sub(run.deadline);
            report.late.push(late);
            let shards = &self.oracle.troubles.shards;
            report.shards.late.entry(shards.weather(&run.key, run.deadline)).or_default().push(late);
            let caught_up = shards.caught_up_after(&run.key, run.deadline, run.started);
            report.shards.caught_up_after = report.shards.caught_up_after.max(caught_up);
        }
    }
}

impl Report {
    fn find(&mut self, n: u64, wrong: Wrong, what: &str) {
        self.findings.push(Finding { n, wrong, what: what.to_owned(), story: Vec::new() });
    }

    /// Adds to the first findings all lines about their keys, whose armings have told their numbers.
    fn tell_stories(&mut self, lines: &[Line], oracle: &Oracle) {
        for finding in self.findings.iter_mut().take(STORIES) {
            let Some(arm) = oracle.arms.get(&finding.n) else { continue };
            let armings = oracle.calls[&arm.key].iter().filter_map(|call| call.arm);
            let mut marks: Vec<_> = armings.map(|n| format!("\"n\":{n},")).collect();
            marks.push(format!("\"key\":\"{}\"", arm.key));
            let texts = lines.iter().filter_map(|line| serde_json::to_string(line).ok());
            finding.story = texts.filter(|text| marks.iter().any(|mark| text.contains(mark))).collect();
        }
    }
}
