//! Notices when this process stood still: on a busy machine that is a fault like any other, and a lease that
//! is lost by it must be on record. And ends the process when whoever started it is gone.

use std::thread;
use std::time::Duration;

use rustix::process::getppid;

use crate::clock::{Micros, now};
use crate::ledger::{Entry, Ledger};

const STEP: Duration = Duration::from_millis(20);
/// Standing still for less than this loses nobody a lease.
const WORTH_NOTING: Micros = 200_000;

/// Watches from a thread of its own until the process ends.
pub(super) fn watch(ledger: Ledger) {
    let parent = getppid();
    thread::spawn(move || {
        let mut before = now();
        loop {
            thread::sleep(STEP);
            let after = now();
            if after.saturating_sub(before) > WORTH_NOTING {
                ledger.write_at(after, Entry::Stalled { since: before });
            }
            before = after;
            if getppid() != parent {
                std::process::exit(1);
            }
        }
    });
}
