//! arm.lua.

use super::Server;
use crate::model::rules::Rule;
use crate::model::world::{Run, Told};

impl Server<'_> {
    pub(crate) fn arm(&mut self, key: usize, deed: (u8, bool, Option<u8>), repeat: bool) -> Told {
        let (id, absent, by) = deed;
        let timer = self.timers[key];
        let ended = repeat && self.has(Rule::ArmTombstone) && timer.tomb.has(id);
        if timer.place.is_some() {
            return self.arm_over(key, (id, absent, by), ended);
        }
        if ended {
            return Told::Superseded;
        }
        self.replaces_nothing_yet(key, id);
        self.timers[key].run = None;
        self.timers[key].rec = Some(id);
        self.wait(key, 0);
        Told::Armed
    }

    /// A key that is in an index already.
    fn arm_over(&mut self, key: usize, (id, absent, by): (u8, bool, Option<u8>), ended: bool) -> Told {
        let timer = self.timers[key];
        let own = self.has(Rule::OwnArming);
        if own && timer.rec == Some(id) {
            return if timer.replaced.has(id) { Told::Replaced } else { Told::Armed };
        }
        if own && timer.next == Some(id) {
            return Told::AfterRunning;
        }
        if ended {
            return Told::Superseded;
        }
        if absent {
            return Told::Exists;
        }
        if let Some(kept) = timer.next {
            self.timers[key].tomb.add(kept);
        }
        self.replaces_nothing_yet(key, id);
        if timer.is_claimed() {
            self.timers[key].next = Some(id);
            self.timers[key].own = by == timer.rec && self.has(Rule::OwnDies);
            return Told::AfterRunning;
        }
        self.replace(key, id);
        Told::Replaced
    }

    /// What an arming has replaced before it ended is not what its repeat does now.
    fn replaces_nothing_yet(&mut self, key: usize, id: u8) {
        if self.has(Rule::ArmAfresh) {
            self.timers[key].replaced.remove(id);
        }
    }

    fn replace(&mut self, key: usize, id: u8) {
        let lost = if self.has(Rule::Stain) { self.timers[key].state().lost } else { 0 };
        let timer = &mut self.timers[key];
        (timer.next, timer.own) = (None, false);
        timer.replaced.add(id);
        if let Some(ended) = timer.rec.replace(id) {
            timer.tomb.add(ended);
        }
        timer.run = (lost > 0).then_some(Run { lost, ..Run::UNTOUCHED });
        self.wait(key, lost);
    }
}
