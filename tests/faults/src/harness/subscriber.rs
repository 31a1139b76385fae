//! A plain subscriber: it notes which expiries a server announces, and when.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use redis::RedisResult;
use tokio::time::sleep;

use crate::ledger::{Entry, Ledger};

const RECONNECT: Duration = Duration::from_millis(50);

/// Notes the expiries of keys with this prefix, for ever. It connects to the server itself, so that no fault of a line affects it.
/// Where there are several servers, `port` names this one.
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
