//! The clock that all processes of a run share with its server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub type Micros = u64;

/// One second of them.
pub const SECOND: Micros = 1_000_000;

/// Now, by the machine's clock, which is also what the server's `TIME` reads.
pub fn now() -> Micros {
    micros_since_1970(SystemTime::now())
}

/// A time as the ledger writes it.
pub fn micros_since_1970(time: SystemTime) -> Micros {
    micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A span of time as the ledger writes it.
pub fn micros(span: Duration) -> Micros {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
