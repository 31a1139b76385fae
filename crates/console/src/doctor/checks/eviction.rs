//! What happens when memory is full.

use super::super::case::Case;
use super::super::codes;

/// Of a hundred: beyond, memory is nearly full.
const NEARLY: u64 = 90;

/// INFO has the same as CONFIG, for who may not ask that.
pub(super) fn check(case: &mut Case) {
    let limit = case.info.number("maxmemory").unwrap_or_default();
    if limit == 0 {
        return;
    }
    let policy = case.info.get("maxmemory_policy").unwrap_or("noeviction").to_owned();
    let observed = format!("maxmemory {limit}, maxmemory-policy {policy}");
    if policy.starts_with("allkeys") {
        case.say(&codes::EVICTS_ALL, observed);
    } else if policy != "noeviction" {
        case.say(&codes::EVICTS_VOLATILE, observed);
    }
    let used = case.info.number("used_memory").unwrap_or_default();
    if u128::from(used) * 100 >= u128::from(limit) * u128::from(NEARLY) {
        let enough = enough(case);
        case.say_with(
            &codes::NEARLY_FULL,
            format!("{used} of {limit} bytes are used"),
            &[("bytes", &enough)],
        );
    }
}

/// Twice as much memory as there is, or as is used.
pub(super) fn enough(case: &Case) -> String {
    let bytes = |name| case.info.number(name).unwrap_or_default();
    bytes("maxmemory").max(bytes("used_memory")).saturating_mul(2).to_string()
}
