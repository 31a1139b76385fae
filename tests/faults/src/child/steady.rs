//! A producer process that arms steadily, and asks for all replicas each second time.

use std::sync::Arc;
use std::time::Duration;

use keylapse::timers::Durably;
use keylapse::{Key, Schedule, Topic};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use super::producer::{PATIENCE, armed, failed};
use super::{Orders, Produce, asked_to_end, watch_over};
use crate::job::{Job, Kind, NUMBERS, Work, sharded_key};
use crate::ledger::{Entry, Ledger};

/// How often some arms are made: so many at a time as the rate asks for.
const TICK: Duration = Duration::from_millis(10);
/// Calls at a time: more than are made while a server is replaced.
const CALLS: u32 = 16_384;
/// From 0.2 to 6 s ahead: some are due before a server is replaced, some meanwhile, some after it.
const AHEAD_MS: std::ops::Range<u64> = 200..6_000;
/// How long an arm waits for replicas. While there is none, those behind it wait, too.
const FOR_A_REPLICA: Duration = Duration::from_millis(100);

/// Arms until SIGTERM, and then waits until all calls are answered.
///
/// # Errors
/// When the URL cannot be read.
pub async fn produce_steadily(orders: &Orders, produce: &Produce) -> keylapse::Result<()> {
    let ledger = Ledger::open(&orders.folder).expect("a ledger");
    watch_over(ledger.clone());
    let schedule = Schedule::new(orders.client()?.retry_for(PATIENCE));
    let (topic, replicas) = (Kind::Sharded.topic(orders.lease()), orders.replicas.unwrap_or_default());
    let producer = Producer { schedule, ledger, topic, replicas };
    let mut random = StdRng::seed_from_u64(produce.seed);
    let places = Arc::new(Semaphore::new(CALLS as usize));
    let (mut ticks, mut number, mut owed) = (interval(TICK), 0, 0.0);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = asked_to_end();
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            _ = ticks.tick() => owed += produce.per_second as f64 * TICK.as_secs_f64(),
        }
        while owed >= 1.0 {
            owed -= 1.0;
            let Ok(place) = places.clone().try_acquire_owned() else { break };
            let (call, producer) = (Call::any(&mut random, produce, number), producer.clone());
            number += 1;
            tokio::spawn(async move {
                producer.arm(call).await;
                drop(place);
            });
        }
    }
    let _all_told = places.acquire_many(CALLS).await;
    Ok(())
}

#[derive(Debug)]
struct Call {
    key: String,
    job: Job,
    delay_ms: u64,
    durably: bool,
}

impl Call {
    fn any(random: &mut StdRng, produce: &Produce, number: u64) -> Self {
        let work = if random.random_ratio(1, 50) { Work::FailOnce } else { Work::Succeed };
        let millis = if random.random_ratio(1, 50) { 500 } else { random.random_range(0..20) };
        let job = Job { n: produce.place * NUMBERS + number, work, millis };
        let key = sharded_key(produce.place, number);
        Self { key, job, delay_ms: random.random_range(AHEAD_MS), durably: number.is_multiple_of(2) }
    }
}

#[derive(Clone, Debug)]
struct Producer {
    schedule: Schedule,
    ledger: Ledger,
    topic: Topic<Job>,
    replicas: u32,
}

impl Producer {
    async fn arm(&self, Call { key, job, delay_ms, durably }: Call) {
        let Job { n, work, .. } = job;
        self.ledger.write(Entry::ArmAsked { n, key: key.clone(), work, delay_ms });
        let arm = self.schedule.arm(&self.topic, Key(&key), Duration::from_millis(delay_ms), &job);
        let arm =
            if durably { arm.durably(Durably::replicas(self.replicas).within(FOR_A_REPLICA)) } else { arm };
        let told = match arm.await {
            Ok(arming) => {
                let (told, deadline) = armed(&arming);
                let reached = arming.receipt().and_then(|receipt| receipt.reached);
                let reached = reached.map(|reached| reached.replicas >= self.replicas);
                Entry::ArmTold { n, told, deadline, reached }
            }
            Err(error) => Entry::ArmTold { n, told: failed(&error), deadline: None, reached: None },
        };
        self.ledger.write(told);
    }
}
