//! A key that expires is the timer: `app:trans:notice:<order>`, and its value is the attempt.
//!
//! A subscriber to the server's `expired` events routes each key by its segments, and sends the notice.
//! If that fails it sets the key again, with the time to live that the next attempt has. An event comes
//! without the value, so attempt and notice are also kept in a copy that does not expire.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client};

use super::webhook::{Notice, Sender};
use super::with_keylapse::post; // the request is the same

/// The database whose keys these are.
pub const DATABASE: i64 = 1;
const EXPIRED: &str = "__keyevent@1__:expired";

/// The key that expires.
pub fn key(order: &str) -> String {
    format!("app:trans:notice:{order}")
}

fn copy(order: &str) -> String {
    format!("app:trans:copy:{order}")
}

/// Has a notice sent after a while.
pub async fn announce(
    redis: &mut MultiplexedConnection,
    notice: &Notice,
    attempt: usize,
    wait: Duration,
) -> Result<()> {
    let kept = serde_json::to_string(&(attempt, notice))?;
    redis.set::<_, _, ()>(copy(&notice.order), kept).await?;
    let wait = u64::try_from(wait.as_millis())?.max(1);
    Ok(redis.pset_ex(key(&notice.order), attempt, wait).await?)
}

/// Sends the notices whose keys expire, for ever. `ladder` are the waits after each attempt.
pub async fn listen(url: String, sender: Sender, ladder: Vec<Duration>) -> Result<()> {
    let client = Client::open(url)?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let mut events = client.get_async_pubsub().await?;
    events.subscribe(EXPIRED).await?;
    let mut events = events.into_on_message();
    while let Some(event) = events.next().await {
        let key: String = event.get_payload()?;
        // Others are somebody else's.
        if let ["app", "trans", "notice", order] = key.split(':').collect::<Vec<_>>()[..] {
            notify(&mut redis, &sender, order, &ladder).await?;
        }
    }
    bail!("the subscription has ended")
}

async fn notify(
    redis: &mut MultiplexedConnection,
    sender: &Sender,
    order: &str,
    ladder: &[Duration],
) -> Result<()> {
    let Some(kept) = redis.get::<_, Option<String>>(copy(order)).await? else { return Ok(()) };
    let (attempt, notice): (usize, Notice) = serde_json::from_str(&kept)?;
    let answer = post(sender, &notice, order).await;
    match ladder.get(attempt - 1) {
        Some(wait) if !answer.is_ok_and(|answer| answer.is_success()) => {
            announce(redis, &notice, attempt + 1, *wait).await
        }
        // Told, or given up.
        _ => Ok(redis.del(copy(order)).await?),
    }
}
