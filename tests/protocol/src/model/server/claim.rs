//! claim.lua.

use super::Server;
use crate::model::rules::Rule;
use crate::model::world::{Few, Index, KEYS, Phase, Run, Slot};

/// A claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) index: Index,
    pub(crate) token: u8,
    pub(crate) foremost: usize,
    pub(crate) repeat: bool,
    /// The repeat has room for this key alone.
    pub(crate) only: Option<usize>,
    /// What of the quarantine its worker runs already: lost leases of each.
    pub(crate) beside: [Option<u8>; KEYS],
}

impl Claim {
    /// The keys in the order in which they are looked at.
    fn order(&self, keys: usize) -> impl Iterator<Item = usize> + use<> {
        let first = if self.index == Index::Quarantine { self.foremost } else { 0 };
        (0..keys).map(move |key| {
            if key == 0 {
                first
            } else if key <= first {
                key - 1
            } else {
                key
            }
        })
    }
}

/// The keys that a claim holds.
pub(crate) type Taken = Few;

impl Server<'_> {
    pub(crate) fn claim(&mut self, call: Claim) -> Taken {
        if call.repeat
            && self.has(Rule::LaneSlot)
            && let Some(slot) = self.lane.filter(|slot| slot.token == call.token)
        {
            return self.claimed_before(slot, call.only);
        }
        let ready = self.ready(call.index);
        let mut taken = Few::default();
        let mut group: Vec<_> = call.beside.into_iter().flatten().collect();
        for key in call.order(self.timers.len()) {
            let number = u8::try_from(key).unwrap_or_default();
            if !ready.has(number) {
                continue;
            }
            match self.attend(key, call, &mut group) {
                Some(true) => taken.add(number),
                Some(false) => {}
                // It does not fit into the group, and nobody goes before it.
                None => break,
            }
        }
        if !taken.is_empty() {
            *self.lane = Some(Slot { token: call.token, keys: taken });
        }
        taken
    }

    /// Renews the leases of the timers that the lane's last claim still holds, and returns these timers. Hands back
    /// those that `only` leaves out.
    fn claimed_before(&mut self, slot: Slot, only: Option<usize>) -> Taken {
        let mut taken = Few::default();
        for (key, number) in (0..self.timers.len()).zip(0..) {
            let timer = &mut self.timers[key];
            if !(slot.keys.has(number) && timer.is_claimed() && timer.is_held_by(slot.token)) {
                continue;
            }
            if only.is_none_or(|only| only == key) {
                timer.score = Phase::Far;
                taken.add(number);
            } else {
                self.release(key);
            }
        }
        taken
    }

    /// Whether those that have lost so many leases may run together.
    fn is_group(&self, lost: &[u8]) -> bool {
        let alone = self.has(Rule::AloneAtLast) && lost.iter().any(|lost| lost + 1 >= self.scope.poison);
        lost.len() < 2 || !alone
    }

    /// Looks at one key whose time has come; whether it was taken. None if it does not fit into the group.
    fn attend(&mut self, key: usize, call: Claim, group: &mut Vec<u8>) -> Option<bool> {
        let timer = self.timers[key];
        let mut run = timer.state();
        if run.claimed {
            if timer.score < Phase::Past && self.has(Rule::LiveLease) {
                return Some(false);
            }
            run.lost += 1;
            if run.lost >= self.scope.poison && self.has(Rule::Poison) {
                self.bury(key, self.scope.poison - 1);
                return Some(false);
            }
        }
        // Without the bound, a count that grows for ever would never be
        // explored; beyond it nothing depends on the count.
        run.lost = run.lost.min(self.scope.poison + 1);
        if call.index == Index::Due && self.place(run.lost) == Index::Quarantine {
            let timer = &mut self.timers[key];
            timer.run = Some(Run { claimed: false, ..run });
            (timer.place, timer.score) = (Some(Index::Quarantine), Phase::Past);
            return Some(false);
        }
        if call.index == Index::Quarantine {
            group.push(run.lost);
            if !self.is_group(group) {
                return None;
            }
        }
        self.hold(key, call.token, run);
        Some(true)
    }

    fn hold(&mut self, key: usize, token: u8, run: Run) {
        let timer = &mut self.timers[key];
        let lapsed = timer.is_claimed();
        timer.passed = timer.score == Phase::Past || lapsed;
        timer.run = Some(Run { claimed: true, token, ..run });
        timer.score = Phase::Far;
        if !self.has(Rule::StaysIndexed) {
            self.timers[key].place = None;
        }
    }
}
