//! A hash tag for each slot of a cluster, so that each primary can have a canary of its own: the canary's name says
//! on which server it lies.
//!
//! All programs have the same table, whoever made it: of each slot the first tag that lies there, of those with fewer
//! characters first, and then in the order of [`DIGITS`]. No tag has a slash, so none is a topic's.

use std::sync::OnceLock;

use crate::connection::slot::slot_of;

/// How many slots a cluster has.
const SLOTS: usize = 16_384;
/// What tags are made of.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The tag of a slot; none, where there is no such slot.
pub(crate) fn tag_of(slot: u16) -> Option<&'static str> {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    TAGS.get_or_init(tags).get(usize::from(slot)).map(String::as_str)
}

/// The counter of the canaries of that slot's server.
pub(crate) fn canary_of(namespace: &str, slot: u16) -> Option<String> {
    tag_of(slot).map(|tag| format!("{namespace}:{{{tag}}}"))
}

fn tags() -> Vec<String> {
    let (mut tags, mut missing) = (vec![String::new(); SLOTS], SLOTS);
    let mut numbers = 0;
    while missing > 0 {
        let tag = tag(numbers);
        numbers += 1;
        let slot = &mut tags[usize::from(slot_of(tag.as_bytes()))];
        if slot.is_empty() {
            *slot = tag;
            missing -= 1;
        }
    }
    tags
}

/// All texts of these digits in their order.
fn tag(mut number: usize) -> String {
    let (base, mut length) = (DIGITS.len(), 1);
    while number >= base.pow(length) {
        number -= base.pow(length);
        length += 1;
    }
    let digit = |place| char::from(DIGITS[number / base.pow(place) % base]);
    (0..length).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_tag_that_lies_there() {
        for slot in 0..16_384 {
            let tag = tag_of(slot).unwrap();
            assert_eq!(slot_of(tag.as_bytes()), slot, "{tag}");
            assert!((1..=4).contains(&tag.len()) && !tag.contains(['/', '{', '}']), "{tag}");
            let canary = canary_of("keylapse", slot).unwrap();
            assert_eq!(slot_of(format!("{canary}:17:16").as_bytes()), slot, "{canary}");
        }
        assert_eq!(tag_of(16_384), None);
    }

    #[test]
    fn tags_are_the_same_in_every_build() {
        assert_eq!([0, 1, 36, 37, 36 + 36 * 36].map(tag), ["0", "1", "00", "01", "000"]);
        // As `CLUSTER KEYSLOT` answers.
        assert_eq!(slot_of(b"0"), 13_907);
        assert_eq!(tag_of(13_907), Some("0"));
    }
}
