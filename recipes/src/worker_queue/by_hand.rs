//! Delayed jobs are in a sorted set, due jobs are in a list, and a mover moves them from one to the other.
//!
//! At each full second the mover reads the jobs that fell due in the last 5 s, removes them from the set
//! and pushes them to the list. It does this in three steps, or in a Lua script. Workers wait in BLPOP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, Script};

use crate::stage::World;

/// The sorted set of delayed jobs.
pub const DELAYED: &str = "hand:delayed";
/// The list of due jobs, from which workers pop.
pub const READY: &str = "hand:ready";

/// The mover reads jobs that fell due within this time, not the whole set.
pub const WINDOW: Duration = Duration::from_secs(5);

/// Adds a job that is due at `due`.
pub async fn delay(redis: &mut MultiplexedConnection, job: &str, due: SystemTime) -> anyhow::Result<()> {
    Ok(redis.zadd(DELAYED, job, millis(due)?).await?)
}

/// Moves due jobs in three steps: read, remove, push. It returns only on errors.
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
        // If a job was gone already, another mover has removed it, and it must not be pushed twice.
        if removed > 0 && removed == due.len() {
            redis.rpush::<_, _, ()>(READY, due).await?;
        }
    }
}

/// Moves due jobs in one script, which runs atomically. It returns only on errors.
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

/// Pops jobs from the list and runs them. It returns only on errors.
pub async fn work(url: String, world: World) -> anyhow::Result<()> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
    loop {
        let (_, job): (String, String) = redis.blpop(READY, 0.0).await?;
        if let Err(error) = world.act(&job, &job).await {
            eprintln!("{job}: {error}");
        }
    }
}

/// Sleeps until the next full second, and returns it as Unix time in milliseconds.
async fn next_second() -> anyhow::Result<u64> {
    let next = millis(SystemTime::now())? / 1000 * 1000 + 1000;
    let left = (UNIX_EPOCH + Duration::from_millis(next)).duration_since(SystemTime::now());
    tokio::time::sleep(left.unwrap_or_default()).await;
    Ok(next)
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
