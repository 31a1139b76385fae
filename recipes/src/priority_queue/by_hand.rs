//! Mails as tasks: each names a callback, and is in one of three lists: high, medium or low.
//!
//! Workers wait for all three lists with one BLPOP, which takes from the first list with an element. A
//! worker can shuffle the order of the lists at every tenth task. A delayed task waits in a sorted set.
//! A program takes the task's lock and moves the task to its list.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::seq::SliceRandom;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, ExistenceCheck, SetExpiry, SetOptions};
use serde::{Deserialize, Serialize};

use crate::stage::World;

/// The lists, the most urgent first.
pub const LISTS: [&str; 3] = ["hand:high", "hand:medium", "hand:low"];
const DELAYED: &str = "hand:delayed";
const WORKERS: usize = 4;

/// A call of a callback.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The name of the callback.
    pub callback: String,
    /// The ID of the mail.
    pub id: String,
    /// The list of the task.
    pub list: String,
}

/// The settings of the workers.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Shuffles the order of the lists at every tenth task.
    pub shuffled: bool,
    /// The names of all callbacks.
    pub callbacks: &'static [&'static str],
}

/// Sends a task to its list.
pub async fn send(redis: &mut MultiplexedConnection, task: &Task) -> anyhow::Result<()> {
    Ok(redis.rpush(&task.list, serde_json::to_string(task)?).await?)
}

/// Sends a task to its list when it is due.
pub async fn send_later(
    redis: &mut MultiplexedConnection,
    task: &Task,
    due: SystemTime,
) -> anyhow::Result<()> {
    Ok(redis.zadd(DELAYED, serde_json::to_string(task)?, millis(due)?).await?)
}

/// Runs tasks forever.
pub async fn work(url: String, world: World, terms: Terms) -> anyhow::Result<()> {
    // BLPOP blocks until a list has an element, so it needs a connection without a response timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(url)?;
    let connect = async || client.get_multiplexed_async_connection_with_config(&config).await;
    let mover = move_delayed(connect().await?);
    let worker = async |_| worker(connect().await?, &world, terms).await;
    let workers = futures::future::try_join_all((0..WORKERS).map(worker));
    tokio::try_join!(mover, workers).map(drop)
}

async fn worker(mut redis: MultiplexedConnection, world: &World, terms: Terms) -> anyhow::Result<()> {
    for turn in 1_u64.. {
        let mut lists = LISTS;
        if terms.shuffled && turn % 10 == 0 {
            lists.shuffle(&mut rand::rng());
        }
        let taken: Option<(String, String)> = redis.blpop(&lists, 0.0).await?;
        let Some((_, taken)) = taken else { continue };
        let task: Task = serde_json::from_str(&taken)?;
        if !terms.callbacks.contains(&task.callback.as_str()) {
            eprintln!("unknown callback {}", task.callback);
        } else if let Err(error) = world.act(&task.id, &task.id).await {
            eprintln!("{}: {error:#}", task.callback);
        }
    }
    Ok(())
}

/// Moves delayed tasks to their lists forever.
async fn move_delayed(mut redis: MultiplexedConnection) -> anyhow::Result<()> {
    let options =
        SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(SetExpiry::PX(10_000));
    loop {
        let now = millis(SystemTime::now())?;
        let due: Vec<String> = redis.zrangebyscore_limit(DELAYED, "-inf", now, 0, 1).await?;
        let Some(delayed) = due.first() else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let task: Task = serde_json::from_str(delayed)?;
        let lock = format!("hand:lock:{}", task.id);
        if redis.set_options::<_, _, bool>(&lock, "", options.clone()).await? {
            if redis.zrem::<_, _, u32>(DELAYED, delayed).await? == 1 {
                send(&mut redis, &task).await?;
            }
            redis.del::<_, ()>(&lock).await?;
        }
    }
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
