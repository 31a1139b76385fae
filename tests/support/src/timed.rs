//! Time limits that tests enforce only on an idle machine.

use std::time::Duration;

/// `make test-all` sets this variable for the tests whose names begin with `timed_`, and runs them one after the other.
const JUDGES: &str = "KEYLAPSE_TIMED";

/// Returns whether tests enforce time limits: no other test runs at the same time.
pub fn times_are_judged() -> bool {
    std::env::var_os(JUDGES).is_some()
}

/// Prints the time, and panics if it exceeds the limit and [`times_are_judged`].
#[track_caller]
pub fn took_at_most(limit: Duration, took: Duration, what: &str) {
    println!("{what}: {took:?}, limit {limit:?}");
    assert!(took <= limit || !times_are_judged(), "{what} took {took:?}, more than {limit:?}");
}
