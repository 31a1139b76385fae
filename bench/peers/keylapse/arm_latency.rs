//! How long one arm takes while other timers are armed and fire, and how long a bare `ZADD` takes at the same time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use keylapse::{Schedule, Topic};
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::bare::ms_after;
use crate::orders::Orders;
use crate::producer::LATER;
use crate::runs::{Running, Starts};
use crate::{Fault, Outcome, jobs};

/// The delay of the timers that are the load.
const AWAY: Duration = Duration::from_millis(500);
/// The time before the first probe. After it, as many timers fire as are armed, and the start has no effect any more.
const SETTLING: Duration = Duration::from_secs(1);
/// The time between two probes. Arms and `ZADD`s alternate: one of each in 10 ms.
const PROBE: Duration = Duration::from_millis(5);

/// How long each probe took.
#[derive(Clone, Debug, Default)]
struct Taken(Arc<Mutex<Vec<Duration>>>);

/// `run arm_latency`
pub(crate) async fn arm_latency(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    let starts = Starts::new(orders.count);
    let noting = starts.clone();
    let running = Running::start(orders, topic.clone(), move |lapse| noting.note(jobs::number(lapse)))?;
    let load = load(&schedule, &topic, orders);
    let (arms, adds) = (Taken::default(), Taken::default());
    let probing = probes(&schedule, &topic, orders, &arms, &adds);
    tokio::try_join!(load, probing)?;
    starts.all().await;
    running.end().await?;
    let (arms, adds) = (arms.sorted(), adds.sorted());
    Ok(json!({
        "probes": arms.len(), "p50_ms": rank(&arms, 0.5), "p99_ms": rank(&arms, 0.99),
        "zadd_p50_ms": rank(&adds, 0.5), "zadd_p99_ms": rank(&adds, 0.99),
        "handled": starts.taken().len(),
    }))
}

/// Arms timers at an even pace, without waiting for answers.
async fn load(schedule: &Schedule, topic: &Topic<Bytes>, orders: &Orders) -> Result<(), Fault> {
    let mut ticks = interval(Duration::from_secs(1).div_f64(orders.rate()?));
    let mut arms = JoinSet::new();
    for number in 0..orders.count {
        ticks.tick().await;
        let (schedule, topic, payload) = (schedule.clone(), topic.clone(), orders.payload.clone());
        arms.spawn(async move { schedule.arm(&topic, jobs::key(number), AWAY, &payload).await.map(drop) });
        while let Some(armed) = arms.try_join_next() {
            armed??;
        }
    }
    all(arms).await
}

/// Makes probes for as long as timers are armed. Each probe is a task, so a slow one does not delay the next.
async fn probes(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    orders: &Orders,
    arms: &Taken,
    adds: &Taken,
) -> Result<(), Fault> {
    let client = redis::Client::open(&*orders.url)?;
    let connection = client.get_multiplexed_async_connection().await?;
    let until = Instant::now() + Duration::from_secs_f64(orders.count as f64 / orders.rate()?);
    tokio::time::sleep(SETTLING).await;
    let mut ticks = interval(PROBE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probes = JoinSet::new();
    // Probes have the numbers after those of the load. They are due much later, and do not fire.
    for number in orders.count.. {
        ticks.tick().await;
        if Instant::now() > until {
            break;
        }
        let (schedule, topic, payload) = (schedule.clone(), topic.clone(), orders.payload.clone());
        let (connection, arms, adds) = (connection.clone(), arms.clone(), adds.clone());
        probes.spawn(async move {
            if number.is_multiple_of(2) {
                arms.time(async { schedule.arm(&topic, jobs::key(number), LATER, &payload).await.map(drop) })
                    .await
            } else {
                adds.time(add(connection, number)).await
            }
        });
    }
    all(probes).await
}

/// Adds a member to a sorted set that only the probes use.
async fn add(mut connection: MultiplexedConnection, number: usize) -> Result<(), Fault> {
    let mut add = redis::cmd("ZADD");
    add.arg("bench:probe").arg(ms_after(LATER)).arg(jobs::key(number).0);
    Ok(add.exec_async(&mut connection).await?)
}

/// Waits until all tasks have ended.
async fn all<E: Into<Fault> + 'static>(mut tasks: JoinSet<Result<(), E>>) -> Result<(), Fault> {
    while let Some(ended) = tasks.join_next().await {
        ended?.map_err(Into::into)?;
    }
    Ok(())
}

impl Taken {
    /// Measures a call, from its first step to its answer.
    async fn time<E: Into<Fault>>(&self, doing: impl Future<Output = Result<(), E>>) -> Result<(), Fault> {
        let started = Instant::now();
        doing.await.map_err(Into::into)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(started.elapsed());
        Ok(())
    }

    /// Returns the durations from the shortest to the longest.
    fn sorted(&self) -> Vec<Duration> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        taken.sort_unstable();
        taken
    }
}

/// Returns a percentile by nearest rank, in ms.
fn rank(sorted: &[Duration], share: f64) -> Option<f64> {
    let place = (sorted.len() as f64 * share).ceil().max(1.0) as usize - 1;
    sorted.get(place).map(|taken| taken.as_secs_f64() * 1e3)
}
