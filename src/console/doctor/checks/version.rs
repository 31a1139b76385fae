//! Which program it is, and whether it has what keylapse needs.

use super::super::case::Case;
use super::super::codes;

pub(super) fn check(case: &mut Case) {
    // Who may not ask for INFO learns it by what is refused.
    if case.info.is_empty() {
        return;
    }
    let kind = case.info.kind();
    if case.info.is_new_enough() {
        let role = if case.info.is_replica() { "a replica" } else { "a primary" };
        case.say(&codes::ANSWERS, format!("{kind}, {role}"));
    } else {
        case.say(&codes::TOO_OLD, kind);
    }
}
