//! Times in ms since 1970, and as text.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Returns a time in ms since 1970; 0 for an earlier time.
pub fn ms_of(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    ms_of(SystemTime::now()) / 1000
}

/// Formats a time in ms since 1970 in UTC: `2026-11-25T09:30:00.000Z`.
pub fn moment(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    // A score that another program wrote can be beyond the year 9999.
    at.map_or_else(|| format!("{ms} ms since 1970"), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_date() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_599_000_123, "2026-11-25T09:30:00.123Z"),
            (253_402_207_199_999, "9999-12-30T21:59:59.999Z"),
            (253_402_300_800_000, "253402300800000 ms since 1970"),
            (u64::MAX, "18446744073709551615 ms since 1970"),
        ] {
            assert_eq!(moment(ms), text);
        }
    }
}
