//! Statements of accounts. A job that writes a statement holds the lock of its account. Other programs
//! take this lock too, so a job may find it taken.

use std::time::{Duration, SystemTime};

use keylapse::{Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, Client, Script};

use crate::stage::World;

/// How often a job may find its lock taken before it becomes a dead letter.
pub const SNOOZES: u16 = 30;
/// The TTL of a lock in milliseconds: longer than a job takes.
const LOCKED_MS: u64 = 2000;

/// Takes a free lock and returns a fencing number, which grows with each holder.
const TAKE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
    and redis.call('INCR', KEYS[2])";
/// Releases the lock if this run still holds it.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
/// Writes the statement, or fails if the lock had a later holder.
const WRITE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('SET', KEYS[2], ARGV[2]) end
    return redis.error_reply('FENCED by a later holder')";

/// The state of the handler. Each run opens a connection; a shared one that reconnects works too.
#[derive(Clone, Debug)]
pub struct App {
    /// The server with the locks.
    pub redis: Client,
    /// The world in which jobs have an effect.
    pub world: World,
}

/// Returns the topic. A job that was snoozed too often becomes a dead letter with the reason `Snoozed`.
pub fn statements() -> keylapse::Result<Topic<()>> {
    Ok(Topic::new("statement:{account}:{id}")?.max_snoozes(SNOOZES).lease(Duration::from_secs(2)))
}

/// Requests a statement.
pub async fn ask(schedule: &Schedule, account: &str, id: &str, due: SystemTime) -> keylapse::Result<()> {
    schedule.arm(&statements()?, [account, id], due, &()).await.map(drop)
}

/// Writes a statement if the lock is free, and otherwise tries again 100 ms later. `Snooze` uses up no
/// attempt, and no other job waits.
pub async fn handle(lapse: Lapse<()>, app: App) -> anyhow::Result<Outcome> {
    let mut redis = app.redis.get_multiplexed_async_connection().await?;
    let account = lapse.capture("account").unwrap_or_default();
    let (lock, fence) = (format!("lock:{account}"), format!("lock:{account}:fence"));
    let owner = lapse.attempt_id(); // unique for this run of the job
    let take = Script::new(TAKE);
    let taken = take.key(&lock).key(&fence).arg(&owner).arg(LOCKED_MS).invoke_async(&mut redis).await?;
    let Some(number) = taken else { return Ok(Outcome::Snooze(Duration::from_millis(100))) };
    let written = write(&mut redis, &lapse, number, &app.world).await;
    Script::new(RELEASE).key(&lock).arg(&owner).invoke_async::<()>(&mut redis).await?;
    written.map(|()| Outcome::Done)
}

/// Writes the number of entries of the account. `number` is the fencing number that `TAKE` returned.
async fn write(redis: &mut Redis, lapse: &Lapse<()>, number: u64, world: &World) -> anyhow::Result<()> {
    let account = lapse.capture("account").unwrap_or_default();
    let entries: u64 = redis.llen(format!("account:{account}")).await?;
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    let (fence, statement) = (format!("lock:{account}:fence"), format!("account:{account}:statement"));
    Ok(Script::new(WRITE).key(fence).key(statement).arg(number).arg(entries).invoke_async(redis).await?)
}

/// Writes statements until SIGTERM or Ctrl-C.
pub async fn work(url: &str, world: World) -> anyhow::Result<()> {
    let app = App { redis: Client::open(url)?, world };
    let listener = Listener::builder(url).state(app).on(statements()?, handle).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
