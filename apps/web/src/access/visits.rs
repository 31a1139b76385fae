//! Sessions that ended before they expired.

use std::collections::HashMap;

use crate::access::cookie::{Cookie, LIFE};

/// Maximum sessions that are remembered, about a hundred kilobytes.
const MAX_REVOKED_SESSIONS: usize = 4096;

/// Sessions that are refused although their signatures are valid.
#[derive(Debug)]
pub(super) struct RevokedSessions {
    /// In seconds since 1970. Sessions that began earlier are refused, so those that ended need not be remembered.
    since_s: u64,
    /// IDs of the later sessions that ended, and their expiry in seconds since 1970.
    ended: HashMap<[u8; 16], u64>,
}

impl RevokedSessions {
    pub(super) fn new(now_s: u64) -> Self {
        Self { since_s: now_s, ended: HashMap::new() }
    }

    /// Accepts a session that begins now, even if the clock was set back.
    pub(super) fn begin(&mut self, now_s: u64) {
        self.since_s = self.since_s.min(now_s);
    }

    pub(super) fn end(&mut self, cookie: Cookie, now_s: u64) {
        self.ended.retain(|_, until_s| *until_s > now_s);
        if self.ended.len() >= MAX_REVOKED_SESSIONS {
            // Ends all sessions, so that no ended one is accepted again.
            *self = Self::new(now_s + 1);
        }
        self.ended.insert(cookie.id, cookie.until_s);
    }

    pub(super) fn has(&self, cookie: Cookie) -> bool {
        cookie.until_s >= self.since_s + LIFE.as_secs() && !self.ended.contains_key(&cookie.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(number: u32, from_s: u64) -> Cookie {
        Cookie { until_s: from_s + LIFE.as_secs(), id: u128::from(number).to_be_bytes() }
    }

    #[test]
    fn who_has_left_does_not_come_back_however_many_leave() {
        let mut visits = RevokedSessions::new(1000);
        let (first, stays) = (cookie(1, 1000), cookie(2, 1000));
        visits.end(first, 1000);
        assert!(!visits.has(first) && visits.has(stays));
        for number in 3..20_000 {
            visits.end(cookie(number, 1001), 1001);
            assert!(visits.ended.len() <= MAX_REVOKED_SESSIONS && !visits.has(first));
        }
        assert!(!visits.has(stays), "it has to log in again");
        assert!(visits.has(cookie(20_001, 1002)));
    }

    #[test]
    fn a_program_that_begins_again_lets_nobody_in_who_came_before() {
        let mut visits = RevokedSessions::new(5000);
        assert!(!visits.has(cookie(1, 4999)) && visits.has(cookie(1, 5000)));
        // The clock was wrong.
        visits.begin(100);
        assert!(visits.has(cookie(1, 100)));
    }
}
