//! Arming many timers, in bounded batches that overlap.

use std::collections::{BTreeMap, HashMap};
use std::future::IntoFuture;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, iter};

use crate::error::Result;
use crate::limits::fit;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arming, MAX_BATCH, NewTimer};

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
        let (mut results, mut good) = (Vec::new(), Vec::new());
        for (place, timer) in timers.into_iter().enumerate() {
            match timer {
                Ok(timer) => good.push((place, timer)),
                Err(error) => results.push((place, Err(error))),
            }
        }
        // Waves are awaited one after the other: only what names a key again
        // is in a later one.
        for wave in plan(config, good).chunk_by(|one, next| one.wave == next.wave) {
            let arm = async |batch: &Batch| {
                let at = &partitions[batch.partition];
                let armed = schedule.arm_batch(config, at, &batch.timers, only_if_absent, None).await;
                batch.places.iter().copied().zip(armed).collect::<Vec<_>>()
            };
            let answered: Vec<_> = iter(wave.iter().map(arm)).buffer_unordered(IN_FLIGHT).collect().await;
            results.extend(answered.into_iter().flatten());
        }
        results.sort_by_key(|(place, _)| *place);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }
}

impl<'a> IntoFuture for ArmManyRequest<'a> {
    type Output = Result<Vec<Result<Arming>>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// Timers that go together in one call, and their places among all.
struct Batch {
    wave: usize,
    partition: usize,
    places: Vec<usize>,
    timers: Vec<NewTimer>,
}

/// The batches, wave by wave. Calls of one wave overtake each other, and a call must not name a key twice:
/// the first arm of a key is in the first wave, the second in the second, and so on.
fn plan(config: &TopicConfig, timers: Vec<(usize, NewTimer)>) -> Vec<Batch> {
    let mut named = HashMap::new();
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for (place, timer) in timers {
        let next_wave: &mut usize = named.entry(timer.key.clone()).or_default();
        groups.entry((*next_wave, config.partition_of(&timer.key))).or_default().push((place, timer));
        *next_wave += 1;
    }
    let batches = groups.into_iter().flat_map(|((wave, partition), group)| {
        let largest = group.iter().map(|(_, timer)| timer.key.len() + timer.payload.len()).max();
        let (most, mut group) = (fit(BATCH_BYTES, BATCH, largest), group.into_iter());
        std::iter::from_fn(move || {
            let (places, timers): (Vec<_>, Vec<_>) = group.by_ref().take(most).unzip();
            (!places.is_empty()).then_some(Batch { wave, partition, places, timers })
        })
    });
    batches.collect()
}
