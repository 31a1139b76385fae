//! What plain subscribers heard of the same notices.

use std::time::{Duration, SystemTime};

use crate::ledger::Expiry;
use crate::subscriber::Heard;

/// Sums over the notices that had a key to expire; those that were due at once had none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) keys: usize,
    /// Of these, what keylapse ran.
    pub(crate) ran: usize,
    /// What the first subscriber never heard of.
    pub(crate) unheard: usize,
    /// What neither heard of.
    pub(crate) unheard_by_both: usize,
    /// What both heard of.
    pub(crate) heard_by_both: usize,
    /// How late the first heard of the others, sorted.
    pub(crate) late: Vec<Duration>,
}

impl Beside {
    pub(crate) fn of(expiries: &[Expiry], [first, second]: [&Heard; 2]) -> Self {
        let mut sums = Self { keys: expiries.len(), ..Self::default() };
        for expiry in expiries {
            let heard = [first, second].map(|heard| expiry.heard_in(heard));
            sums.ran += usize::from(expiry.ran);
            sums.unheard += usize::from(heard[0].is_none());
            sums.unheard_by_both += usize::from(heard == [None, None]);
            sums.heard_by_both += usize::from(heard.iter().all(Option::is_some));
            sums.late.extend(heard[0].and_then(|at| at.duration_since(expiry.at).ok()));
        }
        sums.late.sort_unstable();
        sums
    }
}

impl Expiry {
    /// When it was announced: before a key of the same name expires again.
    fn heard_in(&self, heard: &Heard) -> Option<SystemTime> {
        let mut times = heard.get(&self.trade)?.iter().copied();
        times.find(|at| *at >= self.at && self.next.is_none_or(|next| *at < next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn expiry(trade: u64, ms: u64, next: Option<u64>) -> Expiry {
        Expiry { trade, at: at(ms), next: next.map(at), ran: true }
    }

    #[test]
    fn what_was_heard_of_a_retry_does_not_stand_for_the_first_time() {
        let expiries = [expiry(1, 100, Some(400)), expiry(2, 100, None), expiry(3, 200, None)];
        let first = Heard::from([(1, vec![at(405)]), (2, vec![at(103)])]);
        let second = Heard::from([(1, vec![at(101), at(405)]), (2, vec![at(90), at(104)])]);
        let expected = Beside {
            keys: 3,
            ran: 3,
            unheard: 2,
            unheard_by_both: 1,
            heard_by_both: 1,
            late: vec![Duration::from_millis(3)],
        };
        assert_eq!(Beside::of(&expiries, [&first, &second]), expected);
    }
}
