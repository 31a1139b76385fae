//! What is delayed lies in a sorted set, what is due in a list, and a mover goes between them.
//!
//! At each full second the mover looks for what has fallen due in the last 5 s, removes it from the set
//! and pushes it to the list: in three calls, or in a script of Lua. Workers wait in BLPOP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, Script};

use crate::stage::World;

/// Where delayed jobs wait.
pub const DELAYED: &str = "hand:delayed";
/// Where workers find what is due.
pub const READY: &str = "hand:ready";

/// How far back the mover looks, so that it need not read all that ever was.
pub const WINDOW: Duration = Duration::from_secs(5);

/// Puts a job aside until it is due.
pub async fn delay(redis: &mut MultiplexedConnection, job: &str, due: SystemTime) -> anyhow::Result<()> {
    Ok(redis.zadd(DELAYED, job, millis(due)?).await?)
}

/// Moves what is due in three calls, for ever: look, remove, push.
pub async fn move_in_three_calls(url: String, window: Duration) -> anyhow::Result<()> {
    let mut redis = Client::open(url)?.get_multiplexed_async_connection().await?;
    loop {
        let now = next_second().await?;
        let since = now.saturating_sub(u64::try_from(window.as_millis())?);
        let due: Vec<String> = redis.zrangebyscore(DELAYED, since, now).await?;
        let mut removed = 0;
        for job in &due {
            removed += redis.zrem::<_, _, usize>(DELAYED, job).await?;
        }
        // If some were gone already, another mover is at work, and they must not be pushed twice.
        if removed > 0 && removed == due.len() {
            redis.rpush::<_, _, ()>(READY, due).await?;
        }
    }
}

/// The same in one call, which nothing can come between.
pub async fn move_in_lua(url: String, window: Duration) -> anyhow::Result<()> {
    let mut redis = Client::open(url)?.get_multiplexed_async_connection().await?;
    let script = Script::new(
        "for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2])) do
           redis.call('ZREM', KEYS[1], job)
           redis.call('RPUSH', KEYS[2], job)
         end",
    );
    loop {
        let now = next_second().await?;
        let since = now.saturating_sub(u64::try_from(window.as_millis())?);
        script.key(DELAYED).key(READY).arg(since).arg(now).invoke_async::<()>(&mut redis).await?;
    }
}

/// Works on what is in the list, for ever.
pub async fn work(url: String, world: World) -> anyhow::Result<()> {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&patient).await?;
    loop {
        let (_, job): (String, String) = redis.blpop(READY, 0.0).await?;
        if let Err(error) = world.act(&job, &job).await {
            eprintln!("{job}: {error}");
        }
    }
}

/// Sleeps until the next full second, as a schedule of seconds does; that second, in milliseconds.
async fn next_second() -> anyhow::Result<u64> {
    let next = millis(SystemTime::now())? / 1000 * 1000 + 1000;
    let left = (UNIX_EPOCH + Duration::from_millis(next)).duration_since(SystemTime::now());
    tokio::time::sleep(left.unwrap_or_default()).await;
    Ok(next)
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
