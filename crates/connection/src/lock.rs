//! Locks that outlive a panic, and waiting for what lies under them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Takes a lock. That somebody panicked while holding it is no reason for everybody else to fail.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns once this holds of what lies under the lock. Whoever changes that tells those who wait.
pub async fn until<T>(mutex: &Mutex<T>, changed: &Notify, holds: impl Fn(&T) -> bool) {
    loop {
        // Before the check: so it hears of each later change.
        let changed = changed.notified();
        if holds(&lock(mutex)) {
            return;
        }
        changed.await;
    }
}
