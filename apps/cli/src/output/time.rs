//! Formats times.

use std::time::Duration;

use keylapse_console::show_span;

/// Returns the time of day in UTC, to the second.
pub(crate) fn time_of_day(ms: u64) -> String {
    let seconds = ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns the distance from now: `in 3m` or `3m ago`.
pub(crate) fn ago(ms: u64, now_ms: u64) -> String {
    match ms.checked_sub(now_ms) {
        Some(0) => "now".to_owned(),
        Some(ahead) => format!("in {}", span(ahead)),
        None => format!("{} ago", span(now_ms - ms)),
    }
}

/// Returns a length of time, such as `1h30m`.
pub(crate) fn span(ms: u64) -> String {
    show_span(Duration::from_millis(ms))
}

/// Describes a listener whose handlers have been stalled for this long.
pub(crate) fn stalled(ms: u64) -> String {
    format!("the runtime of its handlers has polled nothing for {}, so it claims nothing", span(ms))
}
