//! Caches of costly answers, which many clients share.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last value, and when it was made.
#[derive(Debug)]
pub(crate) struct Last<T>(Option<(Instant, T)>);

impl<T: Clone> Last<T> {
    /// Returns the last value while it is younger than `life`; then makes and keeps a new one.
    pub(crate) async fn within(&mut self, life: impl Fn(&T) -> Duration, make: impl Future<Output = T>) -> T {
        if let Some((at, made)) = &self.0
            && at.elapsed() < life(made)
        {
            return made.clone();
        }
        let made = make.await;
        self.0 = Some((Instant::now(), made.clone()));
        made
    }
}

impl<T> Last<T> {
    /// Returns how long ago the value was made; zero if there is none.
    pub(crate) fn age(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |(at, _)| at.elapsed())
    }
}

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// A cached value. Concurrent callers wait while one of them makes it.
#[derive(Debug)]
pub(crate) struct SharedCache<T> {
    life: Duration,
    last: Mutex<Last<T>>,
}

impl<T: Clone> SharedCache<T> {
    pub(crate) fn new(life: Duration) -> Self {
        Self { life, last: Mutex::default() }
    }

    /// Returns the cached value, or makes a new one.
    pub(crate) async fn get(&self, make: impl Future<Output = T>) -> T {
        self.last.lock().await.within(|_| self.life, make).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_get_one_and_the_same() {
        let recent = SharedCache::new(Duration::from_secs(2));
        let made = std::sync::atomic::AtomicU32::new(0);
        let make = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            made.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        };
        let (one, other) = tokio::join!(recent.get(make()), recent.get(make()));
        assert_eq!((one, other), (0, 0));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(recent.get(make()).await, 1);
    }
}
