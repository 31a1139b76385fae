//! What is kept of each key, on the server and in the model.

use keylapse::timers::ArmingId;
use keylapse_connection::id::Token;
use keylapse_protocol::model::{DEATHS, Index, Run, Timer, World};
use keylapse_wire::record::{Record, State};

use super::{Difference, Twin, arming, key};

impl Twin {
    /// All that is kept of each key.
    pub(super) async fn compare(&self, world: &World) -> Result<(), Difference> {
        let keys = [0, 1].map(key);
        let (first, second, letters) = tokio::join!(
            self.store.get_timer(&self.at, &keys[0]),
            self.store.get_timer(&self.at, &keys[1]),
            self.store.letter_counts(&self.at)
        );
        for (number, look) in [first, second].into_iter().enumerate() {
            let look = look.map_err(|error| error.to_string())?;
            let kept = look.map(|look| {
                let record = |bytes| Record::decode(bytes).expect("it can be read").arming;
                let state = look.state.map(|bytes| State::decode(bytes).expect("it can be read"));
                (
                    record(look.record),
                    state.as_ref().map_or((false, None, 1, 0), seen),
                    look.next.map(|bytes| Record::decode_kept(bytes).expect("it can be read").arming),
                    look.quarantined,
                )
            });
            let expected = self.expected(number, &world.timers[number]);
            if kept != expected {
                return Err(format!("key {number} is {kept:?} on the server, {expected:?} in the model"));
            }
        }
        let (letters, _) = letters.map_err(|error| error.to_string())?;
        let graves = world.timers.map(|timer| timer.grave);
        let is_full = graves.iter().any(|grave| usize::from(grave.count) == DEATHS);
        let kept: u64 = graves.iter().map(|grave| grave.kept.count()).sum();
        if letters != kept && !is_full {
            return Err(format!("{letters} dead letters on the server, {kept} in the model"));
        }
        Ok(())
    }

    fn expected(&self, key: usize, timer: &Timer) -> Option<(ArmingId, Kept, Option<ArmingId>, bool)> {
        let Run { claimed, token, attempt, lost } = timer.run.unwrap_or(Run::UNTOUCHED);
        let token = (token > 0).then(|| self.tokens[usize::from(token)]);
        let next = timer.next.map(|id| arming(key, id));
        let quarantined = timer.place == Some(Index::Quarantine);
        Some((arming(key, timer.rec?), (claimed, token, attempt.into(), lost), next, quarantined))
    }
}

/// Claimed, by whom, which attempt, lost leases.
type Kept = (bool, Option<Token>, u32, u8);

fn seen(state: &State) -> Kept {
    let token = Some(state.token).filter(|token| token.as_bytes() != &[0; 8]);
    (state.claimed, token, state.attempt, state.lost)
}
