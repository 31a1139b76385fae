//! Times that are a promise.

use std::time::Duration;

/// `make test-timed` sets this, and runs the tests whose names begin with `timed_` one after the other: where nothing
/// competes with them.
const JUDGES: &str = "KEYLAPSE_TIMED";

/// Fails if this has taken longer than is promised, where nothing competes with the test; elsewhere it prints the time.
#[track_caller]
pub fn took_at_most(limit: Duration, took: Duration, what: &str) {
    println!("{what}: {took:?}, of {limit:?}");
    assert!(std::env::var_os(JUDGES).is_none() || took <= limit, "{what} took {took:?}, and not {limit:?}");
}
