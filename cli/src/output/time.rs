//! Times for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use keylapse::console::show_span;

/// A time, in UTC, to the millisecond.
pub(crate) fn moment(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| format!("{ms} ms since 1970"), |at| format!("{at:.3}"))
}

/// The same without its date, to the second.
pub(crate) fn time_of_day(ms: u64) -> String {
    let seconds = ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A time as ms since 1970.
pub(crate) fn ms_of(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How far from now: `in 3m` or `3m ago`.
pub(crate) fn ago(ms: u64, now_ms: u64) -> String {
    match ms.checked_sub(now_ms) {
        Some(0) => "now".to_owned(),
        Some(ahead) => format!("in {}", span(ahead)),
        None => format!("{} ago", span(now_ms - ms)),
    }
}

/// A length of time.
pub(crate) fn span(ms: u64) -> String {
    show_span(Duration::from_millis(ms))
}

/// How late something was: a length of time, and below a millisecond in tenths of one.
pub(crate) fn lateness(us: u64) -> String {
    match us {
        1..1000 => format!("0.{}ms", us.div_ceil(100).min(9)),
        _ => span(us / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_a_span_and_less_than_a_millisecond_is_seen() {
        for (us, text) in [
            (0, "0ms"),
            (100, "0.1ms"),
            (999, "0.9ms"),
            (5000, "5ms"),
            (50_000_000, "50s"),
            (600_000_000, "10m"),
        ] {
            assert_eq!(lateness(us), text);
        }
    }
}
