//! Signals that the program is to end by, where something has to be said or given back first.

/// Ends with the first of them. They are heard from now on, before anybody waits for this.
#[cfg(unix)]
pub(crate) fn to_end() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    // Where one cannot be heard, the program ends as it would have.
    let heard = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
    let heard: Vec<_> =
        heard.into_iter().flatten().map(|mut one| Box::pin(async move { one.recv().await })).collect();
    async {
        if heard.is_empty() {
            std::future::pending::<()>().await;
        }
        futures::future::select_all(heard).await;
    }
}

#[cfg(not(unix))]
pub(crate) async fn to_end() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Ends with the second of them: somebody does not want to wait.
pub(crate) fn to_end_at_once() -> impl Future<Output = ()> {
    let first = to_end();
    async {
        first.await;
        to_end().await;
    }
}

/// Whoever runs this program asks it to read its file again: by HUP.
#[derive(Debug)]
pub(crate) struct Reload(#[cfg(unix)] Option<tokio::signal::unix::Signal>);

/// Heard from now on.
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
    /// Completes when it was asked, and can be waited for again.
    pub(crate) async fn asked(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.0 {
            signal.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}
