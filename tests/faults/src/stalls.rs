//! Notices when a process stood still: on a busy machine that is a fault like any other, and a lease that is
//! lost by it must be on record.

use std::thread;
use std::time::Duration;

use crate::clock::{Micros, now};
use crate::ledger::{Entry, Ledger};

const STEP: Duration = Duration::from_millis(20);
/// Standing still for less than this loses nobody a lease.
const WORTH_NOTING: Micros = 200_000;

/// Watches from a thread of its own, which says so often whether it is still wanted.
pub(crate) fn note(ledger: Ledger, mut is_wanted: impl FnMut() -> bool + Send + 'static) {
    thread::spawn(move || {
        let mut before = now();
        while is_wanted() {
            thread::sleep(STEP);
            let after = now();
            if after.saturating_sub(before) > WORTH_NOTING {
                ledger.write_at(after, Entry::Stalled { since: before });
            }
            before = after;
        }
    });
}
