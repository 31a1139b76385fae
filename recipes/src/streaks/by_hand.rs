//! A bit for each day of a month. A check-in sets the day's bit, and the user's streak grows by one.
//!
//! BITCOUNT counts whole bytes, so the visits of the first ten days are counted by hand: in the bits of
//! two bytes, without the bits after day 10. One pipeline reads the bits of the days with a reward.

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

/// The days with a reward.
const REWARDED: [usize; 5] = [3, 5, 10, 20, 30];

/// Records a visit on a day of the month. Returns the length of the user's streak.
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

/// Returns the length of a user's streak.
pub async fn streak(redis: &mut MultiplexedConnection, user: &str) -> anyhow::Result<u64> {
    let streak: Option<u64> = redis.get(format!("hand:streak:{user}")).await?;
    Ok(streak.unwrap_or_default())
}

/// Counts the visits on days 1 to 10. Day 0 also has a bit, which is never set.
pub async fn first_ten(redis: &mut MultiplexedConnection, user: &str, month: &str) -> anyhow::Result<u32> {
    let bytes: Vec<u8> = redis.getrange(bits(user, month), 0, 1).await?;
    let masks = [0b1111_1111, 0b1110_0000];
    Ok(bytes.iter().zip(masks).map(|(byte, mask)| (byte & mask).count_ones()).sum())
}

/// Returns for each day with a reward whether the user came.
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
