//! The server: one thing after another, in the order of arrival.

use std::collections::BTreeSet;

/// A call costs this,
const CALL: u64 = 20;
/// and this for each timer, in microseconds.
const TIMER: u64 = 4;
/// The most timers of a claim.
const BATCH: usize = 1000;
/// How far ahead of their deadlines timers are taken, in ms: the default.
pub(super) const LOOKAHEAD_MS: u64 = 10;
/// Who was not here for so long, in microseconds, is the standby no longer.
const STANDBY_FOR: u64 = 5_000_000;

/// The index, and who claimed from it last.
#[derive(Debug, Default)]
pub(super) struct Server {
    due: BTreeSet<(u64, u64)>,
    ids: u64,
    by: Option<usize>,
    /// Who is the standby, and when it was here.
    standby: Option<(usize, u64)>,
    busy_until: u64,
}

/// What a claim is told.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    /// When it was executed, in microseconds.
    pub(super) stamp: u64,
    /// The deadlines of what was taken, in ms.
    pub(super) taken: Vec<u64>,
    pub(super) head: Option<u64>,
    pub(super) rival: bool,
    pub(super) standby: bool,
}

impl Server {
    /// Its turn comes, and it is done.
    fn serve(&mut self, now: u64) -> u64 {
        let begins = self.busy_until.max(now);
        self.busy_until = begins + CALL;
        begins
    }

    /// Arms a timer; whether the head has moved, and when that is known.
    pub(super) fn arm(&mut self, now: u64, deadline: u64) -> Option<u64> {
        self.serve(now);
        self.busy_until += TIMER;
        let sooner = self.head().is_none_or(|head| deadline < head);
        self.ids += 1;
        self.due.insert((deadline, self.ids));
        sooner.then_some(self.busy_until)
    }

    /// Gives out what is due; and when that is answered.
    pub(super) fn claim(&mut self, now: u64, lane: usize, reach_ms: i64) -> (Claimed, u64) {
        let stamp = self.serve(now);
        let reach = (stamp / 1000).saturating_add_signed(reach_ms);
        let mut taken = Vec::new();
        while taken.len() < BATCH
            && let Some(&first) = self.due.first().filter(|(deadline, _)| *deadline <= reach)
        {
            self.due.remove(&first);
            taken.push(first.0);
        }
        let rival = taken.is_empty() && self.by.is_some_and(|by| by != lane);
        let standby = rival && reach_ms < 0 && self.has_standby(lane, stamp);
        if !taken.is_empty() {
            self.by = Some(lane);
        }
        self.busy_until += TIMER * taken.len() as u64;
        (Claimed { stamp, taken, head: self.head(), rival, standby }, self.busy_until)
    }

    /// Whether another is the standby; else this one is from now on.
    fn has_standby(&mut self, lane: usize, now: u64) -> bool {
        let stands_by = |one| one != lane && Some(one) != self.by;
        let another = self.standby.is_some_and(|(one, at)| stands_by(one) && now - at < STANDBY_FOR);
        if !another {
            self.standby = Some((lane, now));
        }
        another
    }

    /// The lane that took something last.
    pub(super) fn leader(&self) -> Option<usize> {
        self.by
    }

    fn head(&self) -> Option<u64> {
        self.due.first().map(|(deadline, _)| *deadline)
    }
}
