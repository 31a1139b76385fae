//! "Every day at two": a program sleeps until the next time, runs the job, and sleeps again.
//!
//! The next time is in Redis, so a restarted program can read which runs it has missed. Articles count
//! the next day from the end of the job, or from its planned time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::stage::World;

const NEXT: &str = "hand:backup:next";
const RUNS: &str = "hand:backup:runs";

/// The time from which the next day is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedFrom {
    /// The end of the job.
    JobEnd,
    /// The time at which the job was planned to begin.
    PlannedTime,
}

/// Sets the next time.
pub async fn begin(redis: &mut MultiplexedConnection, first: SystemTime) -> anyhow::Result<()> {
    Ok(redis.set(NEXT, millis(first)?).await?)
}

/// Runs the job each day, forever.
pub async fn every(day: Duration, from: CountedFrom, url: String, world: World) -> anyhow::Result<()> {
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    loop {
        let next = UNIX_EPOCH + Duration::from_millis(redis.get(NEXT).await?);
        tokio::time::sleep(next.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let run: u64 = redis.incr(RUNS, 1).await?;
        world.act(&run.to_string(), &run.to_string()).await?;
        let last = match from {
            CountedFrom::JobEnd => SystemTime::now(),
            CountedFrom::PlannedTime => next,
        };
        begin(&mut redis, last + day).await?;
    }
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
