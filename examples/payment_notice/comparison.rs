//! Compares the plain subscribers with keylapse.

use std::time::{Duration, SystemTime};

use crate::ledger::Expiry;
use crate::subscriber::Received;

/// Sums over the notices that had a key to expire. Notices that were due immediately had none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) keys: usize,
    /// Notices among them that keylapse ran.
    pub(crate) ran: usize,
    /// Keys whose event the first subscriber missed.
    pub(crate) missed: usize,
    /// Keys whose event both subscribers missed.
    pub(crate) missed_by_both: usize,
    /// Keys whose event both subscribers received.
    pub(crate) received_by_both: usize,
    /// Lateness of the events that the first subscriber received, sorted.
    pub(crate) late: Vec<Duration>,
}

impl Comparison {
    pub(crate) fn of(expiries: &[Expiry], [first, second]: [&Received; 2]) -> Self {
        let mut sums = Self { keys: expiries.len(), ..Self::default() };
        for expiry in expiries {
            let received = [first, second].map(|received| expiry.received_in(received));
            sums.ran += usize::from(expiry.ran);
            sums.missed += usize::from(received[0].is_none());
            sums.missed_by_both += usize::from(received == [None, None]);
            sums.received_by_both += usize::from(received.iter().all(Option::is_some));
            sums.late.extend(received[0].and_then(|at| at.duration_since(expiry.at).ok()));
        }
        sums.late.sort_unstable();
        sums
    }
}

impl Expiry {
    /// Returns when its event was received, unless that event is of a later key with the same name.
    fn received_in(&self, received: &Received) -> Option<SystemTime> {
        let mut times = received.get(&self.trade)?.iter().copied();
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
    fn an_event_of_a_retry_does_not_count_for_the_first_expiry() {
        let expiries = [expiry(1, 100, Some(400)), expiry(2, 100, None), expiry(3, 200, None)];
        let first = Received::from([(1, vec![at(405)]), (2, vec![at(103)])]);
        let second = Received::from([(1, vec![at(101), at(405)]), (2, vec![at(90), at(104)])]);
        let expected = Comparison {
            keys: 3,
            ran: 3,
            missed: 2,
            missed_by_both: 1,
            received_by_both: 1,
            late: vec![Duration::from_millis(3)],
        };
        assert_eq!(Comparison::of(&expiries, [&first, &second]), expected);
    }
}
