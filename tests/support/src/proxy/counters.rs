//! The counters of a proxy. Tests and benchmarks compute "requests per timer" and "requests a second" from them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: Mutex<BTreeMap<String, u64>>,
    batches: AtomicU64,
    longest: AtomicUsize,
}

impl Counters {
    pub(super) fn request(&self, words: &[Bytes]) {
        let name = words.first().map_or(b"".as_slice(), |word| word);
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        *self.all().entry(name).or_default() += 1;
        self.longest.fetch_max(words.len(), Ordering::Relaxed);
    }

    pub(super) fn batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn requests(&self) -> BTreeMap<String, u64> {
        self.all().clone()
    }

    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Returns the most words of a request. [`reset`](Self::reset) does not change this.
    pub(super) fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }

    pub(super) fn reset(&self) {
        self.all().clear();
        self.batches.store(0, Ordering::Relaxed);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
