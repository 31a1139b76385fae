//! The textbook's delayed jobs, second version: a sorted set, and a Lua script that looks at the first
//! member, and removes and returns it if it is due. See the documentation of Redis on scripts,
//! <https://redis.io/docs/latest/develop/programmability/eval-intro/>.

use std::{process::ExitCode, time::Duration};

use futures::future::try_join_all;
use peers::{Description, Handler, Job, Peer, Result, Settings, now_ms, zset};
use redis::aio::MultiplexedConnection;

const POLL: Duration = Duration::from_millis(10);
const POP: &str = r#"
local due = redis.call("ZRANGEBYSCORE", KEYS[1], 0, ARGV[1], "LIMIT", 0, 1)
if #due == 0 then return false end
redis.call("ZREM", KEYS[1], due[1])
return due[1]
"#;

#[derive(Clone)]
struct ZsetPop {
    connection: MultiplexedConnection,
}

impl Peer for ZsetPop {
    const BULK: usize = 500;

    fn describe() -> Description {
        Description {
            name: "zset, popped in Lua",
            version: env!("CARGO_PKG_VERSION"),
            language: "Rust",
            settings: "own loops with redis-rs: as many as handlers asked for, on one connection that pipelines their \
                       calls, each popping one job; 10 ms of waiting when nothing is due; bulk is ZADD with 500 \
                       members",
            survives_a_crash: false,
            leaves_out: "acknowledgements, retries, dead letters: what a killed loop has popped is lost",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let client = redis::Client::open(settings.url.as_str())?;
        Ok(Self { connection: client.get_multiplexed_async_connection().await? })
    }

    async fn offer(&self, job: Job) -> Result<()> {
        zset::add(&mut self.connection.clone(), &[job]).await
    }

    async fn offer_bulk(&self, jobs: Vec<Job>) -> Result<()> {
        zset::add(&mut self.connection.clone(), &jobs).await
    }

    async fn work(&self, concurrency: usize, handler: Handler) -> Result<()> {
        let loops = (0..concurrency).map(|_| tokio::spawn(pop(self.connection.clone(), handler.clone())));
        for ended in try_join_all(loops).await? {
            ended?;
        }
        Ok(())
    }
}

async fn pop(mut connection: MultiplexedConnection, handler: Handler) -> Result<()> {
    let script = redis::Script::new(POP);
    loop {
        let mut call = script.key(zset::DELAYED);
        let popped: Option<String> = call.arg(now_ms()).invoke_async(&mut connection).await?;
        match popped {
            Some(member) => handler.handle_text(zset::payload(&member)).await,
            None => tokio::time::sleep(POLL).await,
        }
    }
}

fn main() -> ExitCode {
    peers::main::<ZsetPop>()
}
