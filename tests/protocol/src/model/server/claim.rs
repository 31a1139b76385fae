//! claim.lua.

use super::Server;
use crate::model::rules::Rule;
use crate::model::world::{Few, Index, Phase, Run, Slot};

/// A claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) index: Index,
    pub(crate) token: u8,
    pub(crate) foremost: usize,
    pub(crate) repeat: bool,
}

/// The keys that a claim holds.
pub(crate) type Taken = Few;

impl Server<'_> {
    pub(crate) fn claim(&mut self, call: Claim) -> Taken {
        if call.repeat
            && self.has(Rule::LaneSlot)
            && let Some(slot) = self.lane.filter(|slot| slot.token == call.token)
        {
            return self.claimed_before(slot);
        }
        let ready = self.ready(call.index);
        let mut taken = Few::default();
        for (key, number) in (0..self.timers.len()).zip(0..) {
            if ready.has(number) && self.is_asked_for(key, ready, call) && self.attend(key, call) {
                taken.add(number);
            }
        }
        if !taken.is_empty() {
            *self.lane = Some(Slot { token: call.token, keys: taken });
        }
        taken
    }

    /// Of what is in quarantine, one at most is looked at.
    fn is_asked_for(&self, key: usize, ready: Few, call: Claim) -> bool {
        let others =
            (0..self.timers.len()).zip(0..).filter(|(other, number)| *other != key && ready.has(*number));
        call.index == Index::Due || key == call.foremost || others.count() == 0
    }

    /// What the lane's last claim still holds, with its leases renewed.
    fn claimed_before(&mut self, slot: Slot) -> Taken {
        let mut taken = Few::default();
        for (timer, number) in self.timers.iter_mut().zip(0..) {
            if slot.keys.has(number) && timer.is_claimed() && timer.is_held_by(slot.token) {
                timer.score = Phase::Far;
                taken.add(number);
            }
        }
        taken
    }

    /// Looks at one key whose time has come; whether it was taken.
    fn attend(&mut self, key: usize, call: Claim) -> bool {
        let timer = self.timers[key];
        let mut run = timer.state();
        if run.claimed {
            if timer.score < Phase::Past && self.has(Rule::LiveLease) {
                return false;
            }
            run.lost += 1;
            if run.lost >= self.scope.poison && self.has(Rule::Poison) {
                self.bury(key, run.lost);
                return false;
            }
        }
        // Without the bound, a count that grows for ever would never be
        // explored; beyond it nothing depends on the count.
        run.lost = run.lost.min(self.scope.poison + 1);
        if call.index == Index::Due && self.place(run.lost) == Index::Quarantine {
            let timer = &mut self.timers[key];
            timer.run = Some(Run { claimed: false, ..run });
            (timer.place, timer.score) = (Some(Index::Quarantine), Phase::Past);
            return false;
        }
        self.hold(key, call.token, run);
        true
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
