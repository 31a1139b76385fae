//! Delays of many kinds: a set of topics, and a sorted set of waiting messages for each topic.
//!
//! A producer adds the message, and then its topic to the set of topics. Every five seconds a program
//! reads the topics and moves a batch of due messages of each to a list. It removes empty topics from
//! the set. Workers wait for the lists.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};

use crate::stage::World;

/// The names of all topics with waiting messages.
pub const TOPICS: &str = "hand:topics";

/// The settings of the distributor.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The interval between two rounds, such as 5 s.
    pub tick: Duration,
    /// The most messages that a round moves for each topic: 100 or 1.
    pub batch: isize,
}

/// Adds a message to a topic.
pub async fn add(
    redis: &mut MultiplexedConnection,
    topic: &str,
    message: &str,
    due: SystemTime,
) -> anyhow::Result<()> {
    redis.zadd::<_, _, _, ()>(waiting(topic), message, millis(due)?).await?;
    Ok(redis.sadd(TOPICS, topic).await?)
}

/// Distributes and handles messages forever.
pub async fn serve(url: String, world: World, terms: Terms) -> anyhow::Result<()> {
    // BLPOP blocks until a list has an element, so it needs a connection without a response timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(url)?;
    let connect = async || client.get_multiplexed_async_connection_with_config(&config).await;
    let (distributor, worker) = tokio::try_join!(connect(), connect())?;
    tokio::try_join!(distribute(distributor, terms), work(worker, &world)).map(drop)
}

async fn distribute(mut redis: MultiplexedConnection, terms: Terms) -> anyhow::Result<()> {
    let mut tick = tokio::time::interval(terms.tick);
    loop {
        tick.tick().await;
        let topics: Vec<String> = redis.smembers(TOPICS).await?;
        for topic in topics {
            move_due(&mut redis, &topic, terms.batch).await?;
        }
    }
}

async fn move_due(redis: &mut MultiplexedConnection, topic: &str, batch: isize) -> anyhow::Result<()> {
    let now = millis(SystemTime::now())?;
    let due: Vec<String> = redis.zrangebyscore_limit(waiting(topic), "-inf", now, 0, batch).await?;
    if !due.is_empty() {
        redis::pipe()
            .atomic()
            .rpush(ready(topic), &due)
            .ignore()
            .zrem(waiting(topic), &due)
            .ignore()
            .exec_async(redis)
            .await?;
    }
    let left: u64 = redis.zcard(waiting(topic)).await?;
    if left == 0 {
        redis.srem::<_, _, ()>(TOPICS, topic).await?;
    }
    Ok(())
}

async fn work(mut redis: MultiplexedConnection, world: &World) -> anyhow::Result<()> {
    let lists = ["order", "packet"].map(ready);
    loop {
        let message: Option<(String, String)> = redis.blpop(&lists, 0.0).await?;
        if let Some((_, message)) = message {
            world.act(&message, &message).await?;
        }
    }
}

/// Returns the key of a topic's waiting messages.
pub fn waiting(topic: &str) -> String {
    format!("hand:waiting:{topic}")
}

fn ready(topic: &str) -> String {
    format!("hand:ready:{topic}")
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
