//! Whether the server is told to announce expired keys.

use crate::escape::plain;
use crate::text::quoted;
use crate::wire::missing_flags;

use super::super::case::Case;
use super::super::codes;

/// Where the setting cannot be read the canary decides.
pub(super) fn check(case: &mut Case) {
    let Some(flags) = case.setting("notify-keyspace-events").map(str::to_owned) else { return };
    let missing = missing_flags(&flags);
    if missing.is_empty() {
        return;
    }
    let code = if case.takes_writes() { codes::FLAGS_MISSING } else { codes::REPLICA_FLAGS };
    // One of the flags is a dollar, and a server may say anything.
    let all = quoted(&plain(&format!("{flags}{missing}"), 100));
    case.say_with(&code, format!("notify-keyspace-events is '{flags}'"), &[("flags", &all)]);
}
