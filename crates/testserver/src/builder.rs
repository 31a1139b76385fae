//! The settings of a server.

use std::time::{Duration, SystemTime};

use crate::clock::TestClock;
use crate::engine::Engine;
use crate::keyspace::{ExpiryLateness, Keyspace};
use crate::random::Random;
use crate::server::TestServer;
use crate::state::State;

/// A real server with few keys deletes expired keys that nobody reads about this late.
const EXPIRES_WITHIN: Duration = Duration::from_millis(100);

/// The settings of a [`TestServer`].
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
    /// Sets the time at which the server's clock starts. Default: the system's time.
    pub fn start(mut self, start: SystemTime) -> Self {
        self.start = Some(start);
        self
    }

    /// Deletes expired keys that nobody reads after a random delay, at most [`expires_within`](Self::expires_within). A seed
    /// gives the same delays in each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets how late the server deletes an expired key that nobody reads. With a [`seed`](Self::seed) this is the maximum.
    /// Default: 100 ms. A key that is read expires at its deadline.
    pub fn expires_within(mut self, lateness: Duration) -> Self {
        self.expires_within = lateness;
        self
    }

    /// Returns the server.
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
