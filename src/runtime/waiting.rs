//! How much of attached keys waits to be read and written, for those who ask from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What waits at present, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// To be read, or until what was read is written.
    pub(crate) reads: Gauge,
    /// To be written, without values.
    pub(crate) writes: Gauge,
}

/// A sum that falls again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicUsize>);

/// Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Amount {
    gauge: Gauge,
    amount: usize,
}

impl Gauge {
    pub(crate) fn add(&self, amount: usize) -> Amount {
        self.0.fetch_add(amount, Ordering::Relaxed);
        Amount { gauge: self.clone(), amount }
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Amount {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.amount, Ordering::Relaxed);
    }
}
