//! Tests that cannot do what they are for.

use std::io::Write;

/// Says on stderr that this test has done nothing, and why: whoever reads that it has passed must not take
/// it for evidence. Not by `eprintln!`, which a test that passes shows to nobody.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}
