//! The textbook's delayed jobs, first version: a sorted set that several loops poll with ZRANGEBYSCORE,
//! and the loop that removes a member with ZREM runs it. See the documentation of Redis on sorted sets,
//! <https://redis.io/docs/latest/commands/zrangebyscore/>.

use std::{process::ExitCode, time::Duration};

use futures::future::{join_all, try_join_all};
use peers::{Description, Handler, Job, Peer, Result, Settings, now_ms, zset};
use redis::{AsyncCommands, aio::MultiplexedConnection};

const LOOPS: usize = 4;
const BATCH: usize = 50;
const POLL: Duration = Duration::from_millis(10);

#[derive(Clone)]
struct ZsetPoll {
    client: redis::Client,
    connection: MultiplexedConnection,
}

impl Peer for ZsetPoll {
    const BULK: usize = 500;

    fn describe() -> Description {
        Description {
            name: "zset, ZRANGEBYSCORE and ZREM",
            version: env!("CARGO_PKG_VERSION"),
            language: "Rust",
            settings: "own loops with redis-rs: 4 with a connection each, ZRANGEBYSCORE … LIMIT 0 50, the ZREMs in one \
                       pipeline, handlers of what was removed side by side; 10 ms of waiting when nothing is due; \
                       bulk is ZADD with 500 members",
            survives_a_crash: false,
            leaves_out: "acknowledgements, retries, dead letters: what a killed loop has removed is lost",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let client = redis::Client::open(settings.url.as_str())?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { client, connection })
    }

    async fn offer(&self, job: Job) -> Result<()> {
        zset::add(&mut self.connection.clone(), &[job]).await
    }

    async fn offer_bulk(&self, jobs: Vec<Job>) -> Result<()> {
        zset::add(&mut self.connection.clone(), &jobs).await
    }

    async fn work(&self, concurrency: usize, handler: Handler) -> Result<()> {
        let batch = concurrency.div_ceil(LOOPS).min(BATCH);
        let loops = (0..LOOPS).map(|_| {
            let (client, handler) = (self.client.clone(), handler.clone());
            tokio::spawn(async move {
                poll(client.get_multiplexed_async_connection().await?, batch, handler).await
            })
        });
        for ended in try_join_all(loops).await? {
            ended?;
        }
        Ok(())
    }
}

async fn poll(mut connection: MultiplexedConnection, batch: usize, handler: Handler) -> Result<()> {
    loop {
        let due: Vec<String> =
            connection.zrangebyscore_limit(zset::DELAYED, 0, now_ms(), 0, batch as isize).await?;
        if due.is_empty() {
            tokio::time::sleep(POLL).await;
            continue;
        }
        let mut removals = redis::pipe();
        for member in &due {
            removals.zrem(zset::DELAYED, member);
        }
        let removed: Vec<bool> = removals.query_async(&mut connection).await?;
        let ours = due.iter().zip(removed).filter(|(_, removed)| *removed);
        join_all(ours.map(|(member, _)| handler.handle_text(zset::payload(member)))).await;
    }
}

fn main() -> ExitCode {
    peers::main::<ZsetPoll>()
}
