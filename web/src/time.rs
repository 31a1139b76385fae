//! Times as the API and the pages write them.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time in ms since 1970.
pub(crate) fn ms_of(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
