//! A key that expires is the timer: `app:trans:notice:<order>`. Its value is the number of the attempt.
//!
//! A subscriber to the server's `expired` events splits each key into its segments and sends the notice.
//! If that fails, it sets the key again, with the delay before the next attempt as its TTL. An event does
//! not have the value of the key. A second key, which does not expire, holds the attempt and the notice.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client};

use super::webhook::{Notice, Sender};
use super::with_keylapse::post; // Both sides send the same request.

/// The number of the database that holds the keys.
pub const DATABASE: i64 = 1;
const EXPIRED: &str = "__keyevent@1__:expired";

/// Returns the key that expires.
pub fn key(order: &str) -> String {
    format!("app:trans:notice:{order}")
}

fn copy(order: &str) -> String {
    format!("app:trans:copy:{order}")
}

/// Has a notice sent after `wait`.
pub async fn announce(
    redis: &mut MultiplexedConnection,
    notice: &Notice,
    attempt: usize,
    wait: Duration,
) -> Result<()> {
    let copied = serde_json::to_string(&(attempt, notice))?;
    redis.set::<_, _, ()>(copy(&notice.order), copied).await?;
    let wait = u64::try_from(wait.as_millis())?.max(1);
    Ok(redis.pset_ex(key(&notice.order), attempt, wait).await?)
}

/// Sends the notices whose keys expire, until the subscription ends. `backoff` has the delays before the
/// retries.
pub async fn listen(url: String, sender: Sender, backoff: Vec<Duration>) -> Result<()> {
    let client = Client::open(url)?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let mut events = client.get_async_pubsub().await?;
    events.subscribe(EXPIRED).await?;
    let mut events = events.into_on_message();
    while let Some(event) = events.next().await {
        let key: String = event.get_payload()?;
        // Other programs have keys in this database, too.
        if let ["app", "trans", "notice", order] = key.split(':').collect::<Vec<_>>()[..] {
            notify(&mut redis, &sender, order, &backoff).await?;
        }
    }
    bail!("the subscription has ended")
}

async fn notify(
    redis: &mut MultiplexedConnection,
    sender: &Sender,
    order: &str,
    backoff: &[Duration],
) -> Result<()> {
    let Some(copied) = redis.get::<_, Option<String>>(copy(order)).await? else { return Ok(()) };
    let (attempt, notice): (usize, Notice) = serde_json::from_str(&copied)?;
    let answer = post(sender, &notice, order).await;
    match backoff.get(attempt - 1) {
        Some(wait) if !answer.is_ok_and(|answer| answer.is_success()) => {
            announce(redis, &notice, attempt + 1, *wait).await
        }
        // The notice was accepted, or this was the last attempt.
        _ => Ok(redis.del(copy(order)).await?),
    }
}
