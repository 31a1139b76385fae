//! Stops and starts claims, and reads one timer: pause.lua and look.lua.

use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::wire::types::Look;

impl Turn<'_> {
    /// Answers the reason that stood there before.
    pub(super) fn pause(&mut self, reason: Option<&str>) -> Option<String> {
        let reason = reason.filter(|reason| !reason.is_empty()).map(str::to_owned);
        if reason.is_none() {
            // Whatever is due has to be looked for now.
            self.head = None;
            self.sooner(Score::from_ms(0));
        }
        std::mem::replace(&mut self.book.paused, reason)
    }

    pub(super) fn look(&self, key: &[u8]) -> Option<Look> {
        let (due, solo) = (self.book.due.score(key), self.book.solo.score(key));
        Some(Look {
            stamp: self.stamp,
            score: due.or(solo).map(Score::ms),
            suspect: due.is_none() && solo.is_some(),
            record: self.book.rec.get(key)?.clone(),
            state: self.book.run.get(key).cloned(),
            next: self.book.next.get(key).cloned(),
        })
    }
}
