//! replay.lua.

use super::Server;
use crate::model::rules::Rule;
use crate::model::world::{Phase, Told};

impl Server<'_> {
    pub(crate) fn replay(&mut self, key: usize, place: u8, id: u8, repeat: bool) -> Told {
        let timer = self.timers[key];
        if repeat && self.has(Rule::ReplayTombstone) && timer.revived.has(id) {
            return Told::Replayed;
        }
        let arming = timer.grave.died[usize::from(place)];
        if timer.rec.is_some() {
            let its_own = timer.rec == Some(arming) && !self.has(Rule::OwnLetter);
            return if its_own { Told::Replayed } else { Told::Occupied };
        }
        if !timer.grave.kept.has(place) {
            return Told::Gone;
        }
        let lives = self.has(Rule::ReplayLives);
        let timer = &mut self.timers[key];
        timer.grave.kept.remove(place);
        if lives {
            timer.tomb.remove(arming);
        }
        timer.revived.add(id);
        (timer.rec, timer.run) = (Some(arming), None);
        self.wait(key, 0);
        self.timers[key].score = Phase::Past; // for now
        Told::Replayed
    }
}
