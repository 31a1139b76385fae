//! "Every day at two": a program sleeps until the next time, runs the job, and sleeps again.
//!
//! The next time is kept in Redis, so that a program that was away knows what it has missed. Articles
//! count the next day from the end of the job, or from the time at which it should have begun.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::stage::World;

const NEXT: &str = "hand:backup:next";
const RUNS: &str = "hand:backup:runs";

/// From when the next day is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedFrom {
    /// From the end of the job.
    ItsEnd,
    /// From the time at which it should have begun.
    ItsTime,
}

/// Sets the first time.
pub async fn begin(redis: &mut MultiplexedConnection, first: SystemTime) -> anyhow::Result<()> {
    Ok(redis.set(NEXT, millis(first)?).await?)
}

/// Runs the job each day, for ever.
pub async fn every(day: Duration, from: CountedFrom, url: String, world: World) -> anyhow::Result<()> {
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    loop {
        let next = UNIX_EPOCH + Duration::from_millis(redis.get(NEXT).await?);
        tokio::time::sleep(next.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let run: u64 = redis.incr(RUNS, 1).await?;
        world.act(&run.to_string(), &run.to_string()).await?;
        let last = match from {
            CountedFrom::ItsEnd => SystemTime::now(),
            CountedFrom::ItsTime => next,
        };
        begin(&mut redis, last + day).await?;
    }
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
