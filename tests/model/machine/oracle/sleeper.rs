//! A listener that sleeps until the head it knows of.

use keylapse::inside::receiving::event::Event;
use keylapse_wire::{Heads, Index, LeaseRef};

use super::{Oracle, promise};
use crate::model::machine::driver::{Sight, Verdict};

/// It makes no claims of its own, hears what everybody hears, and looks when
/// its time has come.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    until: Heads,
    heads: Heads,
}

impl Oracle {
    /// Judges what was told after a call.
    pub(crate) fn hears(&mut self, events: &[Event], sight: &Sight) -> Verdict {
        let mut fences = Vec::<&LeaseRef>::new();
        for event in events {
            match event {
                Event::Wake { index, at, .. } => self.sleeper.wake(*index, *at),
                Event::Fence { held, .. } => fences.push(held),
                // Who leads is a matter of pace: no promise hangs on it.
                Event::Unclaimed { .. } => {}
                other => return Err(format!("nobody expects {other:?}")),
            }
        }
        promise!(fences.iter().copied().eq(&self.fenced), "P7: {:?} were fenced", self.fenced);
        self.sleeper.sleeps_well(self.moment.now, sight.heads)
    }
}

impl Sleeper {
    fn wake(&mut self, index: Index, at: u64) {
        let until = match index {
            Index::Due => &mut self.until.due,
            Index::Quarantine => &mut self.until.quarantine,
        };
        *until = Some(until.map_or(at, |until| until.min(at)));
    }

    fn sleeps_well(&mut self, now: u64, heads: Heads) -> Verdict {
        // A claim that puts a timer in quarantine runs it itself; nobody else is woken.
        if heads.quarantine == Some(now) && heads.quarantine != self.heads.quarantine {
            self.wake(Index::Quarantine, now);
        }
        // Any look says what is next in both.
        if self.until.due.into_iter().chain(self.until.quarantine).any(|until| until <= now) {
            self.until = heads;
        }
        for (head, until) in [(heads.due, self.until.due), (heads.quarantine, self.until.quarantine)] {
            let is_up = head.is_none_or(|head| until.is_some_and(|until| until <= head));
            promise!(is_up, "P3: {head:?} is slept through: {self:?}");
        }
        self.heads = heads;
        Ok(())
    }
}
