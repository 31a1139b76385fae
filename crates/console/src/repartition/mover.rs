//! One call on its way to another number of partitions.

use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt, iter};
use tokio::time::Instant;

use keylapse::inside::TopicConfig;

use super::carrier::{Carried, Carrier, Ended, may_have_come};
use super::{Repartitioned, refused_attached};
use crate::Console;
use crate::connection::{DESTROYING_ADVICE, REPARTITIONING_ADVICE};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::id::RepartitionId;
use crate::log::{info, warn};
use crate::wire::{Listing, PartitionNames, Repartitioning, Reshape, Shape, Standing, TopicEntry, names};

/// Between two looks for attempts that run.
const LOOK: Duration = Duration::from_millis(50);
/// States that one look reads at a time.
const STATES: usize = 1000;
/// Partitions that are emptied at the same time.
const AT_A_TIME: usize = 4;

/// One call.
pub(super) struct Mover<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    to: u32,
    /// How many partitions there are.
    of: u32,
    /// How many have been touched since the topic was made: those that it has given up are among them.
    most: u32,
    /// Under which it pauses partitions.
    own: RepartitionId,
    /// Under which they are closed: its own, or that of a call before it.
    id: RepartitionId,
}

/// How a step ends that was not refused.
enum Reached {
    /// All is done.
    Done(Carried, Duration),
    /// Another call is further, or has done it.
    Elsewhere,
}

impl<'a> Mover<'a> {
    pub(super) fn new(console: &'a Console, config: &'a TopicConfig, to: u32) -> Self {
        let own = RepartitionId::random();
        Self { console, config, to, of: to, most: to, own, id: own }
    }

    pub(super) async fn run(mut self, wait: Duration) -> Result<Repartitioned> {
        let found = self.ask().await?;
        (self.of, self.most) = (found.of, found.of.max(self.to).max(found.most));
        let mut done = Repartitioned { from: found.of, to: self.to, ..Repartitioned::default() };
        if found.standing != Standing::Closed && found.of == self.to {
            self.tidy().await?;
            self.list().await?;
            return Ok(done);
        }
        let until = Instant::now() + wait;
        if let Some(id) = found.id {
            self.id = id;
        } else {
            self.may().await?;
            let began = Instant::now();
            let closed = self.close_first(until).await;
            if closed.is_err() {
                self.resume_all().await;
            }
            closed?;
            done.waited = began.elapsed();
        }
        match self.move_all(until).await? {
            Reached::Done(carried, closed_for) => {
                (done.timers, done.dead_letters) = (carried.timers, carried.letters);
                done.closed_for = closed_for;
            }
            Reached::Elsewhere => self.was_ended().await?,
        }
        info!(topic = %self.config.name, ?done, "the topic has another number of partitions");
        Ok(done)
    }

    /// A partition by its index, as one of those that there are.
    fn at(&self, index: u32) -> PartitionNames {
        PartitionNames::new(self.console.namespace(), &self.config.name, index, self.of, false)
    }

    /// All that there will be.
    fn all_new(&self) -> Vec<PartitionNames> {
        let TopicConfig { name, .. } = self.config;
        let at = |index| PartitionNames::new(self.console.namespace(), name, index, self.to, false);
        (0..self.to).map(at).collect()
    }

    async fn reshape(&self, index: u32, how: Reshape<'_>) -> Result<Shape> {
        self.reshape_under(index, self.id, how).await
    }

    async fn reshape_under(&self, index: u32, id: RepartitionId, how: Reshape<'_>) -> Result<Shape> {
        let (at, change) = (self.at(index), Repartitioning { to: self.to, own: self.own, id });
        self.console.persist(|_| self.console.store().reshape(&at, change, how)).await
    }

    /// How partition 0 stands, if this call may go on.
    async fn ask(&self) -> Result<Shape> {
        let found = self.reshape(0, Reshape::Ask).await?;
        self.check(&found)?;
        Ok(found)
    }

    fn check(&self, found: &Shape) -> Result<()> {
        let (name, to) = (&self.config.name, self.to);
        if found.attached {
            return Err(refused_attached(name, to));
        }
        match found.standing {
            Standing::Absent => Err(Error::invalid(format!(
                "topic {name} is not in Redis: there is nothing to repartition; use it with `.partitions({to})`"
            ))),
            Standing::Closed if found.to != to => Err(self.other(found.to)),
            // With the number that there is, it is taken back.
            Standing::Paused if found.to != to && found.of != to => Err(self.other(found.to)),
            _ => self.refuse_if_destroyed(found),
        }
    }

    /// It is getting another number.
    fn other(&self, to: u32) -> Error {
        let message = format!(
            "topic {} is getting {to} partitions, and not {}: call Console::repartition with {to}, which ends that, \
             and then with this number",
            self.config.name, self.to
        );
        Error::new(ErrorKind::Repartitioning, message)
    }

    /// Asks for the rights that nothing but this needs, before anything is closed.
    async fn may(&self) -> Result<()> {
        let (store, at) = (self.console.store(), self.at(0));
        self.console.persist(|_| store.may_unlink(&at)).await?;
        for what in [Listing::Due, Listing::Records, Listing::Tombstones] {
            self.console.persist(|_| store.names_in(&at, what, 0, 1)).await?;
        }
        Ok(())
    }

    /// Takes back what calls have left that are over.
    async fn tidy(&self) -> Result<()> {
        for index in 0..self.most {
            let found = self.reshape(index, Reshape::Ask).await?;
            match (found.standing, found.id) {
                // Whoever is at work has closed partition 0 before.
                (Standing::Closed, Some(id)) if self.ask().await?.standing != Standing::Closed => {
                    self.reshape_under(index, id, Reshape::Tidy).await?;
                }
                (Standing::Paused, _) => drop(self.reshape(index, Reshape::Tidy).await?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Pauses all, waits until no attempt runs, and closes partition 0.
    async fn close_first(&mut self, until: Instant) -> Result<()> {
        loop {
            for index in 0..self.of {
                self.pause(index).await?;
            }
            for index in self.of..self.most {
                self.refuse_if_destroyed(&self.reshape(index, Reshape::Ask).await?)?;
            }
            for index in 0..self.of {
                self.until_nobody_runs(index, until).await?;
            }
            let closed = self.reshape(0, Reshape::Close).await?;
            self.check(&closed)?;
            match (closed.done, closed.standing) {
                (true, _) => {
                    self.id = closed.id.unwrap_or(self.id);
                    return Ok(());
                }
                (false, Standing::Open) => return Err(self.was_resumed()),
                // Another call has paused it since, for the same: who closes it first is as good as the other.
                (false, _) if Instant::now() < until => {}
                (false, _) => return Err(self.was_resumed()),
            }
        }
    }

    fn was_resumed(&self) -> Error {
        let message = format!(
            "topic {} was resumed, or its change taken back by another call, before it was closed: nothing has changed",
            self.config.name
        );
        Error::new(ErrorKind::InUse, message)
    }

    async fn pause(&self, index: u32) -> Result<()> {
        let found = self.reshape(index, Reshape::Pause).await?;
        if index == 0 { self.check(&found) } else { self.refuse_if_destroyed(&found) }
    }

    /// Before anything is closed: the one would wait for the end of the other.
    fn refuse_if_destroyed(&self, found: &Shape) -> Result<()> {
        if found.standing != Standing::Destroying {
            return Ok(());
        }
        let message = format!("topic {} is being destroyed{DESTROYING_ADVICE}", self.config.name);
        Err(Error::new(ErrorKind::Destroying, message))
    }

    async fn until_nobody_runs(&self, index: u32, until: Instant) -> Result<()> {
        let at = self.at(index);
        loop {
            let Some(running) = self.one_that_runs(&at).await? else { return Ok(()) };
            if Instant::now() >= until {
                let message = format!(
                    "attempts of topic {} still run, such as that of {}: let them end, or wait() for longer",
                    self.config.name,
                    Escaped(&running)
                );
                return Err(Error::new(ErrorKind::InUse, message));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn one_that_runs(&self, at: &PartitionNames) -> Result<Option<bytes::Bytes>> {
        let (store, mut cursor) = (self.console.store(), 0);
        loop {
            let page = |_| store.names_in(at, Listing::Running, cursor, STATES);
            let (next, mut running) = self.console.persist(page).await?;
            if let Some(key) = running.pop() {
                return Ok(Some(key));
            }
            cursor = next;
            if cursor == 0 {
                return Ok(None);
            }
        }
    }

    /// What this call has paused, and nobody else since.
    async fn resume_all(&self) {
        for index in 0..self.of {
            match self.reshape(index, Reshape::Resume).await {
                // It has been closed after all: the next call goes on.
                Ok(found) if index == 0 && found.standing == Standing::Closed => return,
                Ok(_) => {}
                Err(error) => {
                    warn!(topic = %self.config.name, partition = index, %error, "the partition may have stayed paused");
                }
            }
        }
    }

    /// Closes the others, moves what has to go elsewhere, and opens all.
    async fn move_all(&mut self, until: Instant) -> Result<Reached> {
        let mut closed = vec![self.reshape(0, Reshape::Close).await?];
        for index in 1..self.most {
            let Some(found) = self.close(index, until).await? else { return Ok(Reached::Elsewhere) };
            closed.push(found);
        }
        let all = self.all_new();
        // What was opened by a call that has died since had its share before.
        let is_closed = |at: &&PartitionNames| closed[at.index as usize].standing == Standing::Closed;
        let waiting: Vec<_> = all.iter().filter(is_closed).cloned().collect();
        if !self.share(&closed, &waiting).await? {
            return Ok(Reached::Elsewhere);
        }
        let Some(carried) = self.carry(&all, &waiting).await? else { return Ok(Reached::Elsewhere) };
        self.list().await?;
        let mut closed_for = 0;
        for index in (0..self.most).rev() {
            let opened = self.reshape(index, Reshape::Open).await?;
            if !opened.done {
                return Ok(Reached::Elsewhere);
            }
            closed_for = opened.closed_ms;
        }
        Ok(Reached::Done(carried, Duration::from_millis(closed_for)))
    }

    /// Closes a partition beside partition 0; none, if another call is further.
    async fn close(&self, index: u32, until: Instant) -> Result<Option<Shape>> {
        loop {
            let found = self.reshape(index, Reshape::Close).await?;
            match found.standing {
                Standing::Closed if found.id == Some(self.id) => return Ok(Some(found)),
                // Opened already, by a call that has died since.
                Standing::Open | Standing::Paused if found.of == self.to => return Ok(Some(found)),
                _ if !self.is_first_ours().await? => return Ok(None),
                // Left by a call that is over: whoever is at work has closed partition 0 before.
                Standing::Closed => {
                    let id = found.id.unwrap_or(self.id);
                    self.reshape_under(index, id, Reshape::Tidy).await?;
                }
                Standing::Destroying => self.refuse_if_destroyed(&found)?,
                // It was not paused by this call, or resumed since.
                _ => {
                    self.pause(index).await?;
                    self.until_nobody_runs(index, until).await?;
                    if !self.is_first_ours().await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn is_first_ours(&self) -> Result<bool> {
        let first = self.reshape(0, Reshape::Ask).await?;
        Ok(first.standing == Standing::Closed && first.id == Some(self.id))
    }

    /// What `meta` says goes along: a timer that was paused must not run where it comes.
    async fn share(&self, closed: &[Shape], waiting: &[PartitionNames]) -> Result<bool> {
        for (from, shape) in (0..self.of).zip(closed).filter(|(_, shape)| shape.standing == Standing::Closed)
        {
            for at in waiting.iter().filter(|at| at.index != from && may_have_come(&self.at(from), at)) {
                let gives_up = from >= self.to && at.index == from % self.to;
                let trimmed = if gives_up { shape.trimmed } else { 0 };
                let paused = shape.paused.as_deref();
                if paused.is_none() && trimmed == 0 {
                    continue;
                }
                if !self.reshape(at.index, Reshape::Share { paused, from, trimmed }).await?.done {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Several partitions at a time: that is how long the topic is closed.
    async fn carry(&self, all: &[PartitionNames], waiting: &[PartitionNames]) -> Result<Option<Carried>> {
        let from: Vec<_> = (0..self.of).map(|index| self.at(index)).collect();
        let carry = |from: PartitionNames| async move {
            let carrier = Carrier { console: self.console, id: self.id, from, all, waiting };
            carrier.carry_all().await
        };
        let each = iter(from.into_iter().map(carry)).buffer_unordered(AT_A_TIME);
        let sum = |sum: Result<Carried, Ended>, one: Result<Carried, Ended>| async move {
            Ok(sum.and_then(|sum| {
                one.map(|one| Carried { timers: sum.timers + one.timers, letters: sum.letters + one.letters })
            }))
        };
        Ok(each.try_fold(Ok(Carried::default()), sum).await?.ok())
    }

    /// Tells other programs. A server that is full takes no more lines, and must not stay closed for that: whoever uses
    /// the topic next with the new number tells them.
    async fn list(&self) -> Result<()> {
        let entry = TopicEntry { partitions: self.to, ..self.config.entry() };
        let registry = names::registry(self.console.namespace());
        match self.console.persist(|_| self.console.store().list(&registry, &entry)).await {
            Err(error) if matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Permission) => {
                warn!(topic = %self.config.name, %error, "the list of topics says the old number of partitions");
                Ok(())
            }
            other => other,
        }
    }

    /// A partition is open that this call had closed: has another ended its work?
    async fn was_ended(&self) -> Result<()> {
        let found = self.reshape(0, Reshape::Ask).await?;
        if found.standing != Standing::Closed && found.of == self.to {
            return Ok(());
        }
        let message = format!(
            "another call is at work on the partitions of topic {}{REPARTITIONING_ADVICE}",
            self.config.name
        );
        Err(Error::new(ErrorKind::Repartitioning, message))
    }
}
