//! Many timers: arming, withdrawing and moving them in bounded batches that overlap.

mod job;
mod sending;

use std::fmt;
use std::future::IntoFuture;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, iter};
use futures::{FutureExt, Stream, StreamExt};

use self::job::Job;
use self::sending::{Give, Sending};
use crate::error::Result;
use crate::id::CancelId;
use crate::lapse::RUNNING;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arming, Cancel, Cancelled, Changed, Move, Rescheduled};

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

/// Many calls, about to be made: set options, then `.await` them. The answers come in the order of the calls, each
/// with its own result.
#[must_use = "nothing is sent until the request is awaited"]
pub struct BulkRequest<'a, R> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    jobs: BoxStream<'a, Result<Job>>,
    only_if_absent: bool,
    progress: Option<Box<dyn FnMut(usize) + Send + 'a>>,
    read: fn(Changed) -> Result<R>,
}

impl<R> fmt::Debug for BulkRequest<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BulkRequest({})", self.config.name)
    }
}

impl Schedule {
    /// Arms many timers, in batches of at most 250 and about a mebibyte of which up to eight wait for their answers
    /// at a time. The answers come in the order of the arms, each with its own result: one that fails does not keep
    /// the others from being armed. Of a key that is named twice the later arm comes later. The list is read as it is
    /// sent: another call for one of its keys that is made meanwhile may come before it.
    ///
    /// # Errors
    /// As a whole only when the topic cannot be agreed on with Redis.
    pub fn arm_many<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        arms: impl IntoIterator<Item = NewArm<K, T>, IntoIter: Send + 'a>,
    ) -> BulkRequest<'a, Arming> {
        self.arm_stream(topic, iter(arms))
    }

    /// The same of arms that come one after the other: what has come is sent when the next lets wait for itself.
    ///
    /// # Errors
    /// As for [`arm_many`](Self::arm_many).
    pub fn arm_stream<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        arms: impl Stream<Item = NewArm<K, T>> + Send + 'a,
    ) -> BulkRequest<'a, Arming> {
        self.bulk(topic, arms.map(|arm| self.new_arm(topic, &arm)), Changed::armed)
    }

    /// Withdraws many timers, as [`cancel`](Self::cancel) does one and [`arm_many`](Self::arm_many) arms many.
    ///
    /// # Errors
    /// As for [`arm_many`](Self::arm_many).
    pub fn cancel_many<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        keys: impl IntoIterator<Item = K, IntoIter: Send + 'a>,
    ) -> BulkRequest<'a, Cancelled> {
        self.cancel_stream(topic, iter(keys))
    }

    /// The same of keys that come one after the other.
    ///
    /// # Errors
    /// As for [`arm_many`](Self::arm_many).
    pub fn cancel_stream<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        keys: impl Stream<Item = K> + Send + 'a,
    ) -> BulkRequest<'a, Cancelled> {
        self.bulk(topic, keys.map(|key| self.new_cancel(topic, &key)), |changed| {
            Ok(changed.cancelled()?.result)
        })
    }

    /// Moves many waiting timers, as [`reschedule`](Self::reschedule) does one and [`arm_many`](Self::arm_many)
    /// arms many.
    ///
    /// # Errors
    /// As for [`arm_many`](Self::arm_many).
    pub fn reschedule_many<'a, K: KeyArgs, W: Into<When>, T>(
        &'a self,
        topic: &'a Topic<T>,
        moves: impl IntoIterator<Item = (K, W), IntoIter: Send + 'a>,
    ) -> BulkRequest<'a, Rescheduled> {
        self.reschedule_stream(topic, iter(moves))
    }

    /// The same of moves that come one after the other.
    ///
    /// # Errors
    /// As for [`arm_many`](Self::arm_many).
    pub fn reschedule_stream<'a, K: KeyArgs, W: Into<When>, T>(
        &'a self,
        topic: &'a Topic<T>,
        moves: impl Stream<Item = (K, W)> + Send + 'a,
    ) -> BulkRequest<'a, Rescheduled> {
        self.bulk(
            topic,
            moves.map(|(key, when)| self.new_move(topic, &key, when.into())),
            Changed::rescheduled,
        )
    }

    fn bulk<'a, T, R>(
        &'a self,
        topic: &'a Topic<T>,
        jobs: impl Stream<Item = Result<Job>> + Send + 'a,
        read: fn(Changed) -> Result<R>,
    ) -> BulkRequest<'a, R> {
        let jobs = jobs.boxed();
        BulkRequest {
            schedule: self,
            config: &topic.config,
            jobs,
            only_if_absent: false,
            progress: None,
            read,
        }
    }

    fn new_arm<K: KeyArgs, T>(&self, topic: &Topic<T>, arm: &NewArm<K, T>) -> Result<Job> {
        self.new_timer(topic, &arm.key, arm.when, &arm.payload).map(Job::Arm)
    }

    fn new_cancel<T>(&self, topic: &Topic<T>, key: &impl KeyArgs) -> Result<Job> {
        Ok(Job::Cancel(Cancel { key: self.key_of(&topic.config, key)?, id: CancelId::random() }))
    }

    fn new_move<T>(&self, topic: &Topic<T>, key: &impl KeyArgs, when: When) -> Result<Job> {
        let key = self.key_of(&topic.config, key)?;
        let when = when.resolve(topic.config.max_delay).map_err(|error| error.at_key(&key))?;
        Ok(Job::Move(Move { key, when }))
    }
}

impl BulkRequest<'_, Arming> {
    /// Leaves existing timers alone.
    pub fn only_if_absent(mut self) -> Self {
        self.only_if_absent = true;
        self
    }
}

impl<'a, R: Send + 'a> BulkRequest<'a, R> {
    /// Is told, after each batch, how many have their results.
    pub fn progress(mut self, tell: impl FnMut(usize) + Send + 'a) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }

    /// Gives each result away as it comes, with its place among the calls, in place of keeping all of them. Answers
    /// how many there were.
    ///
    /// # Errors
    /// As for [`arm_many`](Schedule::arm_many).
    pub async fn for_each(self, take: impl FnMut(usize, Result<R>) + Send) -> Result<usize> {
        let Self { schedule, config, mut jobs, only_if_absent, progress, read } = self;
        let lanes = schedule.partitions(config).await?;
        let by = RUNNING.try_with(|arming| *arming).ok();
        let mut sending = Sending::new(schedule, config, &lanes, only_if_absent);
        let (mut giving, mut place) = (Giving { take, progress, read, done: 0 }, 0);
        while let Some(job) = sending.next(&mut jobs, &mut giving).await {
            match job {
                Ok(job) => sending.add(place, job.made_by(by), &mut giving).await,
                Err(error) => giving.give(vec![(place, Err(error))]),
            }
            place += 1;
        }
        sending.finish(&mut giving).await;
        Ok(place)
    }

    async fn collect(self) -> Result<Vec<Result<R>>> {
        let mut results = Vec::new();
        self.for_each(|place, result| results.push((place, result))).await?;
        results.sort_by_key(|(place, _)| *place);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }
}

impl<'a, R: Send + 'a> IntoFuture for BulkRequest<'a, R> {
    type Output = Result<Vec<Result<R>>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.collect().boxed()
    }
}

/// Hands results on.
struct Giving<'a, R, F> {
    take: F,
    progress: Option<Box<dyn FnMut(usize) + Send + 'a>>,
    read: fn(Changed) -> Result<R>,
    done: usize,
}

impl<R, F: FnMut(usize, Result<R>) + Send> Give for Giving<'_, R, F> {
    fn give(&mut self, results: Vec<(usize, Result<Changed>)>) {
        self.done += results.len();
        for (place, result) in results {
            (self.take)(place, result.and_then(self.read));
        }
        self.progress.iter_mut().for_each(|tell| tell(self.done));
    }
}
