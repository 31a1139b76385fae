//! Fills batches, and keeps a few of them on their way.

use std::collections::{HashMap, VecDeque};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::job::{Job, Open};
use crate::error::Result;
use crate::schedule::Schedule;
use crate::schedule::lane::{Ask, Lane};
use crate::topic::TopicConfig;
use crate::wire::Changed;

/// Batches of one request that may wait for their answers.
const IN_FLIGHT: usize = 8;

/// Who takes results, each with its place.
pub(super) trait Give {
    fn give(&mut self, results: Vec<(usize, Result<Changed>)>);
}

/// The batches of one request.
pub(super) struct Sending<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    lanes: &'a [Lane],
    only_if_absent: bool,
    /// Those that are being filled, by their partitions.
    open: HashMap<usize, Open>,
    /// Those that were sent, in their order: places and answers.
    asked: VecDeque<(Vec<usize>, Answer)>,
}

/// That to a batch.
type Answer = BoxFuture<'static, Result<Vec<Result<Changed>>>>;

impl<'a> Sending<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        config: &'a TopicConfig,
        lanes: &'a [Lane],
        only_if_absent: bool,
    ) -> Self {
        let (open, asked) = (HashMap::new(), VecDeque::new());
        Self { schedule, config, lanes, only_if_absent, open, asked }
    }

    /// The next job. While it lets wait for itself, what has gathered goes, and answers are taken in.
    pub(super) async fn next(
        &mut self,
        jobs: &mut BoxStream<'_, Result<Job>>,
        giving: &mut impl Give,
    ) -> Option<Result<Job>> {
        if let Some(ready) = jobs.next().now_or_never() {
            return ready;
        }
        self.put_all();
        loop {
            tokio::select! {
                next = jobs.next() => return next,
                results = self.first() => giving.give(results),
            }
        }
    }

    /// Adds a job to its partition's batch; one that has no room for it goes.
    pub(super) async fn add(&mut self, place: usize, job: Job, giving: &mut impl Give) {
        let partition = self.config.partition_of(job.key());
        if self.open.get(&partition).is_some_and(|batch| !batch.has_room(&job)) {
            if self.asked.len() >= IN_FLIGHT {
                giving.give(self.first().await);
            }
            let batch = self.open.remove(&partition).unwrap_or_default();
            self.put(partition, batch);
        }
        self.open.entry(partition).or_default().add(place, job);
    }

    /// Sends what is left, and takes in what is not answered.
    pub(super) async fn finish(&mut self, giving: &mut impl Give) {
        self.put_all();
        while !self.asked.is_empty() {
            giving.give(self.first().await);
        }
    }

    fn put_all(&mut self) {
        for (partition, batch) in std::mem::take(&mut self.open) {
            self.put(partition, batch);
        }
    }

    fn put(&mut self, partition: usize, mut batch: Open) {
        let places = std::mem::take(&mut batch.places);
        let ask = Ask { triggers: self.config.triggers, jobs: batch.into_jobs(self.only_if_absent) };
        let answer = self.lanes[partition].put(self.schedule.client.patience, ask);
        self.asked.push_back((places, answer.boxed()));
    }

    /// The results of the batch that was sent first; waits for ever if there is none. Can be dropped and asked again.
    async fn first(&mut self) -> Vec<(usize, Result<Changed>)> {
        let Some((places, answer)) = self.asked.front_mut() else { return std::future::pending().await };
        let answers = answer.await.unwrap_or_else(|error| vec![Err(error); places.len()]);
        let results = std::mem::take(places).into_iter().zip(answers).collect();
        self.asked.pop_front();
        results
    }
}
