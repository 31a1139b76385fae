//! Slows down those who show wrong tokens, by their addresses and all together.
//!
//! A right token is never kept waiting. Of the wrong ones the first few of an address are answered at once, the next ones at
//! a pace. An address that does not wait for its answers is refused in the end, without a look at what it shows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tokens of an address that are answered at once, and how far apart the next ones are answered.
const FIRST: u32 = 5;
const EACH: Duration = Duration::from_millis(200);
/// The same of all addresses.
const FIRST_OF_ALL: u32 = 50;
const EACH_OF_ALL: Duration = Duration::from_millis(20);
/// No answer comes later than this: where it would, nothing is looked at.
const LATEST: Duration = Duration::from_secs(30);
/// Addresses that are remembered, for as long as answers to them are due.
const ADDRESSES: usize = 4096;

/// The addresses that have guessed.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: Pace,
    of: HashMap<Option<IpAddr>, Pace>,
    /// The pace of addresses for which there is no room.
    others: Pace,
    /// When it was last said that nothing is looked at.
    said: Option<Instant>,
}

/// Up to when all times are given away.
#[derive(Clone, Copy, Debug, Default)]
struct Pace(Option<Instant>);

impl Pace {
    fn ahead(self, now: Instant) -> Duration {
        self.0.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Gives away the next time, and returns how far it is from now.
    fn next(&mut self, now: Instant, first: u32, each: Duration) -> Duration {
        let ahead = self.ahead(now);
        self.0 = Some(now + (ahead + each).min(LATEST));
        (ahead + each).saturating_sub(each * first)
    }
}

impl Guesses {
    /// Returns whether a token of this address is looked at; if not, whether the log has yet to say so.
    pub(super) fn may_look(&self, address: Option<IpAddr>) -> Result<(), bool> {
        let (mut kept, now) = (self.kept(), Instant::now());
        // One who has shown nothing wrong is never kept out by what others do.
        let Some(pace) = kept.of.get(&address) else { return Ok(()) };
        let is_full = |pace: &Pace, each| pace.ahead(now) + each >= LATEST;
        let is_due = !pace.ahead(now).is_zero();
        let is_too_much = is_full(pace, EACH) || is_due && is_full(&kept.all, EACH_OF_ALL);
        if !is_too_much {
            return Ok(());
        }
        let is_news = kept.said.is_none_or(|said| now - said > LATEST);
        kept.said = if is_news { Some(now) } else { kept.said };
        Err(is_news)
    }

    /// A token of this address was wrong: after how long that is to be answered.
    pub(super) fn wrong(&self, address: Option<IpAddr>) -> Duration {
        let (mut kept, now) = (self.kept(), Instant::now());
        if kept.of.len() >= ADDRESSES {
            kept.of.retain(|_, pace| !pace.ahead(now).is_zero());
        }
        let is_known = kept.of.len() < ADDRESSES || kept.of.contains_key(&address);
        let of_all = kept.all.next(now, FIRST_OF_ALL, EACH_OF_ALL);
        let pace = if is_known { kept.of.entry(address).or_default() } else { &mut kept.others };
        pace.next(now, FIRST, EACH).max(of_all).min(LATEST)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    #[test]
    fn the_first_wrong_tokens_are_answered_at_once_and_the_next_at_a_pace() {
        let guesses = Guesses::default();
        let waits: Vec<_> = (0..20).map(|_| guesses.wrong(address(1))).collect();
        assert_eq!(waits[..5], [Duration::ZERO; 5]);
        assert!(waits[19] > Duration::from_millis(2800) && waits[19] <= Duration::from_secs(3), "{waits:?}");
        assert_eq!(guesses.wrong(address(2)), Duration::ZERO);
        assert!(guesses.may_look(address(1)).is_ok());
    }

    #[test]
    fn who_does_not_wait_is_not_looked_at_and_keeps_nobody_else_out() {
        let guesses = Guesses::default();
        for _ in 0..200 {
            guesses.wrong(address(1));
        }
        assert_eq!((guesses.may_look(address(1)), guesses.may_look(address(1))), (Err(true), Err(false)));
        assert_eq!(guesses.may_look(address(2)), Ok(()));
        // A crowd of addresses is slowed, and takes no more memory.
        for number in 0..20_000 {
            guesses.wrong(address(number));
        }
        assert!(guesses.wrong(address(70_000)) >= LATEST / 2);
        assert!(guesses.kept().of.len() <= ADDRESSES);
        assert_eq!(guesses.may_look(address(80_000)), Ok(()));
    }
}
