//! cancel.lua.

use super::Server;
use crate::model::rules::Rule;
use crate::model::world::Told;

impl Server<'_> {
    pub(crate) fn cancel(&mut self, key: usize, id: u8, repeat: bool) -> Told {
        let timer = self.timers[key];
        if repeat && self.has(Rule::CancelTombstone) {
            if timer.cancelled.has(id) {
                return Told::Cancelled;
            }
            if timer.fenced.has(id) {
                return Told::InFlight;
            }
        }
        let Some(arming) = timer.rec else { return Told::NotArmed };
        let running = timer.is_claimed();
        let keeps = running && !self.has(Rule::CancelFences);
        let timer = &mut self.timers[key];
        if running {
            timer.fenced.add(id);
        } else {
            timer.cancelled.add(id);
        }
        timer.tomb.add(arming);
        timer.own = false;
        if let Some(kept) = timer.next.take() {
            timer.tomb.add(kept);
        }
        if !keeps {
            self.remove(key);
        }
        if running { Told::InFlight } else { Told::Cancelled }
    }
}
