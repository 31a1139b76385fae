//! One call that changes the number of partitions.

use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt, iter};
use tokio::time::Instant;

use keylapse::inside::TopicConfig;

use super::partition_mover::{EndedByAnother, MovedCounts, PartitionMover, may_have_come};
use super::{Repartitioned, refused_attached};
use crate::Console;
use crate::connection::{DESTROYING_ADVICE, REPARTITIONING_ADVICE};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::id::RepartitionId;
use crate::log::{info, warn};
use crate::wire::{
    ListTarget, PartitionMeta, PartitionNames, PartitionPhase, RepartitionChange, RepartitionStep,
    TopicEntry, names,
};

/// The pause between two checks for running attempts.
const RUNNING_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many states a check for running attempts reads at a time.
const STATES: usize = 1000;
const MAX_CONCURRENT_PARTITIONS: usize = 4;

/// One running call.
pub(super) struct Repartitioner<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    to: u32,
    /// The present number of partitions.
    of: u32,
    /// The highest number of partitions that the topic has ever had, including the new number.
    most: u32,
    /// The ID under which this call pauses partitions.
    own: RepartitionId,
    /// The ID under which partitions are closed: this call's own, or that of an earlier call which it continues.
    id: RepartitionId,
}

/// The result of the move.
enum MoveOutcome {
    /// This call has completed the change.
    Done(MovedCounts, Duration),
    /// Another call continues the change or has completed it.
    Elsewhere,
}

impl<'a> Repartitioner<'a> {
    pub(super) fn new(console: &'a Console, config: &'a TopicConfig, to: u32) -> Self {
        let own = RepartitionId::random();
        Self { console, config, to, of: to, most: to, own, id: own }
    }

    pub(super) async fn run(mut self, wait: Duration) -> Result<Repartitioned> {
        let found = self.ask().await?;
        (self.of, self.most) = (found.of, found.of.max(self.to).max(found.most));
        let mut done = Repartitioned { from: found.of, to: self.to, ..Repartitioned::default() };
        if found.standing != PartitionPhase::Closed && found.of == self.to {
            self.tidy().await?;
            self.list().await?;
            return Ok(done);
        }
        let until = Instant::now() + wait;
        if let Some(id) = found.id {
            self.id = id;
        } else {
            self.check_permissions().await?;
            let began = Instant::now();
            let closed = self.close_first(until).await;
            if closed.is_err() {
                self.resume_all().await;
            }
            closed?;
            done.waited = began.elapsed();
        }
        match self.move_all(until).await? {
            MoveOutcome::Done(moved, closed_for) => {
                (done.timers, done.dead_letters) = (moved.timers, moved.letters);
                done.closed_for = closed_for;
            }
            MoveOutcome::Elsewhere => self.was_ended().await?,
        }
        info!(topic = %self.config.name, ?done, "the topic has another number of partitions");
        Ok(done)
    }

    /// Returns a partition with the present number.
    fn at(&self, index: u32) -> PartitionNames {
        PartitionNames::new(self.console.namespace(), &self.config.name, index, self.of, false)
    }

    /// Returns all partitions with the new number.
    fn all_new(&self) -> Vec<PartitionNames> {
        let TopicConfig { name, .. } = self.config;
        let at = |index| PartitionNames::new(self.console.namespace(), name, index, self.to, false);
        (0..self.to).map(at).collect()
    }

    async fn reshape(&self, index: u32, how: RepartitionStep<'_>) -> Result<PartitionMeta> {
        self.reshape_under(index, self.id, how).await
    }

    async fn reshape_under(
        &self,
        index: u32,
        id: RepartitionId,
        how: RepartitionStep<'_>,
    ) -> Result<PartitionMeta> {
        let (at, change) = (self.at(index), RepartitionChange { to: self.to, own: self.own, id });
        self.console.retry_until_answered(|_| self.console.store().repartition_step(&at, change, how)).await
    }

    /// Returns the state of partition 0, or an error if this call may not continue.
    async fn ask(&self) -> Result<PartitionMeta> {
        let found = self.reshape(0, RepartitionStep::Ask).await?;
        self.check(&found)?;
        Ok(found)
    }

    fn check(&self, found: &PartitionMeta) -> Result<()> {
        let (name, to) = (&self.config.name, self.to);
        if found.attached {
            return Err(refused_attached(name, to));
        }
        match found.standing {
            PartitionPhase::Absent => Err(Error::invalid(format!(
                "topic {name} is not in Redis: there is nothing to repartition; start its programs with `.partitions({to})`"
            ))),
            PartitionPhase::Closed if found.to != to => Err(self.conflicting_change(found.to)),
            // A call with the present number takes the change back before the topic is closed.
            PartitionPhase::Paused if found.to != to && found.of != to => {
                Err(self.conflicting_change(found.to))
            }
            _ => self.refuse_if_destroyed(found),
        }
    }

    fn conflicting_change(&self, to: u32) -> Error {
        let message = format!(
            "topic {} is getting {to} partitions, and not {}: call Console::repartition with {to}, which ends that change, \
             then with this number",
            self.config.name, self.to
        );
        Error::new(ErrorKind::Repartitioning, message)
    }

    /// Checks the permissions that only a repartition needs, before anything is closed.
    async fn check_permissions(&self) -> Result<()> {
        let (store, at) = (self.console.store(), self.at(0));
        self.console.retry_until_answered(|_| store.may_unlink(&at)).await?;
        for what in [ListTarget::Due, ListTarget::Records, ListTarget::Tombstones] {
            self.console.retry_until_answered(|_| store.names_in(&at, what, 0, 1)).await?;
        }
        Ok(())
    }

    /// Cleans up after interrupted calls.
    async fn tidy(&self) -> Result<()> {
        for index in 0..self.most {
            let found = self.reshape(index, RepartitionStep::Ask).await?;
            match (found.standing, found.id) {
                // A call that is at work closes partition 0 before the others. If it is open, that call has ended.
                (PartitionPhase::Closed, Some(id))
                    if self.ask().await?.standing != PartitionPhase::Closed =>
                {
                    self.reshape_under(index, id, RepartitionStep::Tidy).await?;
                }
                (PartitionPhase::Paused, _) => drop(self.reshape(index, RepartitionStep::Tidy).await?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Pauses all partitions, waits until no attempt runs, and closes partition 0.
    async fn close_first(&mut self, until: Instant) -> Result<()> {
        loop {
            for index in 0..self.of {
                self.pause(index).await?;
            }
            for index in self.of..self.most {
                self.refuse_if_destroyed(&self.reshape(index, RepartitionStep::Ask).await?)?;
            }
            for index in 0..self.of {
                self.wait_until_idle(index, until).await?;
            }
            let closed = self.reshape(0, RepartitionStep::Close).await?;
            self.check(&closed)?;
            match (closed.done, closed.standing) {
                (true, _) => {
                    self.id = closed.id.unwrap_or(self.id);
                    return Ok(());
                }
                (false, PartitionPhase::Open) => return Err(self.was_resumed()),
                // Another call has paused the partition again for the same number. Either call may close it.
                (false, _) if Instant::now() < until => {}
                (false, _) => return Err(self.was_resumed()),
            }
        }
    }

    fn was_resumed(&self) -> Error {
        let message = format!(
            "topic {} was resumed, or another call has taken the change back: no partition has changed; call it again",
            self.config.name
        );
        Error::new(ErrorKind::InUse, message)
    }

    async fn pause(&self, index: u32) -> Result<()> {
        let found = self.reshape(index, RepartitionStep::Pause).await?;
        if index == 0 { self.check(&found) } else { self.refuse_if_destroyed(&found) }
    }

    /// Refuses a topic that is being destroyed, because the repartition and the destruction would wait for each other.
    fn refuse_if_destroyed(&self, found: &PartitionMeta) -> Result<()> {
        if found.standing != PartitionPhase::Destroying {
            return Ok(());
        }
        let message = format!("topic {} is being destroyed{DESTROYING_ADVICE}", self.config.name);
        Err(Error::new(ErrorKind::Destroying, message))
    }

    async fn wait_until_idle(&self, index: u32, until: Instant) -> Result<()> {
        let at = self.at(index);
        loop {
            let Some(running) = self.running_key(&at).await? else { return Ok(()) };
            if Instant::now() >= until {
                let message = format!(
                    "attempts of topic {} still run, such as that of {}: let them end, or wait() for longer",
                    self.config.name,
                    Escaped(&running)
                );
                return Err(Error::new(ErrorKind::InUse, message));
            }
            tokio::time::sleep(RUNNING_POLL_INTERVAL).await;
        }
    }

    async fn running_key(&self, at: &PartitionNames) -> Result<Option<bytes::Bytes>> {
        let (store, mut cursor) = (self.console.store(), 0);
        loop {
            let page = |_| store.names_in(at, ListTarget::Running, cursor, STATES);
            let (next, mut running) = self.console.retry_until_answered(page).await?;
            if let Some(key) = running.pop() {
                return Ok(Some(key));
            }
            cursor = next;
            if cursor == 0 {
                return Ok(None);
            }
        }
    }

    /// Resumes the partitions that this call has paused, unless another program has paused them since.
    async fn resume_all(&self) {
        for index in 0..self.of {
            match self.reshape(index, RepartitionStep::Resume).await {
                // The partition was closed although the answer was an error. The next call continues the change.
                Ok(found) if index == 0 && found.standing == PartitionPhase::Closed => return,
                Ok(_) => {}
                Err(error) => {
                    warn!(topic = %self.config.name, partition = index, %error, "the partition may have stayed paused");
                }
            }
        }
    }

    /// Closes the other partitions, moves entries, and opens all partitions.
    async fn move_all(&mut self, until: Instant) -> Result<MoveOutcome> {
        let mut closed = vec![self.reshape(0, RepartitionStep::Close).await?];
        for index in 1..self.most {
            let Some(found) = self.close(index, until).await? else { return Ok(MoveOutcome::Elsewhere) };
            closed.push(found);
        }
        let all = self.all_new();
        // A partition that is open was opened by an interrupted call, after all its entries had arrived.
        let is_closed = |at: &&PartitionNames| closed[at.index as usize].standing == PartitionPhase::Closed;
        let waiting: Vec<_> = all.iter().filter(is_closed).cloned().collect();
        if !self.share(&closed, &waiting).await? {
            return Ok(MoveOutcome::Elsewhere);
        }
        let Some(moved) = self.move_entries(&all, &waiting).await? else { return Ok(MoveOutcome::Elsewhere) };
        self.list().await?;
        let mut closed_for = 0;
        for index in (0..self.most).rev() {
            let opened = self.reshape(index, RepartitionStep::Open).await?;
            if !opened.done {
                return Ok(MoveOutcome::Elsewhere);
            }
            closed_for = opened.closed_ms;
        }
        Ok(MoveOutcome::Done(moved, Duration::from_millis(closed_for)))
    }

    /// Closes a partition other than partition 0. Returns `None` if another call has progressed further.
    async fn close(&self, index: u32, until: Instant) -> Result<Option<PartitionMeta>> {
        loop {
            let found = self.reshape(index, RepartitionStep::Close).await?;
            match found.standing {
                PartitionPhase::Closed if found.id == Some(self.id) => return Ok(Some(found)),
                // An interrupted call has already opened it.
                PartitionPhase::Open | PartitionPhase::Paused if found.of == self.to => {
                    return Ok(Some(found));
                }
                _ if !self.is_first_ours().await? => return Ok(None),
                // A call that has ended left it closed: a call at work would have closed partition 0 under the same ID.
                PartitionPhase::Closed => {
                    let id = found.id.unwrap_or(self.id);
                    self.reshape_under(index, id, RepartitionStep::Tidy).await?;
                }
                PartitionPhase::Destroying => self.refuse_if_destroyed(&found)?,
                // This call has not paused it, or it was resumed since.
                _ => {
                    self.pause(index).await?;
                    self.wait_until_idle(index, until).await?;
                    if !self.is_first_ours().await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn is_first_ours(&self) -> Result<bool> {
        let first = self.reshape(0, RepartitionStep::Ask).await?;
        Ok(first.standing == PartitionPhase::Closed && first.id == Some(self.id))
    }

    /// Copies the pause and the trim count of old partitions to new ones, because a paused timer must not run in its new
    /// partition.
    async fn share(&self, closed: &[PartitionMeta], waiting: &[PartitionNames]) -> Result<bool> {
        for (from, shape) in
            (0..self.of).zip(closed).filter(|(_, shape)| shape.standing == PartitionPhase::Closed)
        {
            for at in waiting.iter().filter(|at| at.index != from && may_have_come(&self.at(from), at)) {
                let gives_up = from >= self.to && at.index == from % self.to;
                let trimmed = if gives_up { shape.trimmed } else { 0 };
                let paused = shape.paused.as_deref();
                if paused.is_none() && trimmed == 0 {
                    continue;
                }
                if !self.reshape(at.index, RepartitionStep::Share { paused, from, trimmed }).await?.done {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Moves entries of several partitions at the same time, because the topic is closed until the end of the move.
    async fn move_entries(
        &self,
        all: &[PartitionNames],
        waiting: &[PartitionNames],
    ) -> Result<Option<MovedCounts>> {
        let from: Vec<_> = (0..self.of).map(|index| self.at(index)).collect();
        let move_from = |from: PartitionNames| async move {
            let mover = PartitionMover { console: self.console, id: self.id, from, all, waiting };
            mover.run().await
        };
        let each = iter(from.into_iter().map(move_from)).buffer_unordered(MAX_CONCURRENT_PARTITIONS);
        let sum = |sum: Result<MovedCounts, EndedByAnother>, one: Result<MovedCounts, EndedByAnother>| async move {
            Ok(sum.and_then(|sum| {
                one.map(|one| MovedCounts {
                    timers: sum.timers + one.timers,
                    letters: sum.letters + one.letters,
                })
            }))
        };
        Ok(each.try_fold(Ok(MovedCounts::default()), sum).await?.ok())
    }

    /// Writes the new number to the registry, for other programs. If the server is full and refuses it, the topic still
    /// opens; the next program that uses it with the new number writes the entry.
    async fn list(&self) -> Result<()> {
        let entry = TopicEntry { partitions: self.to, ..self.config.entry() };
        let registry = names::registry(self.console.namespace());
        match self.console.retry_until_answered(|_| self.console.store().list(&registry, &entry)).await {
            Err(error) if matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Permission) => {
                warn!(topic = %self.config.name, %error, "the list of topics has the old number of partitions");
                Ok(())
            }
            other => other,
        }
    }

    /// Succeeds if another call has completed the change to the same number.
    async fn was_ended(&self) -> Result<()> {
        let found = self.reshape(0, RepartitionStep::Ask).await?;
        if found.standing != PartitionPhase::Closed && found.of == self.to {
            return Ok(());
        }
        let message = format!(
            "another call is changing the partitions of topic {}{REPARTITIONING_ADVICE}",
            self.config.name
        );
        Err(Error::new(ErrorKind::Repartitioning, message))
    }
}
