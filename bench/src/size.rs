//! How much a run measures.

/// The amounts that a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Jobs of a throughput run.
    pub jobs: usize,
    /// Jobs that are offered in each way, where offering is timed.
    pub arms: usize,
    /// Jobs whose whole lives are timed.
    pub lives: usize,
    /// Timers whose bytes are counted.
    pub timers: usize,
    /// Seconds that a lateness run lasts.
    pub seconds: usize,
    /// Foreign keys, in cases that have them.
    pub foreign: usize,
    /// Seconds of an idle run.
    pub idle: usize,
}

/// The amounts of a quick run.
pub const QUICK: Size = Size {
    jobs: 100_000,
    arms: 6000,
    lives: 10_000,
    timers: 200_000,
    seconds: 3,
    foreign: 100_000,
    idle: 12,
};
/// The amounts of a long run.
pub const LONG: Size = Size {
    jobs: 100_000,
    arms: 20_000,
    lives: 100_000,
    timers: 200_000,
    seconds: 3,
    foreign: 1_000_000,
    idle: 20,
};
/// The amounts of a run that only shows that the harness works.
pub const TINY: Size =
    Size { jobs: 500, arms: 200, lives: 500, timers: 500, seconds: 1, foreign: 1000, idle: 2 };
