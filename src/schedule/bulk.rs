//! Arming many timers, in bounded batches that overlap.

use std::collections::HashSet;
use std::future::IntoFuture;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::error::Result;
use crate::schedule::Schedule;
use crate::schedule::key::KeyArgs;
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arm, Arming, MAX_BATCH, NewTimer, PartitionNames};

/// Timers in one call.
const BATCH: usize = 250;
/// Payload bytes in one call, roughly.
const BATCH_BYTES: usize = 1 << 20;
/// Calls on their way at a time.
const IN_FLIGHT: usize = 8;

const _: () = assert!(BATCH <= MAX_BATCH);

/// One of many timers to be armed.
#[derive(Clone, Debug)]
pub struct NewArm<K, T> {
    /// What names it: captures in their order, or a whole key.
    pub key: K,
    /// When it is due.
    pub when: When,
    /// What the handler gets.
    pub payload: T,
}

impl<K, T> NewArm<K, T> {
    /// A timer to be armed.
    pub fn new(key: K, when: impl Into<When>, payload: T) -> Self {
        Self { key, when: when.into(), payload }
    }
}

/// Many arms, about to be made: set options, then `.await` them.
#[derive(Debug)]
#[must_use = "nothing is armed until the request is awaited"]
pub struct ArmManyRequest<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    timers: Vec<Result<NewTimer>>,
    only_if_absent: bool,
}

impl Schedule {
    /// Arms many timers, in batches of 250 of which eight are on their way at a
    /// time. The answers come in the order of the arms, each with its own
    /// result: one that fails does not keep the others from being armed. Of a
    /// key that is named twice the later arm comes later.
    ///
    /// # Errors
    /// As a whole only when the topic cannot be agreed on with Redis.
    pub fn arm_many<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        arms: impl IntoIterator<Item = NewArm<K, T>>,
    ) -> ArmManyRequest<'a> {
        let new_timer = |arm: NewArm<K, T>| self.new_timer(topic, &arm.key, arm.when, &arm.payload);
        let timers = arms.into_iter().map(new_timer).collect();
        ArmManyRequest { schedule: self, config: &topic.config, timers, only_if_absent: false }
    }
}

impl ArmManyRequest<'_> {
    /// Leaves existing timers alone.
    pub fn only_if_absent(mut self) -> Self {
        self.only_if_absent = true;
        self
    }

    async fn send(self) -> Result<Vec<Result<Arming>>> {
        let Self { schedule, config, timers, only_if_absent } = self;
        let partitions = schedule.partitions(config).await?;
        let mut results: Vec<Option<Result<Arming>>> = Vec::new();
        let mut plan = Plan::new(config, partitions.len());
        for (place, timer) in timers.into_iter().enumerate() {
            results.push(None);
            match timer {
                Ok(timer) => plan.add(place, timer),
                Err(error) => results[place] = Some(Err(error)),
            }
        }
        // Waves are awaited one after the other: only what names a key again
        // is in a later one.
        for wave in plan.into_waves() {
            let mut running = FuturesUnordered::new();
            let mut batches = wave.into_iter();
            loop {
                while running.len() < IN_FLIGHT {
                    let Some(batch) = batches.next() else { break };
                    let at = &partitions[batch.partition];
                    running.push(schedule.arm_batch(config, at, batch.timers, only_if_absent));
                }
                let Some(answered) = running.next().await else { break };
                answered.into_iter().for_each(|(place, result)| results[place] = Some(result));
            }
        }
        Ok(results.into_iter().flatten().collect())
    }
}

impl<'a> IntoFuture for ArmManyRequest<'a> {
    type Output = Result<Vec<Result<Arming>>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

impl Schedule {
    async fn arm_batch(
        &self,
        config: &TopicConfig,
        at: &PartitionNames,
        batch: Vec<(usize, NewTimer)>,
        only_if_absent: bool,
    ) -> Vec<(usize, Result<Arming>)> {
        let (places, timers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let call = |repeat| self.store().arm(at, Arm { timers: &timers, only_if_absent, repeat });
        let mut armings = match self.persist(call).await {
            Ok(armings) => armings,
            Err(error) => {
                let failed = |(place, timer): (usize, &NewTimer)| {
                    (place, Err(Self::failed(error.clone(), &timer.key, timer.arming)))
                };
                return places.into_iter().zip(&timers).map(failed).collect();
            }
        };
        let mut armed: Vec<_> = timers.iter().map(|timer| &timer.key).zip(&mut armings).collect();
        self.set_triggers(config, &mut armed).await;
        places.into_iter().zip(armings.into_iter().map(Ok)).collect()
    }
}

/// Which timers go together.
struct Plan<'a> {
    config: &'a TopicConfig,
    waves: Vec<Wave>,
}

struct Wave {
    keys: HashSet<bytes::Bytes>,
    full: Vec<Batch>,
    open: Vec<Batch>,
}

struct Batch {
    partition: usize,
    timers: Vec<(usize, NewTimer)>,
    bytes: usize,
}

impl<'a> Plan<'a> {
    fn new(config: &'a TopicConfig, partitions: usize) -> Self {
        Self { config, waves: vec![Wave::new(partitions)] }
    }

    /// Into the first wave after the last that names its key: a call must not
    /// name a key twice, and calls of one wave overtake each other.
    fn add(&mut self, place: usize, timer: NewTimer) {
        let after =
            self.waves.iter().rposition(|wave| wave.keys.contains(&timer.key)).map_or(0, |last| last + 1);
        let partition = self.config.partition_of(&timer.key);
        if after == self.waves.len() {
            let partitions = self.waves[0].open.len();
            self.waves.push(Wave::new(partitions));
        }
        self.waves[after].add(partition, place, timer);
    }

    fn into_waves(self) -> impl Iterator<Item = Vec<Batch>> {
        self.waves.into_iter().map(|wave| {
            let rest = wave.open.into_iter().filter(|batch| !batch.timers.is_empty());
            wave.full.into_iter().chain(rest).collect()
        })
    }
}

impl Wave {
    fn new(partitions: usize) -> Self {
        Self { keys: HashSet::new(), full: Vec::new(), open: (0..partitions).map(Batch::new).collect() }
    }

    fn add(&mut self, partition: usize, place: usize, timer: NewTimer) {
        self.keys.insert(timer.key.clone());
        let batch = &mut self.open[partition];
        batch.bytes += timer.payload.len() + timer.key.len();
        batch.timers.push((place, timer));
        if batch.timers.len() >= BATCH || batch.bytes >= BATCH_BYTES {
            self.full.push(std::mem::replace(batch, Batch::new(partition)));
        }
    }
}

impl Batch {
    fn new(partition: usize) -> Self {
        Self { partition, timers: Vec::new(), bytes: 0 }
    }
}
