//! Signals that end the program after a clean-up, or have it read its configuration again.

/// Completes at the first SIGTERM, SIGHUP or SIGINT. Signals count from this call on, not from the first poll.
#[cfg(unix)]
pub(crate) fn to_end() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    // A signal that cannot be received ends the program, as is the default.
    let signals = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
    let received: Vec<_> =
        signals.into_iter().flatten().map(|mut one| Box::pin(async move { one.recv().await })).collect();
    async {
        if received.is_empty() {
            std::future::pending::<()>().await;
        }
        futures::future::select_all(received).await;
    }
}

#[cfg(not(unix))]
pub(crate) async fn to_end() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Completes at the second of these signals, which ends the program without a clean-up.
pub(crate) fn second_shutdown_signal_received() -> impl Future<Output = ()> {
    let first = to_end();
    async {
        first.await;
        to_end().await;
    }
}

/// Requests to read the configuration again, by SIGHUP.
#[derive(Debug)]
pub(crate) struct Reload(#[cfg(unix)] Option<tokio::signal::unix::Signal>);

/// Receives SIGHUP from this call on.
pub(crate) fn to_reload() -> Reload {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        Reload(signal(SignalKind::hangup()).ok())
    }
    #[cfg(not(unix))]
    Reload()
}

impl Reload {
    /// Waits for the next request.
    pub(crate) async fn asked(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.0 {
            signal.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}
