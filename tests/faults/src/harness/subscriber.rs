//! A plain subscriber: it says which keys have really expired, and when that was announced.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use redis::RedisResult;
use tokio::time::sleep;

use crate::ledger::{Entry, Ledger};

const RECONNECT: Duration = Duration::from_millis(50);

/// Writes down the expiries of keys with this prefix, for ever. It connects straight to the server, which no fault of a line
/// affects; where there are several servers, the port says which one it is.
pub(crate) async fn announcements(url: &str, prefix: &str, port: Option<u16>, ledger: &Ledger) -> Infallible {
    loop {
        // A server that is down or has restarted is tried again.
        let _: RedisResult<()> = async {
            let mut subscriber = redis::Client::open(url)?.get_async_pubsub().await?;
            subscriber.subscribe("__keyevent@0__:expired").await?;
            let mut messages = subscriber.on_message();
            while let Some(message) = messages.next().await {
                let key = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
                if key.starts_with(prefix) {
                    ledger.write(Entry::Heard { key, by: port });
                }
            }
            Ok(())
        }
        .await;
        sleep(RECONNECT).await;
    }
}
