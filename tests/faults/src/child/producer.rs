//! A producer process: it arms, arms again and cancels, and writes down what it was told.

use std::sync::Arc;
use std::time::Duration;

use keylapse::{ArmResult, Cancelled, Error, Key, Schedule, Topic};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{Orders, asked_to_end, watch_over};
use crate::clock::{Micros, micros_since_1970};
use crate::job::{Job, Kind, NUMBERS, Work};
use crate::ledger::{Entry, Ledger, Told};

/// Keys whose stories are told at a time.
const STORIES: u32 = 64;
/// How long a call is repeated without an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What a producer is told beside that.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)] // the command of that name has a group of its own
pub struct Produce {
    /// Which producer process of the run this is: its keys and numbers are its own.
    #[arg(long)]
    pub place: u64,
    /// What its random choices begin with.
    #[arg(long)]
    pub seed: u64,
    /// Keys that it begins with in a second.
    #[arg(long)]
    pub per_second: u64,
    /// Of a thousand timers, how many take their listener's process down.
    #[arg(long)]
    pub pills_per_thousand: u64,
}

/// Begins stories until SIGTERM, and then ends those that are being told.
///
/// # Errors
/// When the URL cannot be read.
pub async fn produce(orders: &Orders, produce: &Produce) -> keylapse::Result<()> {
    let ledger = Ledger::open(&orders.folder).expect("a ledger");
    watch_over(ledger.clone());
    let schedule = Schedule::new(orders.client()?.retry_for(PATIENCE));
    let mut random = StdRng::seed_from_u64(produce.seed);
    let places = Arc::new(Semaphore::new(STORIES as usize));
    let mut pace =
        tokio::time::interval(Duration::from_secs(1) / u32::try_from(produce.per_second).expect("a rate"));
    let end = asked_to_end();
    tokio::pin!(end);
    for number in 0.. {
        let place = tokio::select! {
            () = &mut end => break,
            place = async { pace.tick().await; places.clone().acquire_owned().await } => place,
        };
        let story = Story::new(&mut random, produce, number);
        let teller = Teller {
            schedule: schedule.clone(),
            ledger: ledger.clone(),
            topic: story.kind.topic(orders.lease()),
        };
        tokio::spawn(async move {
            teller.tell(&story).await;
            drop(place);
        });
    }
    let _all_told = places.acquire_many(STORIES).await;
    Ok(())
}

/// What is to happen to one key.
#[derive(Debug)]
struct Story {
    kind: Kind,
    key: String,
    first: Job,
    delay_ms: u64,
    then: Then,
}

#[derive(Debug)]
enum Then {
    Nothing,
    /// Armed again so long after the first arm.
    Again {
        after_ms: u64,
        job: Job,
        delay_ms: u64,
    },
    /// Cancelled so long after the first arm.
    Cancel {
        after_ms: u64,
    },
}

impl Story {
    fn new(random: &mut StdRng, produce: &Produce, number: u64) -> Self {
        let n = produce.place * NUMBERS + number * 2;
        let kind = if random.random_ratio(1, 3) { Kind::Quiet } else { Kind::Loud };
        let work = match random.random_range(0..1000) {
            pill if pill < produce.pills_per_thousand => Work::Abort,
            10..20 => Work::Fail,
            20..70 => Work::FailOnce,
            70..80 => Work::PanicOnce,
            _ => Work::Succeed,
        };
        // Most attempts are short; some are long enough to be hit by nearly every fault.
        let millis = if random.random_ratio(1, 20) { 1000 } else { random.random_range(0..60) };
        let delay_ms = if random.random_ratio(1, 5) { 0 } else { random.random_range(0..3000) };
        // Around the deadline and while it runs, as well as long before.
        let after_ms = random.random_range(0..delay_ms + 50);
        let job = |n| Job { n, work: Work::Succeed, millis: 5 };
        let then = match random.random_range(0..100) {
            0..5 => Then::Again { after_ms, job: job(n + 1), delay_ms: random.random_range(0..2000) },
            5..10 => Then::Cancel { after_ms },
            _ => Then::Nothing,
        };
        let key = format!("{}:{}-{number}", kind.name(), produce.place);
        Self { kind, key, first: Job { n, work, millis }, delay_ms, then }
    }
}

struct Teller {
    schedule: Schedule,
    ledger: Ledger,
    topic: Topic<Job>,
}

impl Teller {
    /// One call after the other: what happens to a key is in a known order.
    async fn tell(&self, story: &Story) {
        self.arm(&story.key, story.first, story.delay_ms).await;
        match story.then {
            Then::Nothing => {}
            Then::Again { after_ms, job, delay_ms } => {
                sleep(Duration::from_millis(after_ms)).await;
                self.arm(&story.key, job, delay_ms).await;
            }
            Then::Cancel { after_ms } => {
                sleep(Duration::from_millis(after_ms)).await;
                self.cancel(&story.key).await;
            }
        }
    }

    async fn arm(&self, key: &str, job: Job, delay_ms: u64) {
        let Job { n, work, .. } = job;
        self.ledger.write(Entry::ArmAsked { n, key: key.to_owned(), work, delay_ms });
        let arm = self.schedule.arm(&self.topic, Key(key), Duration::from_millis(delay_ms), &job);
        let (told, deadline) = match arm.await {
            Ok(arming) => armed(&arming),
            Err(error) => (failed(&error), None),
        };
        self.ledger.write(Entry::ArmTold { n, told, deadline, reached: None });
    }

    async fn cancel(&self, key: &str) {
        self.ledger.write(Entry::CancelAsked { key: key.to_owned() });
        let told = match self.schedule.cancel(&self.topic, Key(key)).await {
            Ok(Cancelled::Cancelled) => Told::Cancelled,
            Ok(Cancelled::Claimed | Cancelled::InFlight) => Told::InFlight,
            Ok(_) => Told::NotArmed,
            Err(error) => failed(&error),
        };
        self.ledger.write(Entry::CancelTold { key: key.to_owned(), told });
    }
}

pub(super) fn armed(arming: &ArmResult) -> (Told, Option<Micros>) {
    let told = match arming {
        ArmResult::Armed(_) => Told::Armed,
        ArmResult::Replaced(_) => Told::Replaced,
        ArmResult::AfterRunning(_) => Told::AfterRunning,
        _ => Told::Superseded,
    };
    (told, arming.receipt().map(|receipt| micros_since_1970(receipt.deadline)))
}

pub(super) fn failed(error: &Error) -> Told {
    if error.is_unknown() { Told::Unknown } else { Told::Refused }
}
