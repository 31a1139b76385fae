//! Statements of accounts. Whoever writes one holds the lock of its account, which other programs
//! take as well: a job may find it taken.

use std::time::{Duration, SystemTime};

use keylapse::{Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, Client, Script};

use crate::stage::World;

/// How often a job may find its lock taken.
pub const SNOOZES: u16 = 30;
/// For how long a lock is taken: longer than a job lasts.
const LOCKED_MS: u64 = 2000;

/// Takes a lock that nobody holds, and answers a number that grows with each holder.
const TAKE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
    and redis.call('INCR', KEYS[2])";
/// Gives it back if it is still ours.
const GIVE_BACK: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
/// What is locked checks for itself: it refuses a number after which there was another.
const WRITE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('SET', KEYS[2], ARGV[2]) end
    return redis.error_reply('FENCED by a later holder')";

/// What the handler needs. Each run opens a connection; a shared one that reconnects does as well.
#[derive(Clone, Debug)]
pub struct App {
    /// Where the locks are.
    pub redis: Client,
    /// Where jobs have their effect.
    pub world: World,
}

/// A job that came too often is a dead letter, with the reason `Snoozed`, to be looked at and replayed.
pub fn statements() -> keylapse::Result<Topic<()>> {
    Ok(Topic::new("statement:{account}:{id}")?.max_snoozes(SNOOZES).lease(Duration::from_secs(2)))
}

/// Asks for a statement.
pub async fn ask(schedule: &Schedule, account: &str, id: &str, due: SystemTime) -> keylapse::Result<()> {
    schedule.arm(&statements()?, [account, id], due, &()).await.map(drop)
}

/// Runs under the lock, or later. `Snooze` uses up no attempt, and nobody waits behind it.
pub async fn handle(lapse: Lapse<()>, app: App) -> anyhow::Result<Outcome> {
    let mut redis = app.redis.get_multiplexed_async_connection().await?;
    let account = lapse.capture("account").unwrap_or_default();
    let (lock, fence) = (format!("lock:{account}"), format!("lock:{account}:fence"));
    let owner = lapse.attempt_id(); // names this run, and no other of the same job
    let take = Script::new(TAKE);
    let taken = take.key(&lock).key(&fence).arg(&owner).arg(LOCKED_MS).invoke_async(&mut redis).await?;
    let Some(number) = taken else { return Ok(Outcome::Snooze(Duration::from_millis(100))) };
    let written = write(&mut redis, &lapse, number, &app.world).await;
    Script::new(GIVE_BACK).key(&lock).arg(&owner).invoke_async::<()>(&mut redis).await?;
    written.map(|()| Outcome::Done)
}

/// A statement says how many entries its account has. `number` is what `TAKE` has answered.
async fn write(redis: &mut Redis, lapse: &Lapse<()>, number: u64, world: &World) -> anyhow::Result<()> {
    let account = lapse.capture("account").unwrap_or_default();
    let entries: u64 = redis.llen(format!("account:{account}")).await?;
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    let (fence, statement) = (format!("lock:{account}:fence"), format!("account:{account}:statement"));
    Ok(Script::new(WRITE).key(fence).key(statement).arg(number).arg(entries).invoke_async(redis).await?)
}

/// Writes statements until it is told to stop.
pub async fn work(url: &str, world: World) -> anyhow::Result<()> {
    let app = App { redis: Client::open(url)?, world };
    let listener = Listener::builder(url).state(app).on(statements()?, handle).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
