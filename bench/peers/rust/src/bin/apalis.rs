//! apalis with apalis-redis: background tasks for Rust.
//!
//! Settings by its documentation, <https://docs.rs/apalis-redis/1.0.0/apalis_redis/struct.Config.html>: `lock_tasks(false)`
//! for tasks shorter than a heartbeat, `emit_events(false)` because nothing reads events. Tasks are still tracked and
//! acknowledged. By default, locking searches the whole backlog for each task, which is ten times slower.
//!
//! Run times are whole seconds, rounded down by `run_at_time`. Here they are rounded up unless they have passed, so that
//! nothing runs early. Each fetch first makes all due tasks active with one `unpack` in Lua, and fails beyond some 8,000 of
//! them. A greater backlog is made active before the worker starts, by 5,000.

use std::{
    process::ExitCode,
    task::{Context, Poll},
    time::Duration,
};

use apalis::prelude::*;
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use futures::stream;
use peers::{Description, Handler, Job, Payload, Peer, Result, Settings, now_ms, object, until};
use tokio::time::{Interval, MissedTickBehavior, interval};

const QUEUE: &str = "bench";
const POLL: Duration = Duration::from_millis(5);
const BATCH: usize = 500;
/// How many due tasks are made active at a time.
const ACTIVATED: usize = 5_000;

#[derive(Clone)]
struct Storage {
    storage: RedisStorage<Payload>,
    connection: ConnectionManager,
}

impl Peer for Storage {
    const BULK: usize = 500;

    fn describe() -> Description {
        Description {
            name: "apalis-redis",
            version: "1.0.0",
            language: "Rust",
            settings: "handlers as asked for, 500 a batch at most; polled every 5 ms by a strategy of our own (the \
                       library's can sleep until the heartbeat); lock_tasks and emit_events off, as its \
                       documentation advises for short tasks; heartbeat 10 s, 3 may be missed (defaults 30 s, 10); \
                       due times rounded up to whole seconds; a backlog is made active before the worker \
                       starts, untimed, since its fetch fails at more than some 8,000 due tasks",
            survives_a_crash: true,
            leaves_out: "due times finer than a second; completed tasks stay in Redis until vacuumed",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let config = Config::default()
            .queue(QUEUE)
            .batch_size(settings.concurrency.min(BATCH))
            .lock_tasks(false)
            .emit_events(false)
            .heartbeat_interval(Duration::from_secs(10))
            .missed_heartbeats(3);
        let connection = apalis_redis::connect(settings.url.as_str()).await?;
        let storage = RedisStorage::new(connection.clone()).with_config(config);
        Ok(Self { storage, connection })
    }

    async fn offer(&self, job: Job) -> Result<()> {
        self.storage.clone().push_task(task(&job)?).await?;
        Ok(())
    }

    async fn offer_bulk(&self, jobs: Vec<Job>) -> Result<()> {
        let tasks = jobs.iter().map(task).collect::<Result<Vec<_>>>()?;
        self.storage.clone().push_all(stream::iter(tasks)).await?;
        Ok(())
    }

    async fn prepare_backlog(&self) -> Result<()> {
        let script = redis::Script::new(
            r#"
            local due = redis.call("zrangebyscore", KEYS[1], 0, ARGV[1], "limit", 0, ARGV[2])
            if #due > 0 then
                redis.call("rpush", KEYS[2], unpack(due))
                redis.call("zrem", KEYS[1], unpack(due))
            end
            return #due
            "#,
        );
        let config = self.storage.get_config();
        let (scheduled, active) = (config.scheduled_jobs_set(), config.active_jobs_list());
        let now = now_ms() / 1_000;
        loop {
            let mut call = script.key(&scheduled);
            let call = call.key(&active).arg(now).arg(ACTIVATED);
            if call.invoke_async::<usize>(&mut self.connection.clone()).await? < ACTIVATED {
                return Ok(());
            }
        }
    }

    async fn work(&self, concurrency: usize, handler: Handler) -> Result<()> {
        let backend = PollWith::new(self.storage.clone(), Ticks::new());
        let worker = WorkerBuilder::new(format!("worker-{}", std::process::id()))
            .backend(backend)
            .data(handler)
            .concurrency(concurrency)
            .build(handle);
        worker.run().await?;
        Ok(())
    }
}

/// Fetches every [`POLL`]. The library's own interval strategy misses its next tick when the last tick came together with
/// the answer of a fetch. The worker then sleeps until its heartbeat, which happens within seconds at short intervals.
struct Ticks(Interval);

impl Ticks {
    fn new() -> Self {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(ticks)
    }
}

impl PollStrategy for Ticks {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        let mut ticked = Poll::Pending;
        while self.0.poll_tick(cx).is_ready() {
            ticked = Poll::Ready(Some(()));
        }
        ticked
    }
}

fn task(job: &Job) -> Result<Task<Payload>> {
    // The due time of an overdue task is rounded down: rounded up, the task could wait for the next second.
    let due = if until(job.due).is_zero() { job.due / 1_000 } else { job.due.div_ceil(1_000) };
    let task = TaskBuilder::new(object(&job.payload)?).run_at_timestamp(due);
    Ok(task.build())
}

async fn handle(payload: Payload, handler: Data<Handler>) {
    handler.handle_object(&payload).await;
}

fn main() -> ExitCode {
    peers::main::<Storage>()
}
