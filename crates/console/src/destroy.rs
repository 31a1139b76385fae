//! The end of a topic.
//!
//! All partitions are closed, 0 first; then each is emptied; then each is ended, 0 last. So the `meta` of partition 0
//! says from the first moment to the last that the topic is being destroyed, and under which id by force; and whoever
//! finds a partition missing asks it first. A producer that has asked before may make one late: what it arms there is
//! whole, and belongs to the topic that comes next. A call that is made after one that has died does the same once
//! more. The order was tried out in `tests/protocol/src/destroying.rs`, with everybody dying everywhere.

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
use crate::wire::{Close, DestroyStep, Holdings, PartitionNames, listeners};
use crate::{Console, counted};

/// Timers that a call removes; it names as many.
const PAGE: usize = 500;
/// Trigger keys that are deleted at the same time.
const AT_A_TIME: usize = 100;

/// The end of a topic, about to come: set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is destroyed until the request is awaited"]
pub struct DestroyRequest<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    forced: bool,
}

/// What was removed with a topic: what it held when it was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed {
    /// Timers, without those that were kept for after a running attempt of the same key.
    pub timers: u64,
    /// Keys that other programs write, which were enrolled. The keys themselves are left alone.
    pub enrolled: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Trigger keys that this call has deleted.
    pub trigger_keys: u64,
}

impl Destroyed {
    fn add(&mut self, found: &Holdings) {
        self.timers += found.timers;
        self.enrolled += found.enrolled;
        self.dead_letters += found.letters;
    }
}

impl Console {
    /// Removes a topic with all that it holds: timers and their trigger keys, dead letters, and what is remembered of
    /// keys that other programs write, which themselves are never touched. Whoever uses the topic afterwards makes it
    /// anew.
    ///
    /// Refused with [`InUse`](ErrorKind::InUse) while a listener serves the topic or anything is armed or enrolled,
    /// unless [`forced`](DestroyRequest::forced). Dead letters are no reason to refuse; the answer says how many there
    /// were.
    ///
    /// From its beginning to its end nobody can do anything with the topic. An arm is either refused with
    /// [`Destroying`](ErrorKind::Destroying), which it waits out for as long as the client's
    /// [`patience`](keylapse::Client::patience) allows, or it was before, and then it keeps the topic from being
    /// destroyed or goes with it. It is never half there.
    ///
    /// The work is done in steps of at most 1,000 timers, between which the server serves others. Where it is
    /// interrupted, the topic stays closed, and another call goes on; what was begun by force goes on by force. The
    /// number of partitions must be that of the topic.
    ///
    /// ```no_run
    /// # async fn destroy(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let orders = keylapse::Topic::<u64>::new("order:unpaid:{id}")?;
    /// let gone = console.destroy(&orders).await?;
    /// println!("{} dead letters are gone", gone.dead_letters);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the topic is in use, is of another kind or has another number of partitions, or when the server cannot be
    /// reached or refuses. After an error of kind [`Unknown`](ErrorKind::Unknown), or one in the middle, call it again.
    pub fn destroy<'a, T>(&'a self, topic: &'a Topic<T>) -> DestroyRequest<'a> {
        DestroyRequest { console: self, config: topic.config(), forced: false }
    }

    /// Forgets an attached topic, so that its name is free: for a managed topic, or for none. What is remembered of its
    /// keys goes, and their expiries are nobody's any more; the keys themselves are left alone. Attaching to them anew
    /// begins anew.
    ///
    /// Refused with [`InUse`](ErrorKind::InUse) while a listener serves the topic, while lapses wait or run, and while
    /// there are dead letters: [`destroy`](Self::destroy) takes these along. However many keys are remembered, the server
    /// is not held up. Where it is interrupted, the topic stays closed, and another call goes on.
    ///
    /// ```no_run
    /// # async fn detach(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let orders = keylapse::Attached::new(keylapse::Topic::<u64>::new("order:unpaid:{id}")?);
    /// let gone = console.detach(orders.topic()).await?;
    /// println!("{} keys are forgotten", gone.enrolled);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`destroy`](Self::destroy). [`Invalid`](ErrorKind::Invalid) if the topic is not an attached one: see
    /// [`Attached::topic`](keylapse::Attached::topic).
    pub async fn detach<T>(&self, topic: &Topic<T>) -> Result<Destroyed> {
        topic.config().policy_for("detach")?;
        let request = DestroyRequest { console: self, config: topic.config(), forced: false };
        request.close_as(Close::Detached).await
    }
}

impl DestroyRequest<'_> {
    /// Whoever listens, and whatever is armed. Attempts that run are told to stop, and settle nothing; a listener that
    /// stays waits, and makes the topic anew when it is gone.
    pub fn forced(mut self) -> Self {
        self.forced = true;
        self
    }

    async fn send(self) -> Result<Destroyed> {
        self.close_as(Close::Empty).await
    }

    /// Goes on if nothing is there but what this lets go.
    async fn close_as(self, empty: Close) -> Result<Destroyed> {
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

/// One call on its way.
struct Destroyer<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    partitions: Vec<PartitionNames>,
    /// How a partition is closed without force.
    empty: Close,
    /// Under which id it goes by force: its own, or that of a call before it.
    forced: Option<DestroyId>,
}

impl Destroyer<'_> {
    async fn run(mut self) -> Result<Destroyed> {
        let (store, at) = (self.console.store(), &self.partitions[0]);
        self.console.persist(|_| store.may_unlink(at)).await?;
        let closed = self.close_all().await;
        let is_moved = |error: &Error| error.kind() == ErrorKind::Repartitioning;
        if closed.as_ref().is_err_and(|error| !is_moved(error)) && self.forced.is_none() {
            self.open_all().await;
        }
        let mut all = closed?;
        for at in &self.partitions {
            all.trigger_keys += self.empty(at).await?;
        }
        self.console.persist(|_| store.unlist(&self.partitions[0])).await?;
        for at in self.partitions.iter().rev() {
            self.end(at).await?;
        }
        info!(topic = %self.config.name, ?all, "the topic is destroyed");
        Ok(all)
    }

    /// Whether it may be destroyed, before anything is done about it.
    async fn look(&mut self) -> Result<()> {
        let (mut all, mut first, mut closed) = (Destroyed::default(), None, Vec::new());
        let mut left = true;
        while left {
            (all, first, closed) = (Destroyed::default(), None, Vec::new());
            let mut most = 0;
            // Partition 0 comes last. Its `forced` stands there before that of the others, and goes after it: what
            // another has by now is of a call that is over, and nobody else's.
            for at in self.partitions.iter().rev() {
                let found = self.close(at, Close::Ask).await?;
                all.add(&found);
                (first, most) = (found.forced, found.most);
                closed.extend(found.forced.map(|id| (at.clone(), id)));
            }
            left = self.add_given_up(most);
        }
        for (at, id) in closed.into_iter().filter(|(_, id)| Some(*id) != first) {
            self.close(&at, Close::Open(Some(id))).await?;
        }
        self.forced = first.or(self.forced);
        if self.forced.is_none() {
            self.refuse_if_served().await?;
            self.refuse_if_armed(&all)?;
        }
        Ok(())
    }

    /// Partitions that the topic has had before it was repartitioned go with it; whether there are any.
    fn add_given_up(&mut self, most: u32) -> bool {
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
        let all = self.console.persist(|_| store.listeners(&hash)).await?;
        let Some(one) = all.iter().find(|listener| listener.serves(name)) else { return Ok(()) };
        Err(Error::new(
            ErrorKind::InUse,
            format!(
                "topic {name} is served by listener {} on {} (process {}): stop it, or destroy the topic forced(); \
                 one that was killed counts for 15 s",
                one.id, one.host, one.pid
            ),
        ))
    }

    fn refuse_if_armed(&self, held: &Destroyed) -> Result<()> {
        let detaches = self.empty == Close::Detached;
        let more =
            if detaches { (held.dead_letters, "dead letter") } else { (held.enrolled, "enrolled key") };
        let there: Vec<_> =
            [(held.timers, "timer"), more].into_iter().filter(|(count, _)| *count > 0).collect();
        if there.is_empty() {
            return Ok(());
        }
        let name = &self.config.name;
        let held = there.iter().map(|(count, what)| counted(*count, what)).collect::<Vec<_>>().join(" and ");
        let instead = if detaches { "replay or drop letters" } else { "cancel them" };
        let message =
            format!("topic {name} holds {held}: let them end or {instead}, or destroy the topic forced()");
        Err(Error::new(ErrorKind::InUse, message))
    }

    async fn close(&self, at: &PartitionNames, how: Close) -> Result<Holdings> {
        self.console.persist(|_| self.console.store().close(at, how)).await
    }

    /// Closes all partitions, 0 first.
    async fn close_all(&mut self) -> Result<Destroyed> {
        self.look().await?;
        let mut all = Destroyed::default();
        for at in &self.partitions {
            let found = self.close(at, self.forced.map_or(self.empty, Close::ByForce)).await?;
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

    /// What was closed without force is opened again, also what a call has left that has died.
    async fn open_all(&self) {
        for at in &self.partitions {
            if let Err(error) = self.close(at, Close::Open(None)).await {
                warn!(topic = %self.config.name, partition = at.index, %error, "the partition may have stayed closed");
            }
        }
    }

    /// Removes the timers of a partition, page by page, each after its trigger key. How many of these went.
    async fn empty(&self, at: &PartitionNames) -> Result<u64> {
        let (mut page, mut triggers) = (Vec::new(), 0);
        loop {
            let step = self.console.persist(|_| self.console.store().destroy(at, &page, PAGE)).await?;
            match step {
                DestroyStep::Closed(next) if !next.is_empty() => {
                    triggers += self.delete_triggers(&next).await?;
                    page = next.into_iter().map(|(key, _)| key).collect();
                }
                DestroyStep::Closed(_) | DestroyStep::Gone => return Ok(triggers),
                DestroyStep::Open => return self.was_opened().await.map(|()| triggers),
            }
        }
    }

    /// Deletes the trigger keys of timers that wait, where they are ours. One that stays behind expires for nothing.
    async fn delete_triggers(&self, timers: &[(Bytes, Option<u64>)]) -> Result<u64> {
        if !self.config.triggers {
            return Ok(0);
        }
        let delete = async |(key, deadline): (Bytes, Option<u64>)| match deadline {
            None => Ok(false),
            Some(at) => self.console.persist(|_| self.console.store().drop_trigger(&key, at)).await,
        };
        let mut deleted = iter(timers.iter().cloned().map(delete)).buffer_unordered(AT_A_TIME);
        let (mut count, mut refused) = (0, None);
        while let Some(answer) = deleted.next().await {
            match answer {
                Ok(was_there) => count += u64::from(was_there),
                Err(error) if error.is_transient() || error.is_unknown() => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            warn!(topic = %self.config.name, %error, "trigger keys stay until they expire");
        }
        Ok(count)
    }

    /// Ends an emptied partition.
    async fn end(&self, at: &PartitionNames) -> Result<()> {
        let store = self.console.store();
        let end = |repeat| async move { Ok((store.end(at).await?, repeat)) };
        match self.console.persist(end).await? {
            (DestroyStep::Open, false) => self.was_opened().await,
            // Ended before, by this call or another, and made anew.
            _ => Ok(()),
        }
    }

    /// A partition is open that was closed. What goes by force is opened by nobody: another call has ended it, and
    /// somebody has made it anew.
    async fn was_opened(&self) -> Result<()> {
        if self.forced.is_some() {
            return Ok(());
        }
        self.open_all().await;
        let message = format!(
            "topic {} was opened again while it was being destroyed: another call has ended it, or was refused",
            self.config.name
        );
        Err(Error::new(ErrorKind::InUse, message))
    }
}
