//! rusty-sidekiq: Sidekiq's protocol for Rust.
//!
//! Jobs are fetched with BRPOP, so a job whose worker is killed is lost. Its scheduler looks every five
//! seconds and moves ten jobs each time; both are fixed in the library, version 0.15.2. Delayed jobs thus
//! come at two a second: a backlog is offered as immediate jobs. More than ten workers make it slower.
//! <https://docs.rs/rusty-sidekiq/0.15.2>

use std::process::ExitCode;

use async_trait::async_trait;
use peers::{Description, Handler, Job, Payload, Peer, Result, Settings, object, until};
use sidekiq::{Processor, ProcessorConfig, RedisConnectionManager, RedisPool, Worker};

const QUEUE: &str = "bench";
const CLASS: &str = "Bench";
const WORKERS: usize = 10;
const POOL: u32 = 30;

#[derive(Clone)]
struct Sidekiq {
    pool: RedisPool,
}

struct Bench(Handler);

#[async_trait]
impl Worker<Payload> for Bench {
    fn class_name() -> String {
        CLASS.to_owned()
    }

    async fn perform(&self, payload: Payload) -> sidekiq::Result<()> {
        self.0.handle_object(&payload).await;
        Ok(())
    }
}

impl Peer for Sidekiq {
    /// A backlog is offered job by job, and handled at some 10,000 a second.
    const AT_MOST: usize = 20_000;
    const DELAYED_PER_S: u64 = 2;

    fn describe() -> Description {
        Description {
            name: "rusty-sidekiq",
            version: "0.15.2",
            language: "Rust",
            settings: "10 workers at most, as more were slower; a pool of 30 connections; no logging; throughput with \
                       20,000 immediate jobs, since its scheduler moves ten delayed jobs every 5 s, which is fixed \
                       in the library",
            survives_a_crash: false,
            leaves_out: "acknowledgements (BRPOP: a killed worker's jobs are lost), delayed jobs at more than two a \
                         second and thus lateness, due times finer than a second, a bulk call",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let manager = RedisConnectionManager::new(settings.url.as_str())?;
        let pool = bb8::Pool::builder().max_size(POOL).build(manager).await?;
        Ok(Self { pool })
    }

    async fn offer(&self, job: Job) -> Result<()> {
        let (class, queue, payload) = (CLASS.to_owned(), QUEUE.to_owned(), object(&job.payload)?);
        let delay = until(job.due.div_ceil(1_000) * 1_000);
        if until(job.due).is_zero() {
            sidekiq::perform_async(&self.pool, class, queue, payload).await?;
        } else {
            sidekiq::perform_in(&self.pool, delay, class, queue, payload).await?;
        }
        Ok(())
    }

    async fn work(&self, concurrency: usize, handler: Handler) -> Result<()> {
        let workers = ProcessorConfig::default().num_workers(concurrency.min(WORKERS));
        let mut processor = Processor::new(self.pool.clone(), vec![QUEUE.to_owned()]).with_config(workers);
        processor.register(Bench(handler));
        processor.run().await;
        Ok(())
    }
}

fn main() -> ExitCode {
    peers::main::<Sidekiq>()
}
