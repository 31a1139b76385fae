//! A sorted set holds the timers: members are orders, scores are their deadlines.
//!
//! Each second a program reads the first member. If it is due, the program that removes it closes the
//! order: ZREM returns 1 to one program only. An order that could not be closed is added again, with the
//! number of the next attempt in its member.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::stage::World;

const WAITING: &str = "hand:orders";
const TICK: Duration = Duration::from_secs(1);
const ATTEMPTS: u32 = 3;

/// Adds an order to the set, as `order:attempt`.
pub async fn place(redis: &mut MultiplexedConnection, order: &str, due: SystemTime) -> anyhow::Result<()> {
    Ok(redis.zadd(WAITING, format!("{order}:1"), millis(due)?).await?)
}

/// Reads the set each second and closes orders. It returns only on errors.
pub async fn watch(url: String, world: World) -> anyhow::Result<()> {
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
        let now = millis(SystemTime::now())?;
        let first: Vec<String> = redis.zrangebyscore_limit(WAITING, "-inf", now, 0, 1).await?;
        let Some(member) = first.first() else { continue };
        let removed: u32 = redis.zrem(WAITING, member).await?;
        if removed == 1 {
            close(&mut redis, member, &world).await?;
        }
    }
}

async fn close(redis: &mut MultiplexedConnection, member: &str, world: &World) -> anyhow::Result<()> {
    let (order, attempt) = member.rsplit_once(':').unwrap_or((member, "1"));
    let attempt: u32 = attempt.parse()?;
    if world.act(order, order).await.is_err() && attempt < ATTEMPTS {
        let again = SystemTime::now() + Duration::from_secs(u64::from(attempt));
        redis.zadd::<_, _, _, ()>(WAITING, format!("{order}:{}", attempt + 1), millis(again)?).await?;
    }
    Ok(())
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
