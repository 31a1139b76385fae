//! Which program it is, and whether it has what keylapse needs.

use super::super::case::Case;
use super::super::codes;
use super::super::site::Site;

/// Returns whether it is worth asking further. Another program may work.
pub(super) fn check(case: &mut Case) -> bool {
    // Who may not ask for INFO learns it by what is refused.
    if case.info.is_empty() {
        return true;
    }
    let (kind, fits) = (case.info.kind(), case.info.is_new_enough());
    if fits == Some(true) {
        let role = if case.info.is_replica() { "a replica" } else { "a primary" };
        case.say(&codes::ANSWERS, format!("{kind}, {role}"));
    } else {
        let there = Site::of(&case.patient.address().endpoint(), &case.info).there();
        case.say_with(&codes::TOO_OLD, kind, &[("there", &there)]);
    }
    fits != Some(false)
}
