//! The task that deletes expired keys that nobody reads.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::server::SharedServer;

/// Deletes expired keys until the server is dropped. Without volatile keys it sleeps for no deadline, so that a paused clock
/// does not advance.
pub(crate) async fn run(server: Weak<SharedServer>, changed: Arc<Notify>) {
    loop {
        let Some(next) = expire(&server) else { return };
        let change = changed.notified();
        match next {
            None => change.await,
            Some(at) => tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => {}
                () = change => {}
            },
        }
    }
}

/// Deletes the keys that are due, and returns when the next is due. Returns `None` if the server was dropped.
fn expire(server: &Weak<SharedServer>) -> Option<Option<tokio::time::Instant>> {
    let server = server.upgrade()?;
    let mut engine = server.engine();
    let next = engine.tick().keys.next_found();
    Some(next.and_then(|micros| server.clock().instant(micros)))
}
