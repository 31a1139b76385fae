//! Slows down those who show wrong tokens, by their addresses and all together.
//!
//! A right token is never kept waiting. Of the wrong ones the first few of an address are answered at once, the next ones at
//! a pace. An address that does not wait for its answers is refused in the end, right or wrong, but for tokens that it has
//! shown before: a guesser locks nobody out who was there already.

use std::collections::{HashMap, HashSet};
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
/// Addresses that are remembered, for as long as answers to them are due; and right tokens that were shown from one.
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
    /// Names of right tokens, and where they came from.
    known: HashSet<(Option<IpAddr>, Box<str>)>,
    /// When it was last said that nothing is looked at.
    said: Option<Instant>,
}

/// The answer to somebody who shows a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    /// It is answered after so long.
    Wrong(Duration),
    /// It may be either. The log has yet to say so, or not.
    Refused {
        is_news: bool,
    },
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
    /// Judges what comes from an address: the token of this name, or a wrong one.
    pub(super) fn judge(&self, address: Option<IpAddr>, name: Option<&str>) -> Verdict {
        let (mut kept, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let known = name.map(|name| (address, name.into()));
        match known {
            Some(known) if kept.known.contains(&known) => Verdict::Right,
            _ if kept.is_full(address, now) => Verdict::Refused { is_news: kept.is_news(now) },
            Some(known) => {
                kept.knows(known);
                Verdict::Right
            }
            None => Verdict::Wrong(kept.delay(address, now)),
        }
    }
}

impl Kept {
    /// Whether too many answers are ahead of the next one to this address.
    fn is_full(&self, address: Option<IpAddr>, now: Instant) -> bool {
        // One who has shown nothing wrong is never kept out by what others do.
        let Some(pace) = self.of.get(&address).filter(|pace| !pace.ahead(now).is_zero()) else {
            return false;
        };
        let is_full = |pace: &Pace, each| pace.ahead(now) + each >= LATEST;
        is_full(pace, EACH) || is_full(&self.all, EACH_OF_ALL)
    }

    fn is_news(&mut self, now: Instant) -> bool {
        let is_news = self.said.is_none_or(|said| now - said > LATEST);
        if is_news {
            self.said = Some(now);
        }
        is_news
    }

    fn knows(&mut self, known: (Option<IpAddr>, Box<str>)) {
        if self.known.len() >= ADDRESSES {
            // Those who come on are known again with their next request.
            self.known.clear();
        }
        self.known.insert(known);
    }

    /// How long the answer to a wrong token waits.
    fn delay(&mut self, address: Option<IpAddr>, now: Instant) -> Duration {
        if self.of.len() >= ADDRESSES {
            self.of.retain(|_, pace| !pace.ahead(now).is_zero());
        }
        let has_room = self.of.len() < ADDRESSES || self.of.contains_key(&address);
        let of_all = self.all.next(now, FIRST_OF_ALL, EACH_OF_ALL);
        let pace = if has_room { self.of.entry(address).or_default() } else { &mut self.others };
        pace.next(now, FIRST, EACH).max(of_all).min(LATEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    fn wrong(guesses: &Guesses, number: u32) -> Duration {
        match guesses.judge(address(number), None) {
            Verdict::Wrong(wait) => wait,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_wrong_tokens_are_answered_at_once_and_the_next_at_a_pace() {
        let guesses = Guesses::default();
        let waits: Vec<_> = (0..20).map(|_| wrong(&guesses, 1)).collect();
        assert_eq!(waits[..5], [Duration::ZERO; 5]);
        assert!(waits[19] > Duration::from_millis(2500) && waits[19] <= Duration::from_secs(3), "{waits:?}");
        assert_eq!(wrong(&guesses, 2), Duration::ZERO);
        assert_eq!(guesses.judge(address(1), Some("shop")), Verdict::Right);
    }

    #[test]
    fn one_that_does_not_wait_is_refused_and_keeps_nobody_else_out() {
        let guesses = Guesses::default();
        assert_eq!(guesses.judge(address(1), Some("shop")), Verdict::Right);
        let verdicts: Vec<_> = (0..200).map(|_| guesses.judge(address(1), None)).collect();
        let refused = |is_news| verdicts.iter().filter(|one| **one == Verdict::Refused { is_news }).count();
        assert!(refused(true) == 1 && refused(false) >= 40, "{verdicts:?}");
        assert_eq!(guesses.judge(address(1), Some("ops")), Verdict::Refused { is_news: false });
        assert_eq!(guesses.judge(address(1), Some("shop")), Verdict::Right);
        assert_eq!(guesses.judge(address(2), Some("ops")), Verdict::Right);
    }

    #[test]
    fn a_crowd_of_addresses_is_slowed_and_takes_no_more_memory() {
        let guesses = Guesses::default();
        for number in 0..20_000 {
            guesses.judge(address(number), None);
        }
        assert!(wrong(&guesses, 70_000) >= LATEST / 2);
        assert_eq!(guesses.judge(address(80_000), Some("ops")), Verdict::Right);
        for number in 0..20_000 {
            guesses.judge(address(100_000 + number), Some("ops"));
        }
        let kept = guesses.0.lock().unwrap();
        assert!(kept.of.len() <= ADDRESSES && kept.known.len() <= ADDRESSES);
    }
}
