//! Destroys topics.
//!
//! A call closes all partitions, partition 0 first; then it empties each; then it deletes each `meta`, that of partition 0
//! last. From the first step to the last, the `meta` of partition 0 shows that the topic is being destroyed, and the ID of
//! a forced call. A program that finds a partition missing reads partition 0 first. A producer that has read it before can
//! create a partition late; its timers are complete and belong to the topic's next life. If a call is interrupted, another
//! call repeats all steps. The model in `tests/protocol/src/destroying.rs` checks the order, with crashes at every step.

use std::future::IntoFuture;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, iter};

use keylapse::Topic;
use keylapse::inside::{TopicConfig, TopicInside as _};

use crate::error::{Error, ErrorKind, Result};
use crate::id::DestroyId;
use crate::log::{info, warn};
use crate::wire::{CloseMode, DestroyStep, Holdings, PartitionNames, listeners};
use crate::{Console, counted};

/// How many timers one call removes, and how many it returns for the next call.
const TIMERS_PER_CALL: usize = 500;
/// How many marker keys are deleted at the same time.
const MAX_CONCURRENT_DELETES: usize = 100;

/// A request to destroy a topic. Set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is destroyed until the request is awaited"]
pub struct DestroyRequest<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    forced: bool,
}

/// The counts of a topic at the time when it was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed {
    /// Timers. An arming that follows a running attempt of its key does not count.
    pub timers: u64,
    /// Tracked keys. The keys themselves stay.
    pub tracked: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Marker keys that this call has deleted.
    pub marker_keys: u64,
}

impl Destroyed {
    fn add(&mut self, found: &Holdings) {
        self.timers += found.timers;
        self.tracked += found.tracked;
        self.dead_letters += found.letters;
    }
}

impl Console {
    /// Deletes a topic with its timers, marker keys, dead letters and tracked keys. Keys that other programs have written
    /// stay. The next program that uses the topic creates it again.
    ///
    /// The request fails while a listener serves the topic, or while it has timers or tracked keys, unless it is
    /// [`forced`](DestroyRequest::forced). Dead letters do not prevent it; [`Destroyed::dead_letters`] counts them.
    ///
    /// While a topic is being destroyed, all other calls for it fail with [`Destroying`](ErrorKind::Destroying) once the
    /// client's [`retry_for`](keylapse::Client::retry_for) has passed. An arm that was executed before either prevents the
    /// destruction, or its timer is deleted as a whole.
    ///
    /// The work is done in steps of at most 500 timers, and the server answers other clients between them. If a call is
    /// interrupted, the topic stays closed, and another call continues; a forced destruction continues as forced. The
    /// topic's number of partitions must be the registered one.
    ///
    /// ```no_run
    /// # async fn destroy(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let orders = keylapse::Topic::<u64>::new("order:unpaid:{id}")?;
    /// let gone = console.destroy(&orders).await?;
    /// println!("deleted {} dead letters", gone.dead_letters);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`InUse`](ErrorKind::InUse) if a listener serves the topic, or if it has timers or tracked keys;
    /// - an error if the topic is of another kind or has another number of partitions;
    /// - an error if the server cannot be reached or refuses a command.
    ///
    /// After an error of kind [`Unknown`](ErrorKind::Unknown), or after an interruption, call it again.
    pub fn destroy<'a, T>(&'a self, topic: &'a Topic<T>) -> DestroyRequest<'a> {
        DestroyRequest { console: self, config: topic.config(), forced: false }
    }

    /// Forgets an attached topic, so that another topic can use its name. The keys themselves stay, but their expiries have
    /// no effect any more. A program that attaches to the keys again starts without any history.
    ///
    /// The request fails while a listener serves the topic, while lapses wait or run, and while it has dead letters;
    /// [`destroy`](Self::destroy) deletes these, too. The work is done in small steps, however many keys are tracked. If a
    /// call is interrupted, the topic stays closed, and another call continues.
    ///
    /// ```no_run
    /// # async fn detach(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let orders = keylapse::Attached::new(keylapse::Topic::<u64>::new("order:unpaid:{id}")?);
    /// let gone = console.detach(orders.topic()).await?;
    /// println!("forgot {} keys", gone.tracked);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`destroy`](Self::destroy). Returns an error of kind [`Invalid`](ErrorKind::Invalid) if the
    /// topic is not attached; [`Attached::topic`](keylapse::Attached::topic) returns an attached one.
    pub async fn detach<T>(&self, topic: &Topic<T>) -> Result<Destroyed> {
        topic.config().policy_for("detach")?;
        let request = DestroyRequest { console: self, config: topic.config(), forced: false };
        request.close_as(CloseMode::Detached).await
    }
}

impl DestroyRequest<'_> {
    /// Allows the destruction of a topic that listeners serve or that has timers. Running attempts receive a request to stop
    /// and cannot settle. A listener that continues to run waits, and creates the topic again afterwards.
    pub fn forced(mut self) -> Self {
        self.forced = true;
        self
    }

    async fn send(self) -> Result<Destroyed> {
        self.close_as(CloseMode::Empty).await
    }

    async fn close_as(self, empty: CloseMode) -> Result<Destroyed> {
        let Self { console, config, forced } = self;
        config.check(console.namespace())?;
        let partitions = config.all_partitions(console.namespace());
        let forced = forced.then(DestroyId::random);
        Destroyer { console, config, partitions, empty, forced }.run().await
    }
}

impl<'a> IntoFuture for DestroyRequest<'a> {
    type Output = Result<Destroyed>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// One running call.
struct Destroyer<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    partitions: Vec<PartitionNames>,
    /// The mode in which partitions are closed without force.
    empty: CloseMode,
    /// The ID of the forced destruction: this call's own, or that of an earlier call which this one continues.
    forced: Option<DestroyId>,
}

impl Destroyer<'_> {
    async fn run(mut self) -> Result<Destroyed> {
        let (store, at) = (self.console.store(), &self.partitions[0]);
        self.console.retry_until_answered(|_| store.may_unlink(at)).await?;
        let closed = self.close_all().await;
        let is_moved = |error: &Error| error.kind() == ErrorKind::Repartitioning;
        if closed.as_ref().is_err_and(|error| !is_moved(error)) && self.forced.is_none() {
            self.open_all().await;
        }
        let mut all = closed?;
        for at in &self.partitions {
            all.marker_keys += self.empty(at).await?;
        }
        self.console.retry_until_answered(|_| store.unlist(&self.partitions[0])).await?;
        for at in self.partitions.iter().rev() {
            self.end(at).await?;
        }
        info!(topic = %self.config.name, ?all, "the topic is destroyed");
        Ok(all)
    }

    /// Checks that the topic may be destroyed, before the first change.
    async fn look(&mut self) -> Result<()> {
        let (mut all, mut first, mut closed) = (Destroyed::default(), None, Vec::new());
        let mut left = true;
        while left {
            (all, first, closed) = (Destroyed::default(), None, Vec::new());
            let mut most = 0;
            // Partition 0 is read last. Its `forced` is set before and deleted after that of the other partitions. If
            // another partition has a different one, the call that set it has ended.
            for at in self.partitions.iter().rev() {
                let found = self.close(at, CloseMode::Ask).await?;
                all.add(&found);
                (first, most) = (found.forced, found.most);
                closed.extend(found.forced.map(|id| (at.clone(), id)));
            }
            left = self.add_former_partitions(most);
        }
        for (at, id) in closed.into_iter().filter(|(_, id)| Some(*id) != first) {
            self.close(&at, CloseMode::Open(Some(id))).await?;
        }
        self.forced = first.or(self.forced);
        if self.forced.is_none() {
            self.refuse_if_served().await?;
            self.refuse_if_armed(&all)?;
        }
        Ok(())
    }

    /// Adds the partitions that the topic had before it was repartitioned. Returns whether there are any.
    fn add_former_partitions(&mut self, most: u32) -> bool {
        let there = self.partitions.len();
        for index in u32::try_from(there).unwrap_or(most)..most {
            let (space, name) = (self.console.namespace(), &self.config.name);
            let attached = self.config.attach.is_some();
            self.partitions.push(PartitionNames::new(space, name, index, self.config.partitions, attached));
        }
        there < self.partitions.len()
    }

    async fn refuse_if_served(&self) -> Result<()> {
        let (store, name) = (self.console.store(), &self.config.name);
        let hash = listeners(self.console.namespace());
        let all = self.console.retry_until_answered(|_| store.listeners(&hash)).await?;
        let Some(one) = all.iter().find(|listener| listener.serves(name)) else { return Ok(()) };
        Err(Error::new(
            ErrorKind::InUse,
            format!(
                "topic {name} is served by listener {} on {} (process {}): stop it, or destroy the topic forced(); \
                 a listener that was killed counts for 15 s",
                one.id, one.host, one.pid
            ),
        ))
    }

    fn refuse_if_armed(&self, held: &Destroyed) -> Result<()> {
        let detaches = self.empty == CloseMode::Detached;
        let more = if detaches { (held.dead_letters, "dead letter") } else { (held.tracked, "tracked key") };
        let there: Vec<_> =
            [(held.timers, "timer"), more].into_iter().filter(|(count, _)| *count > 0).collect();
        if there.is_empty() {
            return Ok(());
        }
        let name = &self.config.name;
        let held = there.iter().map(|(count, what)| counted(*count, what)).collect::<Vec<_>>().join(" and ");
        let instead = if detaches { "replay or drop the dead letters" } else { "cancel them" };
        let message =
            format!("topic {name} holds {held}: let them end or {instead}, or destroy the topic forced()");
        Err(Error::new(ErrorKind::InUse, message))
    }

    async fn close(&self, at: &PartitionNames, how: CloseMode) -> Result<Holdings> {
        self.console.retry_until_answered(|_| self.console.store().close(at, how)).await
    }

    /// Closes all partitions, partition 0 first.
    async fn close_all(&mut self) -> Result<Destroyed> {
        self.look().await?;
        let mut all = Destroyed::default();
        for at in &self.partitions {
            let found = self.close(at, self.forced.map_or(self.empty, CloseMode::ByForce)).await?;
            all.add(&found);
            if !found.closed {
                self.refuse_if_armed(&all)?;
            }
            if at.index == 0 {
                self.forced = found.forced;
            }
        }
        Ok(all)
    }

    /// Reopens the partitions that this call, or an interrupted call, has closed without force.
    async fn open_all(&self) {
        for at in &self.partitions {
            if let Err(error) = self.close(at, CloseMode::Open(None)).await {
                warn!(topic = %self.config.name, partition = at.index, %error, "the partition may have stayed closed");
            }
        }
    }

    /// Removes the timers of a partition, page by page, each after its marker key. Returns the number of deleted marker
    /// keys.
    async fn empty(&self, at: &PartitionNames) -> Result<u64> {
        let (mut page, mut markers) = (Vec::new(), 0);
        loop {
            let step = self
                .console
                .retry_until_answered(|_| self.console.store().destroy(at, &page, TIMERS_PER_CALL))
                .await?;
            match step {
                DestroyStep::Closed(next) if !next.is_empty() => {
                    markers += self.delete_markers(&next).await?;
                    page = next.into_iter().map(|(key, _)| key).collect();
                }
                DestroyStep::Closed(_) | DestroyStep::Gone => return Ok(markers),
                DestroyStep::Open => return self.was_opened().await.map(|()| markers),
            }
        }
    }

    /// Deletes the marker keys of waiting timers, except keys that another program has written. A marker key that stays has
    /// no effect when it expires.
    async fn delete_markers(&self, timers: &[(Bytes, Option<u64>)]) -> Result<u64> {
        if !self.config.marker_keys {
            return Ok(0);
        }
        let delete = async |(key, deadline): (Bytes, Option<u64>)| match deadline {
            None => Ok(false),
            Some(at) => {
                self.console.retry_until_answered(|_| self.console.store().delete_marker(&key, at)).await
            }
        };
        let mut deleted = iter(timers.iter().cloned().map(delete)).buffer_unordered(MAX_CONCURRENT_DELETES);
        let (mut count, mut refused) = (0, None);
        while let Some(answer) = deleted.next().await {
            match answer {
                Ok(was_there) => count += u64::from(was_there),
                Err(error) if error.is_transient() || error.is_unknown() => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            warn!(topic = %self.config.name, %error, "marker keys stay until they expire");
        }
        Ok(count)
    }

    /// Ends an emptied partition.
    async fn end(&self, at: &PartitionNames) -> Result<()> {
        let store = self.console.store();
        let end = |repeat| async move { Ok((store.end(at).await?, repeat)) };
        match self.console.retry_until_answered(end).await? {
            (DestroyStep::Open, false) => self.was_opened().await,
            // An earlier answer was lost or another call was faster, and a program has created the partition again.
            _ => Ok(()),
        }
    }

    /// Ends the call if a closed partition was reopened. Nobody reopens a partition that was closed by force: another call
    /// has deleted it, and a program has created it again.
    async fn was_opened(&self) -> Result<()> {
        if self.forced.is_some() {
            return Ok(());
        }
        self.open_all().await;
        let message = format!(
            "topic {} was reopened while it was being destroyed: another call has destroyed it, or was refused",
            self.config.name
        );
        Err(Error::new(ErrorKind::InUse, message))
    }
}
