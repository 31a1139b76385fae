//! A listener that sleeps until the head it knows of.

use keylapse::internals::event::Event;
use keylapse::internals::{Heads, Held};

use super::{Oracle, promise};
use crate::machine::driver::{Sight, Verdict};

/// It makes no claims of its own, hears what everybody hears, and looks when
/// its time has come.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    until: Option<u64>,
    heads: Heads,
}

impl Oracle {
    /// Judges what was told after a call.
    pub(crate) fn hears(&mut self, events: &[Event], sight: &Sight) -> Verdict {
        let mut fences = Vec::<&Held>::new();
        for event in events {
            match event {
                Event::Wake { at, .. } => self.sleeper.wake(*at),
                Event::Fence { held, .. } => fences.push(held),
                other => return Err(format!("nobody expects {other:?}")),
            }
        }
        promise!(fences.iter().copied().eq(&self.fenced), "P7: {:?} were fenced", self.fenced);
        self.sleeper.sleeps_well(self.moment.now, sight.heads)
    }
}

impl Sleeper {
    fn wake(&mut self, at: u64) {
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }

    fn is_up_for(&self, head: Option<u64>) -> bool {
        head.is_none_or(|head| self.until.is_some_and(|until| until <= head))
    }

    fn sleeps_well(&mut self, now: u64, heads: Heads) -> Verdict {
        if self.until.is_some_and(|until| until <= now) {
            self.until = heads.due.into_iter().chain(heads.quarantine).min();
        }
        promise!(self.is_up_for(heads.due), "P3: {:?} is slept through: {self:?}", heads.due);
        // A claim that puts a timer in quarantine runs it itself; nobody else is woken.
        if heads.quarantine == Some(now) && heads.quarantine != self.heads.quarantine {
            self.wake(now);
        }
        promise!(self.is_up_for(heads.quarantine), "P3: {:?} is slept through: {self:?}", heads.quarantine);
        self.heads = heads;
        Ok(())
    }
}
