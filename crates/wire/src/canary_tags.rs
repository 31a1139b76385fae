//! Names for the canaries of a cluster's primaries: one for each slot.

use std::sync::LazyLock;

use crate::connection::{SLOTS, slot_of};

/// The least number that lies in a slot, as the hash tag `canary/<number>`.
pub fn tag_of(slot: u16) -> u32 {
    TAGS[usize::from(slot)]
}

/// About 170,000 numbers have to be tried until each slot has one, which takes a few milliseconds, once.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        let tag = &mut tags[usize::from(slot_of(format!("canary/{number}").as_bytes()))];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().map(Option::unwrap_or_default).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::canary;

    #[test]
    fn each_slot_has_a_canary_that_lies_in_it() {
        for slot in 0..SLOTS {
            assert_eq!(slot_of(canary("keylapse", tag_of(slot)).as_bytes()), slot);
        }
        assert_eq!(tag_of(slot_of(b"canary/0")), 0, "a server that is alone uses the first");
    }
}
