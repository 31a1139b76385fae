//! A bit for each day of a month: who checks in sets the day's bit, and their streak grows by one.
//!
//! How often somebody came in the first ten days is counted by hand, since BITCOUNT counts whole bytes:
//! the bits of the first two bytes, without the last six. Rewards for days 3, 5, 10, 20 and 30 are
//! looked up in one pipeline.

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

/// The days with a reward.
const REWARDED: [usize; 5] = [3, 5, 10, 20, 30];

/// Notes that a user came on this day of the month. How long their streak is now.
pub async fn check_in(
    redis: &mut MultiplexedConnection,
    user: &str,
    month: &str,
    day: usize,
) -> anyhow::Result<u64> {
    let came_before: bool = redis.setbit(bits(user, month), day, true).await?;
    let streak = format!("hand:streak:{user}");
    let streak: Option<u64> =
        if came_before { redis.get(streak).await? } else { redis.incr(streak, 1).await? };
    Ok(streak.unwrap_or_default())
}

/// How long a user's streak is.
pub async fn streak(redis: &mut MultiplexedConnection, user: &str) -> anyhow::Result<u64> {
    let streak: Option<u64> = redis.get(format!("hand:streak:{user}")).await?;
    Ok(streak.unwrap_or_default())
}

/// On how many of the days 1 to 10 a user came. Day 0 has a bit, too, which nobody sets.
pub async fn first_ten(redis: &mut MultiplexedConnection, user: &str, month: &str) -> anyhow::Result<u32> {
    let bytes: Vec<u8> = redis.getrange(bits(user, month), 0, 1).await?;
    let masks = [0b1111_1111, 0b1110_0000];
    Ok(bytes.iter().zip(masks).map(|(byte, mask)| (byte & mask).count_ones()).sum())
}

/// Whether a user came on each of the days with a reward.
pub async fn rewards(
    redis: &mut MultiplexedConnection,
    user: &str,
    month: &str,
) -> anyhow::Result<[bool; 5]> {
    let mut pipeline = redis::pipe();
    for day in REWARDED {
        pipeline.getbit(bits(user, month), day);
    }
    Ok(pipeline.query_async(redis).await?)
}

fn bits(user: &str, month: &str) -> String {
    format!("hand:check_in:{user}:{month}")
}
