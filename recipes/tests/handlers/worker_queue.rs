//! These tests use a real server in real time, because the handler runs a script of its own.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use keylapse::dead_letters::{DeadReason, Replayed};
use keylapse::timers::TimerPhase;
use keylapse::{Backoff, Lapse, Listener, Outcome, Schedule, Topic};
use keylapse_support::{Server, eventually, skipped};
use recipes::worker_queue::with_keylapse::{MAX_READY, READY, delay, orders, push};
use redis::AsyncCommands;
use redis::aio::{ConnectionManager, MultiplexedConnection};
use tokio::process::Command;
use tokio::task::JoinHandle;

const TIMEOUT: Duration = Duration::from_secs(20);

struct Mover {
    server: Server,
    schedule: Schedule,
    redis: MultiplexedConnection,
}

impl Mover {
    async fn new() -> Result<Self> {
        let server = Server::start().await;
        let schedule = Schedule::connect(server.url()).await?;
        let redis = server.conn().await;
        Ok(Self { server, schedule, redis })
    }

    /// Starts a listener that runs until the test ends.
    async fn listen<F>(
        &self,
        topic: Topic<String>,
        handler: fn(Lapse<String>, ConnectionManager) -> F,
    ) -> Result<JoinHandle<()>>
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let redis = redis::Client::open(self.server.url())?.get_connection_manager().await?;
        let listener = Listener::builder(self.server.url()).state(redis).on(topic, handler).build()?;
        Ok(tokio::spawn(async move {
            listener.run_until(std::future::pending::<()>()).await.expect("the listener runs");
        }))
    }

    async fn delay(&self, order: &str) -> keylapse::Result<()> {
        delay(&self.schedule, order, SystemTime::now(), "hello").await
    }

    async fn listed(&self) -> usize {
        self.redis.clone().llen(READY).await.expect("a list")
    }

    /// Returns the orders in a list, as a set because concurrent handlers push them in any order.
    async fn orders(&self, list: &str) -> Result<BTreeSet<String>> {
        let entries: Vec<String> = self.redis.clone().lrange(list, 0, -1).await?;
        let order = |entry: &String| {
            let entry: serde_json::Value = serde_json::from_str(entry)?;
            Ok(entry["order"].as_str().context("an order")?.to_owned())
        };
        entries.iter().map(order).collect()
    }
}

fn all_three() -> BTreeSet<String> {
    ["1", "2", "3"].map(str::to_owned).into()
}

/// Runs [`push`], and fails at the first attempt after it.
async fn push_and_die(lapse: Lapse<String>, redis: ConnectionManager) -> Result<Outcome> {
    let first = lapse.attempt() == 1;
    let outcome = push(lapse, redis).await?;
    anyhow::ensure!(!first, "killed");
    Ok(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_pushed_once_however_often_its_handler_runs() -> Result<()> {
    let mover = Mover::new().await?;
    let topic = orders()?.retry(Backoff::fixed(Duration::from_millis(10))).max_attempts(2);
    let _listener = mover.listen(topic.clone(), push_and_die).await?;
    for order in ["1", "2", "3"] {
        mover.delay(order).await?;
    }
    eventually(TIMEOUT, "all timers have ended", async || {
        let timers = ["1", "2", "3"].map(|order| mover.schedule.look_up(&topic, order));
        futures::future::join_all(timers).await.into_iter().all(|timer| timer.expect("an answer").is_none())
    })
    .await;
    assert_eq!((mover.listed().await, mover.orders(READY).await?), (3, all_three()));
    assert_eq!(mover.schedule.dead_letters(&topic).page(1).await?.len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_list_snoozes_an_order_and_uses_up_no_attempt() -> Result<()> {
    let mut mover = Mover::new().await?;
    mover.redis.lpush::<_, _, ()>(READY, vec!["an old one"; MAX_READY]).await?;
    let topic = orders()?.max_attempts(1);
    let given = SystemTime::now();
    mover.delay("1").await?;
    let _listener = mover.listen(topic.clone(), push).await?;
    eventually(TIMEOUT, "the order is snoozed", async || {
        let timer = mover.schedule.look_up(&topic, "1").await.expect("an answer").expect("a timer");
        matches!(timer.phase, TimerPhase::Waiting(at) if at > given + Duration::from_millis(500))
    })
    .await;
    assert_eq!(mover.listed().await, MAX_READY);
    mover.redis.rpop::<_, ()>(READY, None).await?;
    eventually(TIMEOUT, "the order is pushed", async || mover.listed().await == MAX_READY).await;
    let last: String = mover.redis.lindex(READY, 0).await?;
    assert!(last.contains(r#""order":"1""#), "{last}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_a_list_ends_in_a_dead_letter_that_names_it() -> Result<()> {
    let mut mover = Mover::new().await?;
    mover.redis.set::<_, _, ()>(READY, "not a list").await?;
    let topic = orders()?.retry(Backoff::fixed(Duration::from_millis(10))).max_attempts(3);
    let _listener = mover.listen(topic.clone(), push).await?;
    mover.delay("1").await?;
    eventually(TIMEOUT, "the order is a dead letter", async || {
        mover.schedule.dead_letters(&topic).page(1).await.expect("an answer").len() == 1
    })
    .await;
    let dead_letters = mover.schedule.dead_letters(&topic).page(1).await?;
    let error = dead_letters[0].last_error().unwrap_or_default();
    assert!(error.contains(READY) && error.contains("WRONGTYPE"), "{error}");
    assert_eq!((dead_letters[0].reason, dead_letters[0].attempts), (DeadReason::Exhausted, 3));

    mover.redis.del::<_, ()>(READY).await?;
    assert_eq!(mover.schedule.replay(&dead_letters[0]).await?, Replayed::Replayed);
    eventually(TIMEOUT, "the order is pushed after the replay", async || mover.listed().await == 1).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_consumer_resumes_the_order_that_it_had_when_it_was_killed() -> Result<()> {
    let check = Command::new("python3").args(["-c", "import redis"]).output().await;
    if !check.is_ok_and(|output| output.status.success()) {
        skipped("python3 with the package redis is needed (pip install redis)");
        return Ok(());
    }
    let mut mover = Mover::new().await?;
    let _listener = mover.listen(orders()?, push).await?;
    for order in ["1", "2", "3"] {
        mover.delay(order).await?;
    }
    eventually(TIMEOUT, "all are pushed", async || mover.listed().await == 3).await;
    // A consumer has moved an order to its own list before it was killed.
    let mine = format!("{READY}:a");
    mover.redis.rpoplpush::<_, _, ()>(READY, &mine).await?;
    let killed_with = mover.orders(&mine).await?;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/worker_queue/consumer.py");
    let mut consumer = Command::new("python3");
    consumer
        .args([program, "--url", &mover.server.url(), "--name", "a", "--wait", "0.2"])
        .stdin(Stdio::null());
    let output = consumer.output().await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout)?;
    // Each line is the ID, which differs each time, the order and its text.
    let took: Vec<_> =
        printed.lines().filter_map(|line| line.split_once(' ')?.1.strip_suffix(" hello")).collect();
    assert_eq!(took.len(), 3, "{printed}");
    assert_eq!(took.iter().copied().map(str::to_owned).collect::<BTreeSet<_>>(), all_three());
    assert!(killed_with.contains(took[0]), "{killed_with:?} is not first: {printed}");
    assert_eq!((mover.listed().await, mover.redis.llen::<_, usize>(&mine).await?), (0, 0));
    Ok(())
}
