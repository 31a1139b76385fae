//! Keeps what is held: renew.lua.

use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::{Turn, waits_in};
use crate::wire::types::Held;

impl Turn<'_> {
    /// Answers the places of what is lost.
    pub(super) fn renew(&mut self, lease_ms: u64, held: &[Held]) -> Vec<usize> {
        let expires = Score::from_ms(self.now().saturating_add(lease_ms));
        let mut lost = Vec::new();
        for (place, one) in held.iter().enumerate() {
            let state = self.book.run.get(&one.key);
            match state.filter(|state| fields::is_claimed(state) && fields::is_held_by(state, one.token)) {
                Some(state) => {
                    let index = waits_in(fields::lost_leases(state));
                    self.book.index_mut(index).set(&one.key, expires);
                }
                None => lost.push(place),
            }
        }
        lost
    }
}
