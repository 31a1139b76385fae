//! When a program is asked to stop.

/// Completes when the program is asked to stop: by SIGINT (ctrl-c) or SIGTERM, elsewhere than on Unix by
/// ctrl-c alone. For [`Listener::run_until`](crate::Listener::run_until).
///
/// From its first poll on, these signals no longer end the program by themselves, not even when this has
/// completed: how long the shut-down may take is what the builder's
/// [`grace`](crate::ListenerBuilder::grace) says. If the system refuses to tell of a signal, that is logged,
/// and the signal ends the program at once, as it would without this.
///
/// # Panics
/// Where tokio's runtime was built without `enable_io`.
#[cfg(unix)]
pub async fn shutdown_signal() {
    use tokio::signal::unix::SignalKind;
    tokio::select! {
        () = heard(SignalKind::interrupt()) => {}
        () = heard(SignalKind::terminate()) => {}
    }
}

#[cfg(unix)]
async fn heard(kind: tokio::signal::unix::SignalKind) {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(error) => never(kind.as_raw_value(), &error).await,
    }
}

/// Completes when the program is asked to stop, by ctrl-c. For
/// [`Listener::run_until`](crate::Listener::run_until).
#[cfg(not(unix))]
pub async fn shutdown_signal() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        never("ctrl-c", &error).await;
    }
}

/// A signal that cannot be heard is no reason to stop.
async fn never(signal: impl std::fmt::Debug, error: &std::io::Error) {
    crate::log::warn!(?signal, %error, "cannot hear a signal: it will end this program at once");
    std::future::pending::<()>().await;
}

#[cfg(all(test, unix))]
mod tests {
    use futures::FutureExt;
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn both_signals_ask_to_stop() {
        for signal in [Signal::TERM, Signal::INT] {
            let mut asked = Box::pin(shutdown_signal());
            assert!(asked.as_mut().now_or_never().is_none(), "nobody has asked yet");
            kill_process(getpid(), signal).expect("it is our own process");
            let patience = std::time::Duration::from_secs(20);
            tokio::time::timeout(patience, asked).await.expect("the signal is heard");
        }
    }
}
