//! Who leads: when a claimer looks, among others that look too.
//!
//! Not everybody may claim for the same millisecond, and nobody keeps a list of
//! members. So whoever wakes for a deadline and finds that another has taken it
//! is *following*: it then wakes a little after each deadline, later each time, and
//! leads again as soon as it finds something left lying. Of those who follow one
//! is the *standby*, and misses a dead leader; the others *rest*, and look only now
//! and then whether both are there.

use std::time::Duration;

use tokio::time::Instant;

/// The runtime's timer is up to two milliseconds late; claims reach further
/// ahead than this, so that nothing is missed by being early.
const AHEAD: Duration = Duration::from_millis(3);
/// A dead leader costs between these.
const FIRST_DELAY: Duration = Duration::from_millis(25);
const LONGEST_DELAY: Duration = Duration::from_millis(250);
/// Who rests looks so late; and when it is called: whoever leads has no permits left, or ends.
const RESTING_DELAY: Duration = Duration::from_secs(5);
/// What has been due for so long was left lying.
pub(crate) const UNCLAIMED_AFTER: Duration = Duration::from_millis(13);

/// Whether this claimer leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    following: Option<Duration>,
}

impl Leadership {
    /// When to look for what is due at `deadline`. `exactly` when an earlier
    /// look within the lookahead came away empty.
    pub(crate) fn wake(&self, deadline: Instant, lookahead: Duration, exactly: bool) -> Instant {
        match self.following {
            Some(delay) => deadline + delay,
            None if exactly => deadline,
            None => deadline.checked_sub(AHEAD.min(lookahead)).unwrap_or(deadline),
        }
    }

    /// How far ahead of now to claim, in ms. Who follows takes only what was left lying: the rest is the leader's,
    /// and taking it would beat one who is in time.
    pub(crate) fn reach(&self, lookahead: Duration) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i64::MAX);
        if self.follows() { -ms(UNCLAIMED_AFTER) } else { ms(lookahead) }
    }

    /// Whether another leads.
    pub(crate) fn follows(&self) -> bool {
        self.following.is_some()
    }

    /// Something was left for us, or nobody else is there.
    pub(crate) fn won(&mut self) {
        self.following = None;
    }

    /// Woke for a deadline that somebody else has taken.
    pub(crate) fn lost(&mut self) {
        let delay = self.following.map_or(FIRST_DELAY, |delay| (delay * 2).min(LONGEST_DELAY));
        self.following = Some(delay);
    }

    /// Found nothing; whether another is the standby.
    pub(crate) fn found_nothing(&mut self, standby: bool) {
        if let Some(delay) = &mut self.following {
            *delay = if standby { RESTING_DELAY } else { LONGEST_DELAY.min(*delay) };
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
    fn a_leader_is_early_and_the_beaten_ever_later() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut leadership = Leadership::default();
        assert_eq!(leadership.wake(deadline, LOOKAHEAD, false), deadline - AHEAD);
        assert_eq!(leadership.wake(deadline, LOOKAHEAD, true), deadline);
        assert_eq!(leadership.wake(deadline, Duration::ZERO, false), deadline);
        for delay in [25, 50, 100, 200, 250, 250] {
            leadership.lost();
            assert_eq!(leadership.wake(deadline, LOOKAHEAD, false), deadline + Duration::from_millis(delay));
        }
        leadership.won();
        assert_eq!(leadership, Leadership::default());
    }

    #[test]
    fn who_follows_rests_while_another_is_the_standby_and_then_is_it_itself() {
        let deadline = Instant::now();
        let mut leadership = Leadership::default();
        leadership.found_nothing(true);
        assert_eq!(leadership, Leadership::default(), "who leads is not put off");
        leadership.lost();
        for (standby, delay) in
            [(false, ms(25)), (true, RESTING_DELAY), (true, RESTING_DELAY), (false, LONGEST_DELAY)]
        {
            leadership.found_nothing(standby);
            assert_eq!(leadership.wake(deadline, LOOKAHEAD, false), deadline + delay);
        }
    }
}
