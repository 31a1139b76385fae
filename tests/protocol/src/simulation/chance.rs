//! The distributions that the world is made of, in microseconds.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Chance from a seed.
#[derive(Debug)]
pub(super) struct Chance(StdRng);

/// One way through a quiet local network takes this at least.
const NETWORK_LEAST: u64 = 40;
/// The mean of what is added to that, exponentially.
const NETWORK_MEAN: f64 = 40.0;
/// One message in this many is held up,
const HELD_UP_ONE_IN: u32 = 1000;
/// for this long.
const HELD_UP: u64 = 2_000;
/// The runtime's timer has ticks of a millisecond: p50 1.4 ms, p99 1.9 late.
const TICK: (u64, u64) = (900, 1_910);
/// The thread that starts handlers is this late: p50 0.08 ms, p99 0.15.
const STARTER: (u64, u64) = (10, 150);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        self.0.random_range(least..=most)
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.0.random::<f64>()).ln()
    }

    /// One way between a listener and the server.
    pub(super) fn network(&mut self) -> u64 {
        let held_up = if self.0.random_ratio(1, HELD_UP_ONE_IN) { HELD_UP } else { 0 };
        NETWORK_LEAST + self.exponential(NETWORK_MEAN) as u64 + held_up
    }

    /// How late a sleeping listener wakes.
    pub(super) fn tick(&mut self) -> u64 {
        self.between(TICK)
    }

    /// How late a handler starts.
    pub(super) fn starter(&mut self) -> u64 {
        self.between(STARTER)
    }

    /// From one arm to the next.
    pub(super) fn gap(&mut self, rate: f64) -> u64 {
        self.exponential(1_000_000.0 / rate) as u64
    }

    /// For how long a timer is armed, in ms.
    pub(super) fn delay(&mut self) -> u64 {
        self.between((500, 1_500))
    }
}
