//! Programs that know nothing of keylapse, and write keys that expire: a steady stream of orders.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylapse_support::{Deadline, Plain};
use keylapse_testing::LocalNode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::Group;
use crate::clock::now;
use crate::harness::Cast;
use crate::job::ORDER;
use crate::ledger::{Entry, Ledger, Life, Wrote};

/// How long an order lives. What a server had been told when it fell has not expired when its replica is looked at.
const LIVES_MS: std::ops::Range<u64> = 1_500..5_000;
/// How long a program tries to write an order.
const PATIENCE: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// How long it waits for replicas, in ms.
const FOR_REPLICAS: u64 = 100;

/// The stream of orders of a run.
#[derive(Debug)]
pub struct Orders {
    per_second: u32,
    seed: u64,
    replicas: u32,
    ledger: Ledger,
    /// A program writes one order after the other; when all are busy there is one more.
    idle: Mutex<Vec<Plain>>,
    begun: AtomicU64,
    is_over: AtomicBool,
}

impl Orders {
    pub(super) fn new(cast: &Cast, group: &Group, ledger: &Ledger) -> Self {
        Self {
            per_second: cast.keys_per_second,
            seed: cast.seed,
            replicas: cast.replicas.unwrap_or_default(),
            ledger: ledger.clone(),
            idle: Mutex::new(vec![Plain::new(group.nodes().iter().map(LocalNode::url))]),
            begun: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// The number of an order that lives now, as do some of those after it.
    pub(super) fn that_lives(&self) -> u64 {
        self.begun.load(Ordering::Relaxed).saturating_sub(u64::from(self.per_second))
    }

    /// No more orders.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Writes them until there are to be no more, and waits until all have expired.
    pub(super) async fn play(&self) {
        if self.per_second == 0 {
            return;
        }
        let (mut pace, mut random) = (interval(Duration::from_secs(1) / self.per_second), self.random());
        let mut busy = JoinSet::new();
        while !self.is_over.load(Ordering::Relaxed) {
            pace.tick().await;
            let (program, order) = (self.program(), self.next(&mut random));
            busy.spawn(order.write(program));
            while let Some(idle) = busy.try_join_next() {
                self.idle(idle.expect("it does not panic"));
            }
        }
        busy.join_all().await;
        sleep(Duration::from_millis(LIVES_MS.end)).await;
    }

    fn random(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    fn next(&self, random: &mut StdRng) -> Order {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let replicas = number.is_multiple_of(2).then_some(self.replicas);
        let (key, ledger) = (format!("{ORDER}{number}"), self.ledger.clone());
        Order { key, lives_ms: random.random_range(LIVES_MS), replicas, ledger }
    }

    fn program(&self) -> Plain {
        let mut idle = self.idle.lock().expect("nobody panics with it");
        // The first stays: what all of them know begins with it.
        if idle.len() > 1 { idle.pop().expect("there are two") } else { idle[0].another() }
    }

    fn idle(&self, program: Plain) {
        self.idle.lock().expect("nobody panics with it").push(program);
    }
}

/// One that is to be written.
struct Order {
    key: String,
    lives_ms: u64,
    /// How many are to have it, if its writer asks.
    replicas: Option<u32>,
    ledger: Ledger,
}

impl Order {
    /// Until a server has taken it. What had no answer may be there: then it is written over, and has had two lives.
    async fn write(self, mut program: Plain) -> Plain {
        let deadline = Deadline::after(PATIENCE);
        while !self.is_written(&mut program).await && !deadline.is_over() {
            sleep(TRY_AGAIN).await;
        }
        program
    }

    async fn is_written(&self, program: &mut Plain) -> bool {
        let (key, until) = (self.key.clone(), now() / 1000 + self.lives_ms);
        let set = redis::cmd("SET").arg(&key).arg(&key).arg("PXAT").arg(until).to_owned();
        let (how, life) = ("SET".to_owned(), Life::Until(until * 1000));
        self.ledger.write(Entry::WriteAsked { key: key.clone(), how, life });
        let answer = program.ask(&key, &set).await;
        let at = now();
        let (wrote, by, reached) = match &answer {
            Ok((_, url)) => (Wrote::Done, port(url), self.reached(program, url).await),
            // Only what has a code came from a server: it was refused.
            Err(error) if error.code().is_some() => (Wrote::Nothing, None, None),
            Err(_) => (Wrote::Unknown, None, None),
        };
        self.ledger.write_at(at, Entry::WriteTold { key, wrote, by, reached });
        wrote == Wrote::Done
    }

    async fn reached(&self, program: &mut Plain, url: &str) -> Option<bool> {
        let wait = redis::cmd("WAIT").arg(self.replicas?).arg(FOR_REPLICAS).to_owned();
        let reached =
            program.ask_at(url, &wait).await.and_then(|count| Ok(redis::from_redis_value::<u32>(count)?));
        Some(reached.is_ok_and(|reached| Some(reached) >= self.replicas))
    }
}

fn port(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.trim_end_matches('/').parse().ok()
}
