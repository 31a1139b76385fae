//! Leadership: when a claimer claims, compared with those of other listeners.
//!
//! Listeners should not all claim at the same millisecond, and no list of them exists. A claimer *follows* if another
//! one has taken the timer for which it woke. It then wakes a little after each deadline, with a growing delay, and
//! leads again when it finds an unclaimed timer. One of the followers is the *standby*, which detects a dead leader.
//! The others *rest*, and rarely check that leader and standby exist.

use std::time::Duration;

use tokio::time::Instant;

/// How long before a deadline a leader wakes. tokio's timer is up to 2 ms late. Claims reach further ahead than this,
/// so an early claim misses nothing.
const WAKE_AHEAD: Duration = Duration::from_millis(3);
/// The shortest and the longest delay of a follower that does not rest, which is how late timers start after the leader
/// has died.
const MIN_FOLLOWER_DELAY: Duration = Duration::from_millis(25);
const MAX_FOLLOWER_DELAY: Duration = Duration::from_millis(250);
/// The delay of a resting claimer. A leader wakes it earlier if it has no free slots or stops.
const RESTING_DELAY: Duration = Duration::from_secs(5);
/// A timer that is overdue by this time counts as unclaimed. It is half of the shortest delay of a follower.
pub(crate) const UNCLAIMED_AFTER: Duration = Duration::from_millis(13);

/// The state of a claimer, which leads or follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// The delay of a follower. `None` means that the claimer leads.
    following: Option<Duration>,
}

impl Leadership {
    /// Returns when to claim a timer that is due at `deadline`. `exactly` is true if an earlier claim within the
    /// lookahead found nothing.
    pub(crate) fn wake_at(&self, deadline: Instant, lookahead: Duration, exactly: bool) -> Instant {
        match self.following {
            Some(delay) => deadline + delay,
            None if exactly => deadline,
            None => deadline.checked_sub(WAKE_AHEAD.min(lookahead)).unwrap_or(deadline),
        }
    }

    /// Returns how far ahead of now to claim, in ms. It is negative for a follower, which claims only unclaimed
    /// timers and does not compete with a leader that is on time.
    pub(crate) fn reach(&self, lookahead: Duration) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i64::MAX);
        if self.follows() { -ms(UNCLAIMED_AFTER) } else { ms(lookahead) }
    }

    /// Returns whether another claimer leads.
    pub(crate) fn follows(&self) -> bool {
        self.following.is_some()
    }

    /// This claimer leads: it has claimed a timer, or no other claimer exists.
    pub(crate) fn won(&mut self) {
        self.following = None;
    }

    /// This claimer follows: another one took the timer for which it woke.
    pub(crate) fn lost(&mut self) {
        let delay = self.following.map_or(MIN_FOLLOWER_DELAY, |delay| (delay * 2).min(MAX_FOLLOWER_DELAY));
        self.following = Some(delay);
    }

    /// A claim found nothing. A follower rests if another one is the standby, and otherwise becomes the standby.
    pub(crate) fn found_nothing(&mut self, standby: bool) {
        if let Some(delay) = &mut self.following {
            *delay = if standby { RESTING_DELAY } else { MAX_FOLLOWER_DELAY.min(*delay) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKAHEAD: Duration = ms(10);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_leader_is_early_and_a_follower_later_each_time() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut leadership = Leadership::default();
        assert_eq!(leadership.wake_at(deadline, LOOKAHEAD, false), deadline - WAKE_AHEAD);
        assert_eq!(leadership.wake_at(deadline, LOOKAHEAD, true), deadline);
        assert_eq!(leadership.wake_at(deadline, Duration::ZERO, false), deadline);
        for delay in [25, 50, 100, 200, 250, 250] {
            leadership.lost();
            assert_eq!(
                leadership.wake_at(deadline, LOOKAHEAD, false),
                deadline + Duration::from_millis(delay)
            );
        }
        leadership.won();
        assert_eq!(leadership, Leadership::default());
    }

    #[test]
    fn a_follower_rests_while_another_is_the_standby() {
        let deadline = Instant::now();
        let mut leadership = Leadership::default();
        leadership.found_nothing(true);
        assert_eq!(leadership, Leadership::default(), "a leader does not rest");
        leadership.lost();
        for (standby, delay) in
            [(false, ms(25)), (true, RESTING_DELAY), (true, RESTING_DELAY), (false, MAX_FOLLOWER_DELAY)]
        {
            leadership.found_nothing(standby);
            assert_eq!(leadership.wake_at(deadline, LOOKAHEAD, false), deadline + delay);
        }
    }
}
