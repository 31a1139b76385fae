//! Tells a running handler that its lease is lost.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Tells a handler that its timer is no longer ours.
#[derive(Debug, Default)]
pub(crate) struct LeaseSignal {
    lost: AtomicBool,
    gone: Notify,
}

impl LeaseSignal {
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) async fn lost(&self) {
        // Created before the check: it then sees every later notification.
        let gone = self.gone.notified();
        if !self.is_lost() {
            gone.await;
        }
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.gone.notify_waiters();
    }
}
