//! Tests that are skipped.

use std::io::Write;

/// Prints on stderr that this test was skipped, and why, because Rust reports it as passed. `eprintln!` does not work here:
/// Rust hides the output of passed tests.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}
