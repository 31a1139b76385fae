//! Whom nodes believe if two claim one slot: the one of the greater epoch.
//!
//! A node that is given a slot takes a new epoch, the greatest that it knows plus one. If it does not know the
//! latest, the slot's old owner may have a greater one than the new: nodes that hear of both then believe the old
//! one, which has given the slot up, and nobody has it any more.
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Hash slots configuration
//! propagation" and "Configuration epochs conflicts resolution algorithm".

use crate::servers::cluster::view::View;
use crate::servers::failed;
use keylapse::Result;

/// The epoch of nodes that have never had a slot.
const WITHOUT_SLOTS: u64 = 0;

/// Each primary that was asked knows the epochs of all others, and no two are the same. Else an error that says what
/// is not so.
pub(super) fn check(views: &[View]) -> Result<()> {
    let mut primaries = Vec::new();
    for view in views {
        let myself = view.myself()?;
        if myself.is_primary() {
            primaries.push((view, myself));
        }
    }
    let mut epochs: Vec<u64> = primaries.iter().map(|(_, says)| says.epoch).collect();
    epochs.sort_unstable();
    if let Some(pair) = epochs.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != WITHOUT_SLOTS) {
        return Err(failed(format!("two primaries have epoch {}: {views:?}", pair[0])));
    }
    for (view, myself) in &primaries {
        let unknown = primaries.iter().find(|(_, other)| view.epoch_of(&other.id) != Some(other.epoch));
        if let Some((_, other)) = unknown {
            return Err(failed(format!("{} does not know the epoch of {}: {views:?}", myself.id, other.id)));
        }
    }
    Ok(())
}
