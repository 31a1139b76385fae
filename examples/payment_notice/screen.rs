//! What is shown: a line each second, what goes wrong, and the table at the end.

use std::time::Duration;

use keylapse::dead_letters::{DeadLetter, DeadReason};
use keylapse::handler::LapseSource;
use keylapse_support::Server;
use tokio::time::Instant;

use crate::beside::Beside;
use crate::ledger::{Evidence, Ledger, Tally};
use crate::merchants::Merchant;

/// Complaints that are printed; all are counted.
const COMPLAINTS: usize = 20;

/// Plain lines on standard output.
pub(crate) struct Screen {
    started: Instant,
}

impl Screen {
    pub(crate) fn open(server: &Server, trades: u64) -> Self {
        println!(
            "{trades} payment notices, for merchants who take them at once, book them but fail at first, answer
too late, never answer, or have closed. Two listeners compete for them. Two plain subscribers of expired
keys look on.
The server is a private {} on port {}.",
            server.version(),
            server.port()
        );
        println!("\n    time   armed  handled  retried  by sweep   dead   open");
        Self { started: Instant::now() }
    }

    /// One line of progress.
    pub(crate) fn progress(&self, tally: &Tally) {
        let Tally { armed, handled, retried, swept, dead, open, .. } = tally;
        let secs = self.started.elapsed().as_secs_f64();
        println!("{secs:6.1} s  {armed:6}  {handled:7}  {retried:7}  {swept:8}  {dead:5}  {open:5}");
    }

    /// Something that happened to the system.
    pub(crate) fn say(&self, what: &str) {
        println!("{:6.1} s  -- {what}", self.started.elapsed().as_secs_f64());
    }
}

/// What became of the notices, by merchant.
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

/// How late the attempts were, by what brought them.
pub(crate) fn lateness(tally: &Tally) {
    println!("\nbrought by    attempts   late p50   late p99     latest");
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

/// What is late, for a subscriber.
const LATE_MS: u128 = 100;

/// What plain subscribers heard of the same notices.
pub(crate) fn beside(sums: &Beside) {
    let Beside { keys, ran, unheard, unheard_by_both, heard_by_both, late } = sums;
    let tardy = late.iter().filter(|late| late.as_millis() > LATE_MS).count();
    let latest = late.last().copied().unwrap_or_default().as_millis();
    println!(
        "
The same notices without keylapse: two plain programs subscribed to expired keys on the same server. They
were cut off when the listeners were, and connected again 10 ms later.
  {keys:4} notices had a key in Redis that expires when the notice is due; keylapse ran {ran} of them
  {unheard:4} of these keys one such program never heard of: nobody tells the merchant, and no error says so
  {unheard_by_both:4} neither program heard of, so a second one is no remedy
  {heard_by_both:4} both heard of: both would tell the merchant, and neither knows of the other
  {tardy:4} came more than {LATE_MS} ms late, the last after {latest} ms. keylapse reads each key when it is due, so
       that the server announces it at once, to everybody; `make demo SHOW=attach` shows how late the
       server is by itself"
    );
}

/// Two of the dead letters, one of each kind.
pub(crate) fn dead_letters<T>(letters: &[DeadLetter<T>]) {
    println!("\nTwo of the dead letters, which can be replayed:");
    for reason in [DeadReason::Exhausted, DeadReason::Permanent] {
        let Some(letter) = letters.iter().find(|letter| letter.reason == reason) else { continue };
        let (key, reason) = (letter.key.escape_ascii(), letter.reason.as_str());
        let error = letter.last_error().unwrap_or_default();
        println!("  {key}: {reason} at attempt {}, {error:?}", letter.attempts);
    }
}

/// How to read the tables.
pub(crate) fn notes(tally: &Tally) {
    let Tally { cancelled, rearmed, .. } = tally;
    println!(
        "
armed     acknowledged by the server, and not withdrawn: handled + dead + lost.
          Besides, {cancelled} were cancelled and {rearmed} re-armed before they were taken.
by sweep  found by a look at the index; no timer and no message had brought them
duplicates  bookings of a notice that was booked already: merchants go by the idempotency key
late      the server's clock, read by the running handler, less the deadline
"
    );
}

/// What should not have happened.
pub(crate) fn complaints(tally: &Tally) {
    for complaint in tally.complaints.iter().take(COMPLAINTS) {
        println!("! {complaint}");
    }
    if let Some(more) = tally.complaints.len().checked_sub(COMPLAINTS).filter(|more| *more > 0) {
        println!("! and {more} more");
    }
}

/// The last line, for machines.
pub(crate) fn summary(tally: &Tally) {
    let Tally { armed, handled, retried, swept, dead, open, duplicates, early, .. } = tally;
    println!(
        "armed={armed} handled={handled} retried={retried} swept={swept} dead={dead} duplicates={duplicates} lost={open} early={early}"
    );
}
