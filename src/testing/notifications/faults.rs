//! The faults of a stream.

use std::time::Duration;

/// What is wrong with the stream at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) flow: Flow,
    /// How much later everything arrives.
    pub(super) delay: Duration,
    /// How many more times.
    pub(super) more: usize,
    /// For how long notifications are gathered, to be turned around.
    pub(super) window: Duration,
    losing: Losing,
}

/// What gets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    #[default]
    Everything,
    /// Canaries alone.
    Losing,
    /// Nothing.
    Silent,
    /// Nothing, and it shows.
    Disconnected,
}

impl Flow {
    /// Whether canaries are heard.
    pub(super) fn carries_canaries(self) -> bool {
        matches!(self, Self::Everything | Self::Losing)
    }
}

/// An order to lose a few. Each line obeys it once, so it has a number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losing {
    number: u64,
    left: usize,
}

impl Losing {
    /// Whether to lose one more, by the latest order.
    pub(super) fn one(&mut self, faults: &Faults) -> bool {
        if self.number != faults.losing.number {
            *self = faults.losing;
        }
        let lost = self.left > 0;
        self.left = self.left.saturating_sub(1);
        lost
    }
}

impl Faults {
    pub(super) fn lose_next(&mut self, count: usize) {
        self.losing = Losing { number: self.losing.number + 1, left: count };
    }

    pub(super) fn heal(&mut self) {
        *self = Self { losing: self.losing, ..Self::default() };
        self.lose_next(0);
    }
}
