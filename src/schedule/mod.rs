//! The producers' door: arm, cancel, look, pause, and the dead letters.

mod bulk;
mod key;
mod lane;
mod letters;
mod timer;

pub use self::bulk::{BulkRequest, NewArm};
pub use self::key::{Key, KeyArgs};
pub use self::letters::{DeadLetter, DeadLetters, Undecoded};
pub use self::timer::{ArmRequest, Timer, TimerPhase};

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::client::Client;
use crate::connection::persist;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::schedule::lane::Lane;
use crate::time::{ms_ceil, system_time};
use crate::topic::{Topic, TopicConfig};
use crate::trace::Inject;
use crate::wire::names::forwarded;
use crate::wire::{AttachedHoldings, Forwarded, Forwarding, JournalBounds, ListenerReport, listeners};

/// Arms, cancels and looks at timers. Cheap to clone; clones share a connection.
///
/// Each call is repeated, safely, while its answer is lost or the server is
/// away, until the client's [`patience`](Client::patience) (5 s) runs out.
///
/// It can be used from several tokio runtimes with timers. Connections of all schedules live on one thread of keylapse's
/// own, so that a runtime that is blocked, or that nobody drives, holds up no call made from another.
///
/// ```no_run
/// use std::time::Duration;
/// use keylapse::{Schedule, Topic};
///
/// # async fn produce() -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// let schedule = Schedule::connect("redis://127.0.0.1/").await?;
/// schedule.arm(&orders, "42", Duration::from_secs(900), &1999).await?;
/// schedule.cancel(&orders, "42").await?; // it was paid
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    client: Client,
    /// The topics that were used.
    known: Arc<Mutex<HashMap<String, Known>>>,
    inject: Option<Inject>,
}

/// A topic as it was agreed on with Redis: all values of one name share it.
#[derive(Clone, Debug)]
struct Known {
    lanes: Arc<[Lane]>,
    attached: bool,
    /// How much is to be kept of what ends, as a program has said last.
    journal: Option<JournalBounds>,
}

impl Known {
    /// Returns whether this value of the topic says nothing else.
    fn covers(&self, config: &TopicConfig) -> bool {
        self.lanes.len() == config.partitions as usize
            && self.attached == config.attach.is_some()
            && (config.journal.is_none() || config.journal == self.journal)
    }
}

/// What there is of an attached topic in Redis: see [`Schedule::attached_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedCounts {
    /// Keys that are enrolled.
    pub enrolled: u64,
    /// When the next of them is looked at: just after its deadline, or a quarter of a second before that for its value.
    pub next_check: Option<SystemTime>,
    /// Keys whose expiries are remembered, so that each fires once. One that is on both pages counts twice.
    pub histories: u64,
    /// Lapses that wait, run, or wait for a retry, without those that are kept behind another of the same key.
    pub lapses: u64,
}

impl Schedule {
    /// Connects to a server, given by its URL or as a [`Client`].
    ///
    /// A server that is away is not waited for: this says at once whether it can be
    /// used. A program that is to start without it takes [`new`](Self::new), which asks
    /// nothing: each call then waits as long as the client's [`patience`](Client::patience)
    /// allows. A [`Listener`](crate::Listener) waits for as long as it takes.
    ///
    /// # Errors
    /// When the URL cannot be read, or the server cannot be reached or refuses
    /// the user.
    pub async fn connect<C>(client: C) -> Result<Self>
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        let schedule = Self::new(client.try_into().map_err(Into::into)?);
        schedule.client.check()?;
        schedule.client.store.reach(&schedule.client.namespace).await?;
        Ok(schedule)
    }

    /// A schedule that connects when it is first used.
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default(), inject: None }
    }

    /// Carries the context of the present span to the handlers of what this schedule arms. The function is asked at
    /// each arm, and answers with a W3C `traceparent`, or nothing; it costs 26 bytes for each timer.
    ///
    /// A listener continues the trace: see [`ListenerBuilder::trace`](crate::ListenerBuilder::trace).
    #[must_use]
    pub fn trace(self, traceparent: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { inject: Some(Inject(Arc::new(traceparent))), ..self }
    }

    /// Makes a call until it is answered or refused, or the client's patience has run out.
    pub(crate) async fn persist<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnMut(bool) -> F,
    ) -> Result<T> {
        persist(self.client.patience, call).await
    }

    /// The same of a read of so much at most. Its answer may be too large for the server to send, so each repeat of an
    /// unanswered one asks for a quarter.
    async fn persist_read<T, F: Future<Output = Result<T>>>(
        &self,
        mut most: usize,
        mut read: impl FnMut(usize) -> F,
    ) -> Result<T> {
        let read = |repeat| {
            most = if repeat { most.div_ceil(4) } else { most };
            read(most)
        };
        self.persist(read).await
    }

    /// Pauses a topic: timers are kept and can be armed, but none is given out
    /// until [`resume`](Schedule::resume). Attempts that are running go on.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses. Some partitions may be
    /// paused then; the call can be repeated.
    pub async fn pause<T>(&self, topic: &Topic<T>, reason: &str) -> Result<()> {
        let reason = if reason.is_empty() { "paused" } else { crate::escape::cut(reason, 200) };
        self.set_paused(&topic.config, Some(reason)).await
    }

    /// Resumes a paused topic; what has become due runs at once.
    ///
    /// # Errors
    /// As for [`pause`](Schedule::pause).
    pub async fn resume<T>(&self, topic: &Topic<T>) -> Result<()> {
        self.set_paused(&topic.config, None).await
    }

    async fn set_paused(&self, config: &TopicConfig, reason: Option<&str>) -> Result<()> {
        for lane in self.partitions(config).await?.iter() {
            self.persist(|_| self.client.store.pause(lane.at(), reason)).await?;
        }
        Ok(())
    }

    /// What each listener of this namespace and database said of itself last. Each reports every five seconds, and
    /// takes its report away when it stops; one of which nothing was heard for 15 s is not among them.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn listeners(&self) -> Result<Vec<ListenerReport>> {
        let hash = listeners(&self.client.namespace);
        self.persist(|_| self.client.store.listeners(&hash)).await
    }

    /// Who serves a topic: the [listeners](Self::listeners) that have it.
    ///
    /// ```no_run
    /// # async fn serves(schedule: keylapse::Schedule, orders: keylapse::Topic<u64>) -> keylapse::Result<()> {
    /// for listener in schedule.serving(&orders).await? {
    ///     println!("{} (process {}) has run {:?}", listener.host, listener.pid, listener.topics["order"].counts);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`listeners`](Self::listeners).
    pub async fn serving<T>(&self, topic: &Topic<T>) -> Result<Vec<ListenerReport>> {
        let mut all = self.listeners().await?;
        all.retain(|listener| listener.serves(topic.name()));
        Ok(all)
    }

    /// What there is of an attached topic now, over all partitions. It costs the server some microseconds for each
    /// partition, however many keys are enrolled, and writes nothing.
    ///
    /// ```no_run
    /// # async fn count(schedule: keylapse::Schedule) -> keylapse::Result<()> {
    /// let orders = keylapse::Attached::new(keylapse::Topic::<u64>::new("order:unpaid:{id}")?);
    /// let counts = schedule.attached_counts(orders.topic()).await?;
    /// println!("{} orders are enrolled, {} have lapsed and are not done", counts.enrolled, counts.lapses);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the server cannot be reached or refuses. Of kind [`Invalid`](crate::ErrorKind::Invalid) if the topic is not
    /// an attached one.
    pub async fn attached_counts<T>(&self, topic: &Topic<T>) -> Result<AttachedCounts> {
        topic.config.policy_for("attached_counts")?;
        topic.config.check(&self.client.namespace)?;
        let (mut counts, mut next) = (AttachedCounts::default(), None::<u64>);
        for at in &topic.config.all_partitions(&self.client.namespace) {
            let held = self.persist(|_| self.client.store.attached_holdings(at)).await?;
            let AttachedHoldings { enrolled, next_check, histories, lapses } = held;
            counts.enrolled += enrolled;
            counts.histories += histories;
            counts.lapses += lapses;
            next = next.into_iter().chain(next_check).min();
        }
        counts.next_check = next.map(system_time);
        Ok(counts)
    }

    /// The partitions of a topic. Its settings are checked at each call, as each may give another value of the same name;
    /// it is agreed on with Redis and registered when this schedule first uses it.
    async fn partitions(&self, config: &TopicConfig) -> Result<Arc<[Lane]>> {
        config.check(&self.client.namespace)?;
        if let Some(lanes) = self.known_as(config) {
            return Ok(lanes);
        }
        let store = &self.client.store;
        let partitions = config.all_partitions(&self.client.namespace);
        let entry = config.entry();
        self.persist(|_| store.register(&entry, &partitions)).await?;
        if let Some(bounds) = config.journal {
            self.persist(|_| store.keep_journals(&config.name, bounds, &partitions)).await?;
        }
        Ok(self.know(config))
    }

    fn known_as(&self, config: &TopicConfig) -> Option<Arc<[Lane]>> {
        let known = lock(&self.known);
        known.get(&config.name).filter(|known| known.covers(config)).map(|known| known.lanes.clone())
    }

    /// Takes what this value of a topic says for agreed on. Lanes stay those that there are: all share them.
    fn know(&self, config: &TopicConfig) -> Arc<[Lane]> {
        let attached = config.attach.is_some();
        let mut known = lock(&self.known);
        let before = known.get(&config.name);
        let journal = config.journal.or(before.and_then(|before| before.journal));
        let lanes = match before {
            Some(one) if one.lanes.len() == config.partitions as usize && one.attached == attached => {
                one.lanes.clone()
            }
            _ => {
                let partitions = config.all_partitions(&self.client.namespace).into_iter();
                partitions.map(|at| Lane::new(self.client.store.clone(), at)).collect()
            }
        };
        known.insert(config.name.clone(), Known { lanes: lanes.clone(), attached, journal });
        lanes
    }

    /// Takes a topic's partitions for known, as somebody has read them in the registry: nothing is agreed on or
    /// registered when it is used.
    pub(crate) fn adopt(&self, config: &TopicConfig) {
        if self.known_as(config).is_none() {
            self.know(config);
        }
    }

    async fn lane_of(&self, config: &TopicConfig, key: &[u8]) -> Result<Lane> {
        Ok(self.partitions(config).await?[config.partition_of(key)].clone())
    }
}

// Handing what is due to workers that read a list or a stream, in any language.

/// For how long an id is remembered: longer than any attempt can be under way.
const REMEMBER: Duration = Duration::from_secs(86_400);

/// A hundred years: servers refuse times that do not fit their clock.
const LONGEST_MS: u64 = 100 * 366 * 86_400_000;

/// A list or a stream that workers read.
///
/// ```no_run
/// use keylapse::forward::{ForwardTo, Forwarded};
/// use keylapse::{Done, Failure, Lapse, Schedule};
///
/// async fn hand_on(order: Lapse<String>, schedule: Schedule) -> Result<Done, Failure> {
///     let jobs = ForwardTo::list("jobs").max_length(10_000);
///     match schedule.forward(&jobs, &order.id(), order.payload().clone()).await? {
///         Forwarded::Full => Err(Failure::retry("the workers are behind")),
///         _ => Ok(Done),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing by itself"]
pub struct ForwardTo {
    key: Bytes,
    is_stream: bool,
    pub(crate) max_length: u64,
    pub(crate) remember: Duration,
}

impl ForwardTo {
    /// A list: members come in at its left end, so that `BRPOP` and `BLMOVE … RIGHT …` take the oldest first.
    pub fn list(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), is_stream: false, max_length: 0, remember: REMEMBER }
    }

    /// A stream.
    pub fn stream(key: impl Into<Bytes>) -> Self {
        Self { is_stream: true, ..Self::list(key) }
    }

    /// How many it may have; while it has as many, nothing is put there. Default: 0, any number.
    pub fn max_length(self, members: u64) -> Self {
        Self { max_length: members, ..self }
    }

    /// For how long an id is remembered, so that it is put there once. It takes about a hundred bytes. Default: a day.
    pub fn remember_for(self, time: Duration) -> Self {
        Self { remember: time, ..self }
    }
}

impl Schedule {
    /// Puts something into a list or a stream that is not keylapse's, once for each `id`: that of a
    /// [lapse](crate::Lapse::id), which its attempts share. A list's member is `message`; a stream's entry has it in the
    /// field `message`, and the id in `id`.
    ///
    /// Workers get it at least once: it is put there twice if what remembers the id is lost, evicted for example.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses: the user needs the right to write the key. Of kind
    /// [`WrongType`](crate::ErrorKind::WrongType) if the key holds something else.
    pub async fn forward(&self, to: &ForwardTo, id: &str, message: impl Into<Bytes>) -> Result<Forwarded> {
        let memory = forwarded(&self.client.namespace, &to.key, id);
        let message = message.into();
        let what = Forwarding {
            into: &to.key,
            memory: &memory,
            is_stream: to.is_stream,
            max_length: to.max_length,
            remember_ms: ms_ceil(to.remember).clamp(1, LONGEST_MS),
            id: id.as_bytes(),
            message: &message,
        };
        self.persist(|_| self.client.store.forward(&what)).await
    }
}
