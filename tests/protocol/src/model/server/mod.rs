//! The decisions of the scripts, one script a file, over abstract time.

mod arm;
mod cancel;
mod claim;
mod replay;
mod settle;

pub(crate) use claim::{Claim, Taken};

use super::rules::{Rule, Rules};
use super::scope::Scope;
use super::world::{Few, Index, Phase, Run, Slot, Timer};

/// What the scripts see: the keys, the lanes, and the rules they are held to.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    pub(crate) timers: &'a mut [Timer],
    pub(crate) lane: &'a mut Option<Slot>,
    pub(crate) scope: &'a Scope,
    pub(crate) rules: Rules,
    /// Keys whose timer became a dead letter in this call, and the armings.
    pub(crate) buried: [Option<u8>; 2],
}

impl Server<'_> {
    fn has(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    /// Where a timer with these lost leases waits.
    fn place(&self, lost: u8) -> Index {
        let apart = lost >= self.scope.quarantine_at && self.rules.has(Rule::QuarantineApart);
        if apart { Index::Quarantine } else { Index::Due }
    }

    /// A new deadline. It is always far: time may pass right afterwards.
    fn wait(&mut self, key: usize, lost: u8) {
        let place = self.place(lost);
        let timer = &mut self.timers[key];
        (timer.place, timer.score, timer.passed) = (Some(place), Phase::Far, false);
    }

    /// Takes a timer out of everything but what is kept behind it.
    fn remove(&mut self, key: usize) -> Option<u8> {
        let timer = &mut self.timers[key];
        (timer.run, timer.place, timer.score, timer.passed) = (None, None, Phase::Far, false);
        timer.rec.take()
    }

    /// afterlife.lua: installs the arming kept behind a timer that is gone.
    fn succeed(&mut self, key: usize, lost: u8, ended: Option<u8>) -> bool {
        let Some(kept) = self.timers[key].next else { return false };
        let lost = if self.has(Rule::Inherit) { lost } else { 0 };
        let (leaves, tombstone) = (self.has(Rule::NextLeaves), self.has(Rule::FollowedTombstone));
        let timer = &mut self.timers[key];
        timer.rec = Some(kept);
        timer.run = (lost > 0).then_some(Run { lost, ..Run::UNTOUCHED });
        if leaves {
            (timer.next, timer.own) = (None, false);
        }
        if tombstone && let Some(ended) = ended {
            timer.tomb.add(ended);
        }
        self.wait(key, lost);
        true
    }

    /// grave.lua: moves a timer into the dead letters.
    fn bury(&mut self, key: usize, lost: u8) -> bool {
        let ended = self.remove(key);
        self.buried[key] = ended;
        if let Some(arming) = ended {
            self.leave_letter(key, arming);
        }
        let timer = &mut self.timers[key];
        if lost > 0 && timer.own {
            timer.own = false;
            if let Some(own) = timer.next.take() {
                timer.tomb.add(own);
                self.leave_letter(key, own);
            }
        }
        self.succeed(key, lost, ended)
    }

    fn leave_letter(&mut self, key: usize, arming: u8) {
        let by_death = self.has(Rule::LetterOfDeath);
        let grave = &mut self.timers[key].grave;
        let earlier =
            grave.died[..usize::from(grave.count)].iter().zip(0..).find(|(died, _)| **died == arming);
        match earlier.filter(|_| !by_death) {
            Some((_, place)) => grave.kept.add(place),
            None => grave.bury(arming),
        }
    }

    /// The keys of an index whose scores lie within reach.
    pub(in crate::model) fn ready(&self, index: Index) -> Few {
        let reach = if self.scope.lookahead && index == Index::Due { Phase::Near } else { Phase::Past };
        let mut ready = Few::default();
        for (key, timer) in (0..).zip(self.timers.iter()) {
            if timer.place == Some(index) && timer.score >= reach {
                ready.add(key);
            }
        }
        ready
    }
}
