//! Settings of a server.

use std::time::{Duration, SystemTime};

use crate::clock::TestClock;
use crate::engine::Engine;
use crate::keyspace::{ExpiryLateness, Keyspace};
use crate::random::Random;
use crate::server::TestServer;
use crate::state::State;

/// How late a real server with few keys finds those that nobody reads, about.
const EXPIRES_WITHIN: Duration = Duration::from_millis(100);

/// Settings for a [`Server`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    start: Option<SystemTime>,
    seed: Option<u64>,
    expires_within: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self { start: None, seed: None, expires_within: EXPIRES_WITHIN }
    }
}

impl Builder {
    /// What time it is at first. The default is the system's.
    pub fn start(mut self, start: SystemTime) -> Self {
        self.start = Some(start);
        self
    }

    /// Makes the server find expired keys that nobody reads at random times, from at once to as late as
    /// [`expires_within`](Self::expires_within) allows, the same for each seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How late the server finds an expired key that nobody reads: exactly so late, or with a
    /// [`seed`](Self::seed) at most. The default is 100 ms. A key that is read has expired at its deadline.
    pub fn expires_within(mut self, lateness: Duration) -> Self {
        self.expires_within = lateness;
        self
    }

    /// Makes the server.
    #[must_use]
    pub fn build(self) -> TestServer {
        let clock = TestClock::starting_at(self.start.unwrap_or_else(SystemTime::now));
        let most_micros = u64::try_from(self.expires_within.as_micros()).unwrap_or(u64::MAX);
        let lateness = ExpiryLateness { most_micros, random: self.seed.map(Random::new) };
        let random = Random::new(self.seed.unwrap_or_default());
        let state = State::new(Keyspace::new(lateness), random, clock.micros());
        TestServer::over(Engine::new(state, clock), clock)
    }
}
