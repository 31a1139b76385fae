//! A lock in Redis, and three ways to handle a lock that is taken.
//!
//! A worker takes due jobs out of a sorted set, one at a time. Each job writes the statement of an
//! account and holds the account's lock. `SET` with `NX` and `PX` takes the lock; a script that compares
//! the owner and deletes the key releases it. If the lock is taken, the worker fails, or sleeps and tries
//! again, or puts the job back into the set with a later deadline.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::stage::World;

const WAITING: &str = "hand:jobs";
/// Counts how often a job was put back. The story reads this key.
pub const DEFERRALS: &str = "hand:deferrals";
const LOCKED_MS: u64 = 2000;
const PAUSE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(20);
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";

/// The reaction to a lock that is taken.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Return an error; the caller may call again.
    Throw,
    /// Try again after a pause.
    Sleep,
    /// Put the job back with a later deadline.
    Defer,
}

/// Adds a job to the set, as `account:id`.
pub async fn ask(
    redis: &mut MultiplexedConnection,
    account: &str,
    id: &str,
    due: SystemTime,
) -> anyhow::Result<()> {
    Ok(redis.zadd(WAITING, format!("{account}:{id}"), millis(due)?).await?)
}

/// Runs jobs forever.
pub async fn work(url: String, world: World, answer: Answer) -> anyhow::Result<()> {
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    loop {
        let now = millis(SystemTime::now())?;
        let due: Vec<String> = redis.zrangebyscore_limit(WAITING, "-inf", now, 0, 1).await?;
        let Some(job) = due.first() else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        let removed: u32 = redis.zrem(WAITING, job).await?;
        if removed == 1
            && let Err(error) = run(&mut redis, job, &world, answer).await
        {
            eprintln!("{job}: {error:#}");
        }
    }
}

async fn run(
    redis: &mut MultiplexedConnection,
    job: &str,
    world: &World,
    answer: Answer,
) -> anyhow::Result<()> {
    let (account, id) = job.split_once(':').context("the job names no account")?;
    let (lock, owner) = (format!("hand:lock:{account}"), format!("{}:{job}", std::process::id()));
    let options =
        SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(SetExpiry::PX(LOCKED_MS));
    while !redis.set_options::<_, _, bool>(&lock, &owner, options.clone()).await? {
        match answer {
            Answer::Throw => bail!("the lock of {account} is taken"),
            Answer::Sleep => tokio::time::sleep(PAUSE).await,
            Answer::Defer => {
                redis.zadd::<_, _, _, ()>(WAITING, job, millis(SystemTime::now() + PAUSE)?).await?;
                return Ok(redis.incr(DEFERRALS, 1).await?);
            }
        }
    }
    let written = write(redis, account, id, world).await;
    Script::new(RELEASE).key(&lock).arg(&owner).invoke_async::<()>(redis).await?;
    written
}

/// Writes the statement: the number of entries of the account.
async fn write(
    redis: &mut MultiplexedConnection,
    account: &str,
    id: &str,
    world: &World,
) -> anyhow::Result<()> {
    let entries: u64 = redis.llen(format!("account:{account}")).await?;
    world.act(id, id).await?;
    Ok(redis.set(format!("hand:statement:{account}"), entries).await?)
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
