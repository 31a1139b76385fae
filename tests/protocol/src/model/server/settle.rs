//! ack.lua and settle.lua.

use super::Server;
use crate::model::rules::Rule;
use crate::model::world::{End, Phase, Run};

impl Server<'_> {
    /// Ends an attempt; whether its token held anything.
    pub(crate) fn settle(&mut self, key: usize, token: u8, attempt: u8, end: End) -> bool {
        let timer = self.timers[key];
        let rule = if end == End::Ack { Rule::TokenAtAck } else { Rule::TokenAtSettle };
        let known = timer.is_held_by(token) || !self.has(rule);
        if timer.rec.is_none() || timer.run.is_none() || !known {
            return false;
        }
        match end {
            End::Ack => self.ack(key),
            End::Retry => {
                if !(self.has(Rule::NextAtRetry) && self.give_way(key)) {
                    self.wait_again(key, attempt + 1);
                }
            }
            End::Snooze => {
                if self.has(Rule::NextWaits) || !self.give_way(key) {
                    self.wait_again(key, attempt);
                }
            }
            End::Again(arming) => {
                if !self.give_way(key) {
                    self.begin_again(key, arming);
                }
            }
            End::Dead => drop(self.bury(key, 0)),
            End::Release => {
                if self.has(Rule::NextWaits) || !self.give_way(key) {
                    self.release(key);
                }
            }
        }
        true
    }

    fn ack(&mut self, key: usize) {
        let ended = self.remove(key);
        if self.has(Rule::NextAtAck) {
            self.succeed(key, 0, ended);
        } else {
            (self.timers[key].next, self.timers[key].own) = (None, false);
        }
    }

    fn give_way(&mut self, key: usize) -> bool {
        if self.timers[key].next.is_none() {
            return false;
        }
        let ended = self.remove(key);
        self.succeed(key, 0, ended)
    }

    fn wait_again(&mut self, key: usize, attempt: u8) {
        let token = self.left_behind(key);
        self.timers[key].run = Some(Run { attempt, token, ..Run::UNTOUCHED });
        self.wait(key, 0);
    }

    fn begin_again(&mut self, key: usize, arming: u8) {
        if let Some(ended) = self.remove(key) {
            self.timers[key].tomb.add(ended);
        }
        self.timers[key].rec = Some(arming);
        self.wait(key, 0);
    }

    /// Proves nothing about the handler, so lost leases stay.
    pub(super) fn release(&mut self, key: usize) {
        let token = self.left_behind(key);
        let run = self.timers[key].state();
        let place = self.place(run.lost);
        let timer = &mut self.timers[key];
        timer.run = Some(Run { claimed: false, token, ..run });
        timer.place = Some(place);
        timer.score = if timer.passed { Phase::Past } else { Phase::Near };
        timer.passed = false;
    }

    fn left_behind(&self, key: usize) -> u8 {
        if self.has(Rule::TokenTakenAway) { 0 } else { self.timers[key].state().token }
    }
}
