//! A delayed queue: values are offered with a delay, and taken from a second queue when they are due.
//!
//! Offered values are in a sorted set. Each client has a timer until the first value is due, and then
//! moves due values to the second queue. A channel notifies clients of earlier values. The taker offers
//! each card again: after a growing interval if it succeeded, and after a retry delay if it failed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use futures::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, Script};
use serde::{Deserialize, Serialize};

use crate::stage::World;

/// The sorted set of offered cards.
pub const OFFERED: &str = "hand:offered";
/// The channel that announces each new deadline.
pub const CHANGES: &str = "hand:changes";
const READY: &str = "hand:ready";
const DAY_MS: u64 = 86_400_000;
/// Moves up to 100 due cards, and returns the deadline of the next one.
const MOVE: &str = "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)
    if #due > 0 then
        redis.call('RPUSH', KEYS[2], unpack(due))
        redis.call('ZREM', KEYS[1], unpack(due))
    end
    return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]";

/// A card that is asked in rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Card {
    name: String,
    round: u32,
    interval_ms: u64,
    attempt: u32,
}

/// Offers a card that is first asked after `interval`.
pub async fn learn(redis: &mut MultiplexedConnection, name: &str, interval: Duration) -> anyhow::Result<()> {
    let interval_ms = u64::try_from(interval.as_millis())?;
    offer(redis, &Card { name: name.to_owned(), round: 1, interval_ms, attempt: 1 }, interval_ms).await
}

/// Deletes all cards. A card that a client has taken returns when the client offers it again.
pub async fn destroy(redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
    Ok(redis.del(&[OFFERED, READY]).await?)
}

async fn offer(redis: &mut MultiplexedConnection, card: &Card, after_ms: u64) -> anyhow::Result<()> {
    let due = now_ms()? + after_ms;
    let mut pipe = redis::pipe();
    pipe.atomic().zadd(OFFERED, serde_json::to_string(card)?, due).publish(CHANGES, due);
    Ok(pipe.exec_async(redis).await?)
}

/// Moves due cards until the process ends.
pub async fn keep_time(url: String) -> anyhow::Result<()> {
    let client = Client::open(url)?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let mut subscription = client.get_async_pubsub().await?;
    subscription.subscribe(CHANGES).await?;
    let mut changes = subscription.on_message();
    loop {
        let now = now_ms()?;
        let next: Option<u64> =
            Script::new(MOVE).key(OFFERED).key(READY).arg(now).invoke_async(&mut redis).await?;
        let wait = next.map_or(DAY_MS, |next| next.saturating_sub(now));
        tokio::select! {
            change = changes.next() => drop(change.context("the subscription has ended")?),
            () = tokio::time::sleep(Duration::from_millis(wait)) => {}
        }
    }
}

/// Asks due cards forever.
pub async fn take(url: String, world: World) -> anyhow::Result<()> {
    // BLPOP blocks until a list has an element, so it needs a connection without a response timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
    loop {
        let taken: Option<(String, String)> = redis.blpop(READY, 0.0).await?;
        let Some((_, taken)) = taken else { continue };
        let mut card: Card = serde_json::from_str(&taken)?;
        let job = format!("{}.{}", card.name, card.round);
        match world.act(&job, &job).await {
            Ok(()) if card.interval_ms <= DAY_MS / 6 => {
                let interval_ms = (card.interval_ms * 6).max(1000);
                card = Card { round: card.round + 1, interval_ms, attempt: 1, ..card };
                offer(&mut redis, &card, card.interval_ms).await?;
            }
            Ok(()) => println!("{} is learned", card.name),
            Err(error) if card.attempt < 4 => {
                eprintln!("{job}: {error:#}");
                let after_ms = [1000, 10_000, 60_000][card.attempt as usize - 1];
                card.attempt += 1;
                offer(&mut redis, &card, after_ms).await?;
            }
            Err(error) => eprintln!("{job} failed for the last time: {error:#}"),
        }
    }
}

fn now_ms() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
