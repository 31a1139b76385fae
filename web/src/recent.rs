//! What is asked for by many and costs the server something: made once, and shown to all who ask soon.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last that was made, for as long as it counts as recent.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    life: Duration,
    last: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Recent<T> {
    pub(crate) fn new(life: Duration) -> Self {
        Self { life, last: Mutex::new(None) }
    }

    /// What is recent, or else what is made now: by one at a time, while others wait for it.
    pub(crate) async fn get(&self, make: impl Future<Output = T>) -> T {
        let mut last = self.last.lock().await;
        if let Some((at, made)) = &*last
            && at.elapsed() < self.life
        {
            return made.clone();
        }
        let made = make.await;
        *last = Some((Instant::now(), made.clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_get_one_and_the_same() {
        let recent = Recent::new(Duration::from_secs(2));
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
