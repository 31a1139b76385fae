//! The output: a line of progress each second, the injected faults, and the tables at the end.

use std::time::Duration;

use keylapse::dead_letters::{DeadLetter, DeadReason};
use keylapse::handler::LapseSource;
use keylapse_support::Server;
use tokio::time::Instant;

use crate::comparison::Comparison;
use crate::ledger::{Evidence, Ledger, Tally};
use crate::merchants::Merchant;

/// Maximum violations that are printed. All are counted.
const MAX_VIOLATIONS: usize = 20;

/// Plain lines on standard output.
pub(crate) struct Screen {
    started: Instant,
}

impl Screen {
    pub(crate) fn open(server: &Server, trades: u64) -> Self {
        println!(
            "{trades} payment notices go to merchants that accept them, book them but fail at first, answer too late,
never answer, or have closed. Two listeners compete for the notices. For comparison, two plain subscribers
receive the events of expired keys.
The server is a private {} on port {}.",
            server.version(),
            server.port()
        );
        println!("\n    time   armed  handled  retried  by sweep   dead   open");
        Self { started: Instant::now() }
    }

    /// Prints a line of progress.
    pub(crate) fn progress(&self, tally: &Tally) {
        let Tally { armed, handled, retried, swept, dead, open, .. } = tally;
        let secs = self.started.elapsed().as_secs_f64();
        println!("{secs:6.1} s  {armed:6}  {handled:7}  {retried:7}  {swept:8}  {dead:5}  {open:5}");
    }

    /// Prints an event of the demo.
    pub(crate) fn print_event(&self, what: &str) {
        println!("{:6.1} s  -- {what}", self.started.elapsed().as_secs_f64());
    }
}

/// Prints the outcomes of the notices, by merchant.
pub(crate) fn outcomes(ledger: &Ledger, evidence: &Evidence) {
    println!("\nmerchants  armed  handled  retried  by sweep   dead   lost  duplicates  early");
    for merchant in Merchant::ALL {
        outcome(merchant.name(), &ledger.tally(|other| other == merchant, evidence));
    }
    outcome("all", &ledger.tally(|_| true, evidence));
}

fn outcome(merchants: &str, tally: &Tally) {
    let Tally { armed, handled, retried, swept, dead, open, duplicates, early, .. } = tally;
    println!(
        "{merchants:<9} {armed:6}  {handled:7}  {retried:7}  {swept:8}  {dead:5}  {open:5}  {duplicates:10}  {early:5}"
    );
}

/// Prints the lateness of the attempts, by their source.
pub(crate) fn lateness(tally: &Tally) {
    println!("\nstarted by    attempts   late p50   late p99     latest");
    for source in [LapseSource::Timer, LapseSource::Notification, LapseSource::Sweep] {
        let late = tally.starts.iter().filter(|(by, _)| *by == source);
        late_by(source.as_str(), late.map(|(_, late)| *late).collect());
    }
    late_by("all", tally.starts.iter().map(|(_, late)| *late).collect());
}

fn late_by(source: &str, mut late: Vec<Duration>) {
    late.sort_unstable();
    print!("{source:<12}  {:8}", late.len());
    let Some(last) = late.len().checked_sub(1) else { return println!() };
    for percent in [50, 99, 100] {
        print!("  {:6.1} ms", late[last * percent / 100].as_secs_f64() * 1000.0);
    }
    println!();
}

/// An event counts as late after this time.
const LATE_MS: u128 = 100;

/// Prints the events that the plain subscribers received and missed.
pub(crate) fn comparison(sums: &Comparison) {
    let Comparison { keys, ran, missed, missed_by_both, received_by_both, late } = sums;
    let tardy = late.iter().filter(|late| late.as_millis() > LATE_MS).count();
    let latest = late.last().copied().unwrap_or_default().as_millis();
    println!(
        "
Without keylapse, for comparison: two plain programs subscribed to expired keys on the same server. They
were disconnected together with the listeners, and reconnected 10 ms later.
  {keys:4} notices had a key in Redis that expires when the notice is due; keylapse ran {ran} of them
  {missed:4} of these keys were missed by the first program: no merchant is notified, and no error is reported
  {missed_by_both:4} were missed by both programs, so a second one does not help
  {received_by_both:4} were received by both programs: without coordination, both would notify the merchant
  {tardy:4} were received more than {LATE_MS} ms late, the last after {latest} ms. keylapse reads each key when it is
       due, so that the server announces it immediately, to all subscribers. `make demo SHOW=attach` shows
       how late the server is without keylapse"
    );
}

/// Prints two dead letters, one of each kind.
pub(crate) fn dead_letters<T>(letters: &[DeadLetter<T>]) {
    println!("\nTwo of the dead letters, which can be replayed:");
    for reason in [DeadReason::Exhausted, DeadReason::Permanent] {
        let Some(letter) = letters.iter().find(|letter| letter.reason == reason) else { continue };
        let (key, reason) = (letter.key.escape_ascii(), letter.reason.as_str());
        let error = letter.last_error().unwrap_or_default();
        println!("  {key}: {reason} at attempt {}, {error:?}", letter.attempts);
    }
}

/// Explains the tables.
pub(crate) fn notes(tally: &Tally) {
    let Tally { cancelled, rearmed, .. } = tally;
    println!(
        "
armed     acknowledged by the server, and not withdrawn: handled + dead + lost.
          Another {cancelled} were cancelled and {rearmed} re-armed before they were handled.
by sweep  found by a sweep of the index, and not by a listener's timer or an event
duplicates  bookings of a notice that was booked already; merchants detect them by the idempotency key
late      time from the deadline to the start of the handler, by the server's clock
"
    );
}

/// Prints the violations of guarantees.
pub(crate) fn violations(tally: &Tally) {
    for violation in tally.violations.iter().take(MAX_VIOLATIONS) {
        println!("! {violation}");
    }
    if let Some(more) = tally.violations.len().checked_sub(MAX_VIOLATIONS).filter(|more| *more > 0) {
        println!("! and {more} more");
    }
}

/// Prints the last line, for machines.
pub(crate) fn summary(tally: &Tally) {
    let Tally { armed, handled, retried, swept, dead, open, duplicates, early, .. } = tally;
    println!(
        "armed={armed} handled={handled} retried={retried} swept={swept} dead={dead} duplicates={duplicates} lost={open} early={early}"
    );
}
