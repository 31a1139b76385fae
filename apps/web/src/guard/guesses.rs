//! Slows down clients that send wrong tokens, for each address and for all together.
//!
//! A right token is never delayed. The first wrong tokens of an address are answered immediately, further ones at a fixed
//! pace. An address that does not wait for its answers is eventually refused, whatever it sends, except for right tokens
//! that it has sent before. A guesser therefore locks out nobody who was there already.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tokens of an address that are answered immediately, and the interval of answers to further ones.
const FIRST: u32 = 5;
const WRONG_TOKEN_SPACING: Duration = Duration::from_millis(200);
/// Both for all addresses together.
const FIRST_OF_ALL: u32 = 50;
const EACH_OF_ALL: Duration = Duration::from_millis(20);
/// Maximum delay of an answer. A client whose answer would be later is refused.
const LATEST: Duration = Duration::from_secs(30);
/// Maximum addresses with answers due, and maximum pairs of an address and a right token, that are remembered.
const ADDRESSES: usize = 4096;

/// Wrong tokens by address.
#[derive(Debug, Default)]
pub(crate) struct TokenThrottle(Mutex<TokenThrottleState>);

#[derive(Debug, Default)]
struct TokenThrottleState {
    all: AnswerPace,
    of: HashMap<Option<IpAddr>, AnswerPace>,
    /// The common pace of addresses beyond [`ADDRESSES`].
    others: AnswerPace,
    /// Names of right tokens, and the addresses that sent them.
    known: HashSet<(Option<IpAddr>, Box<str>)>,
    /// When a refusal was last logged.
    said: Option<Instant>,
}

/// The verdict on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenVerdict {
    Right,
    /// The token is wrong. The answer waits for this time.
    Wrong(Duration),
    /// The client is refused, whatever its token. `is_news` if no refusal was logged lately.
    Refused {
        is_news: bool,
    },
}

/// The time up to which answers are scheduled.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerPace(Option<Instant>);

impl AnswerPace {
    fn ahead(self, now: Instant) -> Duration {
        self.0.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Schedules the next answer, and returns its delay.
    fn next(&mut self, now: Instant, first: u32, each: Duration) -> Duration {
        let ahead = self.ahead(now);
        self.0 = Some(now + (ahead + each).min(LATEST));
        (ahead + each).saturating_sub(each * first)
    }
}

impl TokenThrottle {
    /// Judges a token from an address: the right one with this name, or a wrong one.
    pub(super) fn judge(&self, address: Option<IpAddr>, name: Option<&str>) -> TokenVerdict {
        let (mut kept, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let known = name.map(|name| (address, name.into()));
        match known {
            Some(known) if kept.known.contains(&known) => TokenVerdict::Right,
            _ if kept.is_full(address, now) => TokenVerdict::Refused { is_news: kept.is_news(now) },
            Some(known) => {
                kept.knows(known);
                TokenVerdict::Right
            }
            None => TokenVerdict::Wrong(kept.delay(address, now)),
        }
    }
}

impl TokenThrottleState {
    /// Returns whether too many answers to this address, or to all addresses, are due.
    fn is_full(&self, address: Option<IpAddr>, now: Instant) -> bool {
        // An address that sent no wrong token is never refused because of others.
        let Some(pace) = self.of.get(&address).filter(|pace| !pace.ahead(now).is_zero()) else {
            return false;
        };
        let is_full = |pace: &AnswerPace, each| pace.ahead(now) + each >= LATEST;
        is_full(pace, WRONG_TOKEN_SPACING) || is_full(&self.all, EACH_OF_ALL)
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
            // Active clients are added again with their next request.
            self.known.clear();
        }
        self.known.insert(known);
    }

    /// Schedules the answer to a wrong token, and returns its delay.
    fn delay(&mut self, address: Option<IpAddr>, now: Instant) -> Duration {
        if self.of.len() >= ADDRESSES {
            self.of.retain(|_, pace| !pace.ahead(now).is_zero());
        }
        let has_room = self.of.len() < ADDRESSES || self.of.contains_key(&address);
        let of_all = self.all.next(now, FIRST_OF_ALL, EACH_OF_ALL);
        let pace = if has_room { self.of.entry(address).or_default() } else { &mut self.others };
        pace.next(now, FIRST, WRONG_TOKEN_SPACING).max(of_all).min(LATEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    fn wrong(guesses: &TokenThrottle, number: u32) -> Duration {
        match guesses.judge(address(number), None) {
            TokenVerdict::Wrong(wait) => wait,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_wrong_tokens_are_answered_at_once_and_the_next_at_a_pace() {
        let guesses = TokenThrottle::default();
        let waits: Vec<_> = (0..20).map(|_| wrong(&guesses, 1)).collect();
        assert_eq!(waits[..5], [Duration::ZERO; 5]);
        assert!(waits[19] > Duration::from_millis(2500) && waits[19] <= Duration::from_secs(3), "{waits:?}");
        assert_eq!(wrong(&guesses, 2), Duration::ZERO);
        assert_eq!(guesses.judge(address(1), Some("shop")), TokenVerdict::Right);
    }

    #[test]
    fn one_that_does_not_wait_is_refused_and_keeps_nobody_else_out() {
        let guesses = TokenThrottle::default();
        assert_eq!(guesses.judge(address(1), Some("shop")), TokenVerdict::Right);
        let verdicts: Vec<_> = (0..200).map(|_| guesses.judge(address(1), None)).collect();
        let refused =
            |is_news| verdicts.iter().filter(|one| **one == TokenVerdict::Refused { is_news }).count();
        assert!(refused(true) == 1 && refused(false) >= 40, "{verdicts:?}");
        assert_eq!(guesses.judge(address(1), Some("ops")), TokenVerdict::Refused { is_news: false });
        assert_eq!(guesses.judge(address(1), Some("shop")), TokenVerdict::Right);
        assert_eq!(guesses.judge(address(2), Some("ops")), TokenVerdict::Right);
    }

    #[test]
    fn a_crowd_of_addresses_is_slowed_and_takes_no_more_memory() {
        let guesses = TokenThrottle::default();
        for number in 0..20_000 {
            guesses.judge(address(number), None);
        }
        assert!(wrong(&guesses, 70_000) >= LATEST / 2);
        assert_eq!(guesses.judge(address(80_000), Some("ops")), TokenVerdict::Right);
        for number in 0..20_000 {
            guesses.judge(address(100_000 + number), Some("ops"));
        }
        let kept = guesses.0.lock().unwrap();
        assert!(kept.of.len() <= ADDRESSES && kept.known.len() <= ADDRESSES);
    }
}
