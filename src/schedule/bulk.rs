//! Calls for many timers: arm, cancel and reschedule in bounded, pipelined batches.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::IntoFuture;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, iter};
use futures::{FutureExt, Stream, StreamExt};

use crate::error::Result;
use crate::schedule::lane::{BATCH, BATCH_BYTES, Lane, OpRequest};
use crate::schedule::timer::{current_arming, flags_of};
use crate::schedule::{KeyArgs, Schedule};
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::wire::{ArmResult, Cancelled, MAX_BATCH, Op, OpFlags, OpReply, Rescheduled};

const _: () = assert!(BATCH <= MAX_BATCH);

/// The maximum number of batches of a request without an answer, before another full batch is sent.
const MAX_BATCHES_IN_FLIGHT: usize = 8;

/// A timer to arm with [`Schedule::arm_many`].
///
/// ```no_run
/// use std::time::Duration;
/// use keylapse::{NewArm, Schedule, Topic};
///
/// # async fn arm(schedule: Schedule) -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// let unpaid = [("41", 500), ("42", 1999)];
/// let arms = unpaid.map(|(id, cents)| NewArm::new(id, Duration::from_secs(900), cents));
/// for ((id, _), result) in unpaid.iter().zip(schedule.arm_many(&orders, arms).await?) {
///     println!("order {id}: {:?}", result?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewArm<K, T> {
    /// The values of the pattern's captures in their order, or a whole key.
    pub key: K,
    /// When the timer is due.
    pub when: When,
    /// The payload that the handler receives.
    pub payload: T,
}

impl<K, T> NewArm<K, T> {
    /// Returns a timer to arm.
    pub fn new(key: K, when: impl Into<When>, payload: T) -> Self {
        Self { key, when: when.into(), payload }
    }
}

/// A request of many calls. Set options, then `.await` it. It returns one result for each call, in the order of the
/// calls.
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
    /// Arms many timers, in batches of at most 250 timers and about 1 MiB. Up to eight batches are in flight.
    ///
    /// Each arm has its own result, in the order of the arms. A failed arm does not affect the others. If a key
    /// occurs twice, its later arm is made later.
    ///
    /// The iterator is read while batches are sent. Another call for one of the keys may therefore be made before the
    /// arm of that key.
    ///
    /// # Errors
    /// The whole request fails only if the topic cannot be registered in Redis.
    pub fn arm_many<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        arms: impl IntoIterator<Item = NewArm<K, T>, IntoIter: Send + 'a>,
    ) -> BulkRequest<'a, ArmResult> {
        self.arm_stream(topic, iter(arms))
    }

    /// Arms many timers, as [`arm_many`](Self::arm_many), from a stream. When the stream is pending, incomplete
    /// batches are sent.
    ///
    /// # Errors
    /// Returns the errors of [`arm_many`](Self::arm_many).
    pub fn arm_stream<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        arms: impl Stream<Item = NewArm<K, T>> + Send + 'a,
    ) -> BulkRequest<'a, ArmResult> {
        let new = |arm: NewArm<K, T>| self.new_timer(topic, &arm.key, arm.when, &arm.payload).map(Op::Arm);
        self.bulk(topic, arms.map(new), OpReply::armed)
    }

    /// Cancels many timers with [`cancel`](Self::cancel), in batches as [`arm_many`](Self::arm_many).
    ///
    /// # Errors
    /// Returns the errors of [`arm_many`](Self::arm_many).
    pub fn cancel_many<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        keys: impl IntoIterator<Item = K, IntoIter: Send + 'a>,
    ) -> BulkRequest<'a, Cancelled> {
        self.cancel_stream(topic, iter(keys))
    }

    /// Cancels many timers, as [`cancel_many`](Self::cancel_many), from a stream of keys.
    ///
    /// # Errors
    /// Returns the errors of [`arm_many`](Self::arm_many).
    pub fn cancel_stream<'a, K: KeyArgs, T>(
        &'a self,
        topic: &'a Topic<T>,
        keys: impl Stream<Item = K> + Send + 'a,
    ) -> BulkRequest<'a, Cancelled> {
        self.bulk(topic, keys.map(|key| self.new_cancel(topic, &key)), OpReply::cancelled)
    }

    /// Moves many waiting timers with [`reschedule`](Self::reschedule), in batches as [`arm_many`](Self::arm_many).
    ///
    /// # Errors
    /// Returns the errors of [`arm_many`](Self::arm_many).
    pub fn reschedule_many<'a, K: KeyArgs, W: Into<When>, T>(
        &'a self,
        topic: &'a Topic<T>,
        moves: impl IntoIterator<Item = (K, W), IntoIter: Send + 'a>,
    ) -> BulkRequest<'a, Rescheduled> {
        self.reschedule_stream(topic, iter(moves))
    }

    /// Moves many waiting timers, as [`reschedule_many`](Self::reschedule_many), from a stream.
    ///
    /// # Errors
    /// Returns the errors of [`arm_many`](Self::arm_many).
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

impl BulkRequest<'_, ArmResult> {
    /// Arms only keys that have no timer.
    pub fn only_if_absent(mut self) -> Self {
        self.flags.only_if_absent = true;
        self
    }
}

impl<'a, R: Send + 'a> BulkRequest<'a, R> {
    /// Sets a function that receives, after each batch, how many calls have their results.
    pub fn progress(mut self, tell: impl FnMut(usize) + Send + 'a) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }

    /// Passes each result to `take` when it arrives, with the index of its call, instead of collecting all results.
    /// Returns the number of calls.
    ///
    /// # Errors
    /// Returns the errors of [`arm_many`](Schedule::arm_many).
    pub async fn for_each(self, take: impl FnMut(usize, Result<R>) + Send) -> Result<usize> {
        let Self { schedule, config, mut ops, flags, mut progress, read } = self;
        let (lanes, by) = (schedule.lanes(config).await?, current_arming());
        let mut sender = BulkSender {
            schedule,
            config,
            lanes: &lanes,
            flags,
            open: HashMap::new(),
            sent: VecDeque::new(),
        };
        let (mut take, mut done, mut index) = (take, 0, 0);
        let mut deliver = move |results: Results| {
            done += results.len();
            results.into_iter().for_each(|(index, result)| take(index, result.and_then(read)));
            progress.iter_mut().for_each(|tell| tell(done));
        };
        while let Some(op) = sender.next(&mut ops, &mut deliver).await {
            match op {
                Ok(op) => sender.add(index, op.made_by(by), &mut deliver).await,
                Err(error) => deliver(vec![(index, Err(error))]),
            }
            index += 1;
        }
        sender.finish(&mut deliver).await;
        Ok(index)
    }

    async fn collect(self) -> Result<Vec<Result<R>>> {
        let mut results = Vec::new();
        self.for_each(|index, result| results.push((index, result))).await?;
        results.sort_by_key(|(index, _)| *index);
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

/// Answers, each with the index of its call.
type Results = Vec<(usize, Result<OpReply>)>;

/// Sends the batches of one request.
struct BulkSender<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    lanes: &'a [Lane],
    flags: OpFlags,
    /// The incomplete batches, by the index of their partition.
    open: HashMap<usize, OpenBatch>,
    /// Sent batches in their order: the indexes of their calls, and the future of their answers.
    sent: VecDeque<(Vec<usize>, OpRepliesFuture)>,
}

/// The future of the answers to a batch.
type OpRepliesFuture = BoxFuture<'static, Result<Vec<Result<OpReply>>>>;

impl BulkSender<'_> {
    /// Returns the next op. While the stream is pending, it sends incomplete batches and passes on answers.
    async fn next(
        &mut self,
        ops: &mut BoxStream<'_, Result<Op>>,
        deliver: &mut impl FnMut(Results),
    ) -> Option<Result<Op>> {
        if let Some(ready) = ops.next().now_or_never() {
            return ready;
        }
        self.send_all();
        loop {
            tokio::select! {
                next = ops.next() => return next,
                results = self.oldest_results() => deliver(results),
            }
        }
    }

    /// Adds an op to its partition's batch. A batch without room for it is sent first.
    async fn add(&mut self, index: usize, op: Op, deliver: &mut impl FnMut(Results)) {
        let partition = self.config.partition_of(op.key());
        if self.open.get(&partition).is_some_and(|batch| !batch.has_room(&op)) {
            if self.sent.len() >= MAX_BATCHES_IN_FLIGHT {
                deliver(self.oldest_results().await);
            }
            let batch = self.open.remove(&partition).unwrap_or_default();
            self.send(partition, batch);
        }
        self.open.entry(partition).or_default().add(index, op);
    }

    /// Sends the remaining batches, and waits for all answers.
    async fn finish(&mut self, deliver: &mut impl FnMut(Results)) {
        self.send_all();
        while !self.sent.is_empty() {
            deliver(self.oldest_results().await);
        }
    }

    /// Sends all incomplete batches.
    fn send_all(&mut self) {
        for (partition, batch) in std::mem::take(&mut self.open) {
            self.send(partition, batch);
        }
    }

    /// Queues a batch in the partition's lane.
    fn send(&mut self, partition: usize, batch: OpenBatch) {
        let request = OpRequest { flags: self.flags, ops: batch.ops };
        let answer = self.lanes[partition].enqueue(self.schedule.client.retry_for, request);
        self.sent.push_back((batch.indexes, answer.boxed()));
    }

    /// Waits for the results of the oldest sent batch, or forever if no batch was sent. Cancel safe.
    async fn oldest_results(&mut self) -> Results {
        let Some((indexes, answer)) = self.sent.front_mut() else { return std::future::pending().await };
        let answers = answer.await.unwrap_or_else(|error| vec![Err(error); indexes.len()]);
        let results = std::mem::take(indexes).into_iter().zip(answers).collect();
        self.sent.pop_front();
        results
    }
}

/// An incomplete batch of one partition.
#[derive(Default)]
struct OpenBatch {
    /// The indexes of the calls, by which their results are ordered.
    indexes: Vec<usize>,
    ops: Vec<Op>,
    bytes: usize,
    keys: HashSet<Bytes>,
}

impl OpenBatch {
    /// Returns whether an op fits. A batch has no key twice: the second op of a key starts the next batch, which
    /// waits for this one.
    fn has_room(&self, op: &Op) -> bool {
        let fits = self.ops.len() < BATCH && self.bytes + op.bytes() <= BATCH_BYTES;
        fits && !self.keys.contains(op.key())
    }

    fn add(&mut self, index: usize, op: Op) {
        self.indexes.push(index);
        self.bytes += op.bytes();
        self.keys.insert(op.key().clone());
        self.ops.push(op);
    }
}
