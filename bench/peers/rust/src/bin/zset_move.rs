//! The textbook's delayed jobs, third version: a mover takes due members from a sorted set to a list in
//! Lua, and workers wait at the list with BLPOP. See the documentation of Redis on lists and blocking
//! pops, <https://redis.io/docs/latest/commands/blpop/>.

use std::{process::ExitCode, time::Duration};

use futures::future::try_join_all;
use peers::{Description, Handler, Job, Peer, Result, Settings, now_ms, zset};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, aio::MultiplexedConnection};

const READY: &str = "ready";
const WORKERS: usize = 32;
const MOVED: usize = 1_000;
const POLL: Duration = Duration::from_millis(10);
const MOVE: &str = r#"
local due = redis.call("ZRANGEBYSCORE", KEYS[1], 0, ARGV[1], "LIMIT", 0, ARGV[2])
if #due > 0 then
    redis.call("RPUSH", KEYS[2], unpack(due))
    redis.call("ZREM", KEYS[1], unpack(due))
end
return #due
"#;

#[derive(Clone)]
struct ZsetMove {
    client: Client,
    connection: MultiplexedConnection,
}

impl Peer for ZsetMove {
    const BULK: usize = 500;

    fn describe() -> Description {
        Description {
            name: "zset, moved to a list",
            version: env!("CARGO_PKG_VERSION"),
            language: "Rust",
            settings: "own loops with redis-rs: a mover of up to 1,000 due jobs to a list, which waits 10 ms when fewer \
                       were due; 32 workers at most, each with a connection that waits with BLPOP; bulk is ZADD \
                       with 500 members",
            survives_a_crash: false,
            leaves_out: "acknowledgements, retries, dead letters: what a killed worker has popped is lost",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let client = Client::open(settings.url.as_str())?;
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
        let mover = tokio::spawn(keep_moving(self.connection.clone()));
        let workers = (0..concurrency.min(WORKERS)).map(|_| {
            let (client, handler) = (self.client.clone(), handler.clone());
            tokio::spawn(async move { pop(&client, handler).await })
        });
        for ended in try_join_all(workers.chain([mover])).await? {
            ended?;
        }
        Ok(())
    }
}

async fn keep_moving(mut connection: MultiplexedConnection) -> Result<()> {
    let script = redis::Script::new(MOVE);
    loop {
        let mut call = script.key(zset::DELAYED);
        let call = call.key(READY).arg(now_ms()).arg(MOVED);
        if call.invoke_async::<usize>(&mut connection).await? < MOVED {
            tokio::time::sleep(POLL).await;
        }
    }
}

async fn pop(client: &Client, handler: Handler) -> Result<()> {
    let waits = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&waits).await?;
    loop {
        let (_, member): (String, String) = connection.blpop(READY, 0.0).await?;
        handler.handle_text(zset::payload(&member)).await;
    }
}

fn main() -> ExitCode {
    peers::main::<ZsetMove>()
}
