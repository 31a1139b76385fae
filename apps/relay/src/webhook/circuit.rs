//! The circuit of a host: after failures in a row it is not called for a while. Its timers then wait in Redis and hold no
//! concurrency slot.

use std::time::Duration;

use tokio::time::Instant;

/// After how many failures in a row a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) failures: u32,
    pub(crate) wait: Duration,
}

/// How long other timers wait during a trial call: a little longer than one usually takes.
const TRIAL: Duration = Duration::from_secs(2);

/// The circuit of one host.
#[derive(Debug)]
pub(crate) struct Circuit {
    limits: Limits,
    state: State,
    /// Failures in a row.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// No call is made until then.
    Open(Instant),
    /// A trial call runs since then. Other timers wait.
    Trial(Instant),
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitDecision {
    Free,
    /// No call is made before this time has passed.
    Wait(Duration),
}

impl Circuit {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, state: State::Closed, failures: 0 }
    }

    /// Decides about a call. If it is free, the caller makes it, and reports its end to `succeed` or `fail`.
    pub(crate) fn enter(&mut self, now: Instant) -> CircuitDecision {
        match self.state {
            State::Closed => CircuitDecision::Free,
            State::Open(until) if now < until => CircuitDecision::Wait(until - now),
            // A trial that takes longer was dropped, and the next call is another trial.
            State::Trial(since) if now < since + self.limits.wait => {
                CircuitDecision::Wait(TRIAL.min(self.limits.wait))
            }
            State::Open(_) | State::Trial(_) => {
                self.state = State::Trial(now);
                CircuitDecision::Free
            }
        }
    }

    /// Closes the circuit, as the host has answered.
    pub(crate) fn succeed(&mut self) {
        (self.state, self.failures) = (State::Closed, 0);
    }

    /// Counts a failure: no answer, or an answer 5xx. Opens the circuit after too many, or after a failed trial.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.is_open() || self.failures >= self.limits.failures {
            self.state = State::Open(now + self.limits.wait);
        }
    }

    /// Returns whether the circuit is open or under trial.
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// Returns the number of failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns how long the circuit stays open; nothing if it is closed or under trial.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open(until) => Some(until.saturating_duration_since(now)),
            _ => None,
        }
    }

    /// Makes the next call a trial, even if the circuit would stay open for longer.
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
            assert_eq!(circuit.enter(now), CircuitDecision::Free);
        }
        circuit.fail(now);
        assert_eq!(circuit.enter(now), CircuitDecision::Wait(WAIT));
        assert_eq!(circuit.enter(now + WAIT / 2), CircuitDecision::Wait(WAIT / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn then_one_asks_and_the_others_wait() {
        let (mut circuit, now) = (circuit(), Instant::now());
        for _ in 0..3 {
            circuit.fail(now);
        }
        let later = now + WAIT;
        assert_eq!(circuit.enter(later), CircuitDecision::Free);
        assert_eq!(circuit.enter(later), CircuitDecision::Wait(TRIAL));
        circuit.fail(later);
        assert_eq!(circuit.enter(later), CircuitDecision::Wait(WAIT));
        assert_eq!(circuit.enter(later + WAIT), CircuitDecision::Free);
        circuit.succeed();
        assert_eq!((circuit.enter(later), circuit.is_open()), (CircuitDecision::Free, false));
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
        assert_eq!((circuit.rest(now), circuit.enter(now)), (Some(Duration::ZERO), CircuitDecision::Free));
        circuit.fail(now);
        assert_eq!((circuit.enter(now), circuit.failures()), (CircuitDecision::Wait(WAIT), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_never_ends_is_made_again() {
        let (mut circuit, now) = (circuit(), Instant::now());
        for _ in 0..3 {
            circuit.fail(now);
        }
        assert_eq!(circuit.enter(now + WAIT), CircuitDecision::Free);
        assert_eq!(circuit.enter(now + WAIT * 2), CircuitDecision::Free);
    }
}
