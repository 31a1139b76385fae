//! A host that fails again and again is left alone for a while, so that its timers wait in Redis and hold no place.

use std::time::Duration;

use tokio::time::Instant;

/// After how many failures in a row, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) failures: u32,
    pub(crate) wait: Duration,
}

/// How long the others wait for the one who tries: not much longer than that takes, as a rule.
const TRIAL: Duration = Duration::from_secs(2);

/// What is known of a host.
#[derive(Debug)]
pub(crate) struct Circuit {
    limits: Limits,
    state: State,
    /// How many calls in a row have failed.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Nobody asks until then.
    Open(Instant),
    /// One asks, since then; the others wait.
    Trial(Instant),
}

/// Whether a host may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Free,
    /// Not before so long.
    Wait(Duration),
}

impl Circuit {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, state: State::Closed, failures: 0 }
    }

    /// Whoever is told that the way is free asks, and says how it went.
    pub(crate) fn enter(&mut self, now: Instant) -> Way {
        match self.state {
            State::Closed => Way::Free,
            State::Open(until) if now < until => Way::Wait(until - now),
            // Whoever asked has never come back: it was dropped.
            State::Trial(since) if now < since + self.limits.wait => Way::Wait(TRIAL.min(self.limits.wait)),
            State::Open(_) | State::Trial(_) => {
                self.state = State::Trial(now);
                Way::Free
            }
        }
    }

    /// It has answered, whatever that was.
    pub(crate) fn succeed(&mut self) {
        (self.state, self.failures) = (State::Closed, 0);
    }

    /// It has not, or said that it cannot.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.is_open() || self.failures >= self.limits.failures {
            self.state = State::Open(now + self.limits.wait);
        }
    }

    /// Whether it is left alone.
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// How many calls in a row have failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// How long it is left alone; nothing once it may be tried.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open(until) => Some(until.saturating_duration_since(now)),
            _ => None,
        }
    }

    /// The next call is a trial, however long it was to be left alone.
    pub(crate) fn try_now(&mut self, now: Instant) {
        if let State::Open(_) = self.state {
            self.state = State::Open(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn circuit() -> Circuit {
        Circuit::new(Limits { failures: 3, wait: WAIT })
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row() {
        let (mut circuit, now) = (circuit(), Instant::now());
        for _ in 0..2 {
            circuit.fail(now);
        }
        circuit.succeed();
        for _ in 0..2 {
            circuit.fail(now);
            assert_eq!(circuit.enter(now), Way::Free);
        }
        circuit.fail(now);
        assert_eq!(circuit.enter(now), Way::Wait(WAIT));
        assert_eq!(circuit.enter(now + WAIT / 2), Way::Wait(WAIT / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn then_one_asks_and_the_others_wait() {
        let (mut circuit, now) = (circuit(), Instant::now());
        for _ in 0..3 {
            circuit.fail(now);
        }
        let later = now + WAIT;
        assert_eq!(circuit.enter(later), Way::Free);
        assert_eq!(circuit.enter(later), Way::Wait(TRIAL));
        circuit.fail(later);
        assert_eq!(circuit.enter(later), Way::Wait(WAIT));
        assert_eq!(circuit.enter(later + WAIT), Way::Free);
        circuit.succeed();
        assert_eq!((circuit.enter(later), circuit.is_open()), (Way::Free, false));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_tried_at_once_if_somebody_asks_for_it() {
        let (mut circuit, now) = (circuit(), Instant::now());
        circuit.try_now(now);
        for _ in 0..3 {
            circuit.fail(now);
        }
        assert_eq!((circuit.rest(now), circuit.failures()), (Some(WAIT), 3));
        circuit.try_now(now);
        assert_eq!((circuit.rest(now), circuit.enter(now)), (Some(Duration::ZERO), Way::Free));
        circuit.fail(now);
        assert_eq!((circuit.enter(now), circuit.failures()), (Way::Wait(WAIT), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_never_ends_is_made_again() {
        let (mut circuit, now) = (circuit(), Instant::now());
        for _ in 0..3 {
            circuit.fail(now);
        }
        assert_eq!(circuit.enter(now + WAIT), Way::Free);
        assert_eq!(circuit.enter(now + WAIT * 2), Way::Free);
    }
}
