//! Many timers: arming, withdrawing and moving them in bounded batches that overlap.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::IntoFuture;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, iter};
use futures::{FutureExt, Stream, StreamExt};

use crate::error::Result;
use crate::schedule::lane::{Ask, BATCH, BATCH_BYTES, Lane};
use crate::schedule::timer::{flags_of, running};
use crate::schedule::{KeyArgs, Schedule};
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arming, Cancelled, MAX_BATCH, Op, OpFlags, OpReply, Rescheduled};

const _: () = assert!(BATCH <= MAX_BATCH);

/// Batches of one request that may wait for their answers.
const IN_FLIGHT: usize = 8;

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
    ops: BoxStream<'a, Result<Op>>,
    flags: OpFlags,
    progress: Option<Box<dyn FnMut(usize) + Send + 'a>>,
    read: fn(OpReply) -> Result<R>,
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
        let new = |arm: NewArm<K, T>| self.new_timer(topic, &arm.key, arm.when, &arm.payload).map(Op::Arm);
        self.bulk(topic, arms.map(new), OpReply::armed)
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
        self.bulk(topic, keys.map(|key| self.new_cancel(topic, &key)), OpReply::cancelled)
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
        let moves = moves.map(|(key, when)| self.new_move(topic, &key, when.into()));
        self.bulk(topic, moves, OpReply::rescheduled)
    }

    fn bulk<'a, T, R>(
        &'a self,
        topic: &'a Topic<T>,
        ops: impl Stream<Item = Result<Op>> + Send + 'a,
        read: fn(OpReply) -> Result<R>,
    ) -> BulkRequest<'a, R> {
        let (config, ops) = (&topic.config, ops.boxed());
        BulkRequest { schedule: self, config, ops, flags: flags_of(config), progress: None, read }
    }
}

impl BulkRequest<'_, Arming> {
    /// Leaves existing timers alone.
    pub fn only_if_absent(mut self) -> Self {
        self.flags.only_if_absent = true;
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
        let Self { schedule, config, mut ops, flags, mut progress, read } = self;
        let (lanes, by) = (schedule.partitions(config).await?, running());
        let mut sending =
            Sending { schedule, config, lanes: &lanes, flags, open: HashMap::new(), asked: VecDeque::new() };
        let (mut take, mut done, mut place) = (take, 0, 0);
        let mut give = move |results: Results| {
            done += results.len();
            results.into_iter().for_each(|(place, result)| take(place, result.and_then(read)));
            progress.iter_mut().for_each(|tell| tell(done));
        };
        while let Some(op) = sending.next(&mut ops, &mut give).await {
            match op {
                Ok(op) => sending.add(place, op.made_by(by), &mut give).await,
                Err(error) => give(vec![(place, Err(error))]),
            }
            place += 1;
        }
        sending.finish(&mut give).await;
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

/// Answers, each with the place of its call.
type Results = Vec<(usize, Result<OpReply>)>;

/// The batches of one request.
struct Sending<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    lanes: &'a [Lane],
    flags: OpFlags,
    /// Those that are being filled, by their partitions.
    open: HashMap<usize, Open>,
    /// Those that were sent, in their order: places and answers.
    asked: VecDeque<(Vec<usize>, Answer)>,
}

/// That to a batch.
type Answer = BoxFuture<'static, Result<Vec<Result<OpReply>>>>;

impl Sending<'_> {
    /// The next op. While it lets wait for itself, what has gathered goes, and answers are taken in.
    async fn next(
        &mut self,
        ops: &mut BoxStream<'_, Result<Op>>,
        give: &mut impl FnMut(Results),
    ) -> Option<Result<Op>> {
        if let Some(ready) = ops.next().now_or_never() {
            return ready;
        }
        self.put_all();
        loop {
            tokio::select! {
                next = ops.next() => return next,
                results = self.first() => give(results),
            }
        }
    }

    /// Adds an op to its partition's batch; one that has no room for it goes.
    async fn add(&mut self, place: usize, op: Op, give: &mut impl FnMut(Results)) {
        let partition = self.config.partition_of(op.key());
        if self.open.get(&partition).is_some_and(|batch| !batch.has_room(&op)) {
            if self.asked.len() >= IN_FLIGHT {
                give(self.first().await);
            }
            let batch = self.open.remove(&partition).unwrap_or_default();
            self.put(partition, batch);
        }
        self.open.entry(partition).or_default().add(place, op);
    }

    /// Sends what is left, and takes in what is not answered.
    async fn finish(&mut self, give: &mut impl FnMut(Results)) {
        self.put_all();
        while !self.asked.is_empty() {
            give(self.first().await);
        }
    }

    fn put_all(&mut self) {
        for (partition, batch) in std::mem::take(&mut self.open) {
            self.put(partition, batch);
        }
    }

    fn put(&mut self, partition: usize, batch: Open) {
        let ask = Ask { flags: self.flags, ops: batch.ops };
        let answer = self.lanes[partition].put(self.schedule.client.patience, ask);
        self.asked.push_back((batch.places, answer.boxed()));
    }

    /// The results of the batch that was sent first; waits for ever if there is none. Can be dropped and asked again.
    async fn first(&mut self) -> Results {
        let Some((places, answer)) = self.asked.front_mut() else { return std::future::pending().await };
        let answers = answer.await.unwrap_or_else(|error| vec![Err(error); places.len()]);
        let results = std::mem::take(places).into_iter().zip(answers).collect();
        self.asked.pop_front();
        results
    }
}

/// A batch that is being filled.
#[derive(Default)]
struct Open {
    places: Vec<usize>,
    ops: Vec<Op>,
    bytes: usize,
    keys: HashSet<Bytes>,
}

impl Open {
    /// A call names no key twice: who names one again opens the next batch, which then waits for this one.
    fn has_room(&self, op: &Op) -> bool {
        let fits = self.ops.len() < BATCH && self.bytes + op.bytes() <= BATCH_BYTES;
        fits && !self.keys.contains(op.key())
    }

    fn add(&mut self, place: usize, op: Op) {
        self.places.push(place);
        self.bytes += op.bytes();
        self.keys.insert(op.key().clone());
        self.ops.push(op);
    }
}
