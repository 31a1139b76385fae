//! Tells a running handler that its lease is lost.

use tokio::sync::SetOnce;

/// Tells a handler that its timer is no longer ours.
#[derive(Debug, Default)]
pub(crate) struct LeaseSignal(SetOnce<()>);

impl LeaseSignal {
    pub(crate) fn is_lost(&self) -> bool {
        self.0.initialized()
    }

    pub(crate) async fn lost(&self) {
        self.0.wait().await;
    }

    /// Any number of times.
    pub(crate) fn lose(&self) {
        let _already = self.0.set(());
    }
}
