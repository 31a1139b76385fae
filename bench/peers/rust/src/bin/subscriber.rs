//! Keys that expire, and a bare subscriber to the server's `expired` events: what most tutorials on
//! timers in Redis do. See <https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/>.
//!
//! The event names the key, whose value is gone by then. Events are lost without a subscriber, so it subscribes before the
//! first key expires, for throughput too.

use std::process::ExitCode;

use futures::StreamExt;
use peers::{Description, Handler, Job, Peer, Result, Settings};
use redis::{Cmd, aio::MultiplexedConnection};

#[derive(Clone)]
struct Subscriber {
    client: redis::Client,
    connection: MultiplexedConnection,
}

impl Peer for Subscriber {
    const BULK: usize = 500;
    const LOSES_JOBS_WITHOUT_WORKER: bool = true;

    fn describe() -> Description {
        Description {
            name: "expired subscriber",
            version: env!("CARGO_PKG_VERSION"),
            language: "Rust",
            settings: "SET with PXAT, notify-keyspace-events Ex, one subscriber with redis-rs that spawns a task for \
                       each event; throughput while all keys expire within 200 ms, as the server finds them; \
                       bulk is a pipeline of 500 SETs",
            survives_a_crash: false,
            leaves_out: "the payload (gone when the event comes), acknowledgements, retries, recovery of \
                         lost events, a limit on handlers at a time; every subscriber receives every event",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let client = redis::Client::open(settings.url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut notify = redis::cmd("CONFIG");
        notify.arg("SET").arg("notify-keyspace-events").arg("Ex").exec_async(&mut connection).await?;
        Ok(Self { client, connection })
    }

    async fn offer(&self, job: Job) -> Result<()> {
        set(job).exec_async(&mut self.connection.clone()).await?;
        Ok(())
    }

    async fn offer_bulk(&self, jobs: Vec<Job>) -> Result<()> {
        let mut sets = redis::pipe();
        for job in jobs {
            sets.add_command(set(job)).ignore();
        }
        sets.exec_async(&mut self.connection.clone()).await?;
        Ok(())
    }

    async fn work(&self, _concurrency: usize, handler: Handler) -> Result<()> {
        let mut events = self.client.get_async_pubsub().await?;
        events.subscribe("__keyevent@0__:expired").await?;
        let mut events = events.into_on_message();
        while let Some(event) = events.next().await {
            let key: String = event.get_payload()?;
            let due = key.rsplit(':').next().and_then(|due| due.parse().ok());
            let handler = handler.clone();
            tokio::spawn(async move { handler.handle_due(due).await });
        }
        Err("the server closed the connection".into())
    }
}

fn set(job: Job) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(format!("job:{}:{}", job.number, job.due)).arg(job.payload).arg("PXAT").arg(job.due);
    set
}

fn main() -> ExitCode {
    peers::main::<Subscriber>()
}
