//! Finds keys that have expired and that nobody reads.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::server::SharedServer;

/// Runs until the server is gone. Without anything to expire it waits for nothing but news, so that a
/// paused clock stands still.
pub(crate) async fn run(server: Weak<SharedServer>, changed: Arc<Notify>) {
    loop {
        let Some(next) = expire(&server) else { return };
        let news = changed.notified();
        match next {
            None => news.await,
            Some(at) => tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => {}
                () = news => {}
            },
        }
    }
}

/// Expires what is due, and says when there is more; nothing once the server is gone.
fn expire(server: &Weak<SharedServer>) -> Option<Option<tokio::time::Instant>> {
    let server = server.upgrade()?;
    let mut engine = server.engine();
    let next = engine.tick().keys.next_found();
    Some(next.and_then(|micros| server.clock().instant(micros)))
}
