//! Arming many timers, in bounded batches that overlap.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::IntoFuture;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::lapse::RUNNING;
use crate::schedule::lane::{Ask, BATCH, BATCH_BYTES, Jobs};
use crate::schedule::{KeyArgs, Schedule};
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arming, Changed, MAX_BATCH, NewTimer};

/// Batches of one request that may wait for their answers.
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
        let lanes = schedule.partitions(config).await?;
        let by = RUNNING.try_with(|arming| *arming).ok();
        let (mut results, mut good) = (Vec::new(), Vec::new());
        for (place, timer) in timers.into_iter().enumerate() {
            match timer {
                Ok(timer) => good.push((place, NewTimer { by, ..timer })),
                Err(error) => results.push((place, Err(error))),
            }
        }
        let mut asked = VecDeque::new();
        for Batch { partition, places, timers } in plan(config, good) {
            if asked.len() == IN_FLIGHT
                && let Some(first) = asked.pop_front()
            {
                results.extend(answered(first).await);
            }
            let jobs = Jobs::Arm { only_if_absent, timers };
            let ask = Ask { triggers: config.triggers, jobs };
            asked.push_back((places, lanes[partition].put(schedule.client.patience, ask)));
        }
        for one in asked {
            results.extend(answered(one).await);
        }
        results.sort_by_key(|(place, _)| *place);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }
}

/// The results of a batch, and their places.
async fn answered(
    (places, answers): (Vec<usize>, impl Future<Output = Result<Vec<Result<Changed>>>>),
) -> Vec<(usize, Result<Arming>)> {
    let answers = match answers.await {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); places.len()],
    };
    let armings = answers.into_iter().map(|answer| match answer? {
        Changed::Armed(arming) => Ok(arming),
        _ => Err(Error::invalid("an arm without an answer")),
    });
    places.into_iter().zip(armings).collect()
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
    partition: usize,
    places: Vec<usize>,
    timers: Vec<NewTimer>,
}

/// The batches, in the order of their first timers. A call must not name a key twice: who names one again opens the
/// next batch of its partition, which then waits for the last.
fn plan(config: &TopicConfig, timers: Vec<(usize, NewTimer)>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    // The last batch of each partition, the bytes in it, and its keys.
    let mut open: HashMap<usize, (usize, usize, HashSet<Bytes>)> = HashMap::new();
    for (place, timer) in timers {
        let partition = config.partition_of(&timer.key);
        let fits = |(batch, bytes, keys): &&mut (usize, usize, HashSet<Bytes>)| {
            batches[*batch].timers.len() < BATCH
                && *bytes + timer.bytes() <= BATCH_BYTES
                && !keys.contains(&timer.key)
        };
        let (batch, bytes, keys) = match open.get_mut(&partition).filter(fits) {
            Some(batch) => batch,
            None => {
                batches.push(Batch { partition, places: Vec::new(), timers: Vec::new() });
                let new = (batches.len() - 1, 0, HashSet::new());
                open.entry(partition).insert_entry(new).into_mut()
            }
        };
        *bytes += timer.bytes();
        keys.insert(timer.key.clone());
        batches[*batch].places.push(place);
        batches[*batch].timers.push(timer);
    }
    batches
}
