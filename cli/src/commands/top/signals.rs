//! Signals that the program is to end by: the terminal is given back first.

/// Ends with the first of them. They are heard from now on, before anybody waits for this.
#[cfg(unix)]
pub(super) fn to_end() -> impl Future<Output = ()> {
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
pub(super) async fn to_end() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
