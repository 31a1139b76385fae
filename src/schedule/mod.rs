//! The API of producers: arm, cancel and look up timers, pause topics, read dead letters, forward to workers.

mod bulk;
mod dead_letters;
mod key;
mod lane;
mod timer;

pub use self::bulk::{BulkRequest, NewArm};
pub use self::dead_letters::{DeadLetter, DeadLetters, Undecoded};
pub use self::key::{Key, KeyArgs};
pub use self::timer::{ArmRequest, Timer, TimerPhase};

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::client::Client;
use crate::connection::retry_until_answered;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::schedule::lane::Lane;
use crate::time::{ms_ceil, system_time};
use crate::topic::{Topic, TopicConfig};
use crate::trace::Inject;
use crate::wire::names::forwarded;
use crate::wire::{AttachedHoldings, Forwarded, Forwarding, JournalBounds, ListenerReport, listeners};

/// Arms, cancels and looks up timers. A schedule is cheap to clone, and its clones share a connection.
///
/// A schedule repeats a call while the server is unreachable or does not answer, until the client's
/// [`retry_for`](Client::retry_for) (5 s) has passed. Repeats are idempotent.
///
/// A schedule works on several tokio runtimes, whose time driver must be enabled. One thread of keylapse owns the
/// connections of all schedules, so a blocked runtime does not delay calls from another.
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
    /// The topics that this schedule has used.
    registered: Arc<Mutex<HashMap<String, RegisteredTopic>>>,
    inject: Option<Inject>,
}

/// A topic that Redis has accepted. All [`Topic`] values of one name share it.
#[derive(Clone, Debug)]
struct RegisteredTopic {
    lanes: Arc<[Lane]>,
    attached: bool,
    /// The bounds of the journal that a program has set last.
    journal: Option<JournalBounds>,
}

impl RegisteredTopic {
    /// Returns whether a value of the topic has the registered settings.
    fn covers(&self, config: &TopicConfig) -> bool {
        self.lanes.len() == config.partitions as usize
            && self.attached == config.attach.is_some()
            && (config.journal.is_none() || config.journal == self.journal)
    }
}

/// Counts of an attached topic's data in Redis: see [`Schedule::attached_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedCounts {
    /// Tracked keys.
    pub tracked: u64,
    /// When the next tracked key is checked: just after its deadline, or 250 ms before that to copy its value.
    pub next_check: Option<SystemTime>,
    /// Keys whose recorded expiries are kept to run each of them once. A key on both history pages counts twice.
    pub histories: u64,
    /// Lapses that wait, run, or wait for a retry. Lapses that are queued behind another of their key do not count.
    pub lapses: u64,
}

impl Schedule {
    /// Connects to a deployment, which is given as a URL, [`Servers`](crate::Servers) or a [`Client`].
    ///
    /// It fails immediately if the server is unreachable. Use [`new`](Self::new) for a program that starts without
    /// the server: each call then waits up to the client's [`retry_for`](Client::retry_for). A
    /// [`Listener`](crate::Listener) waits without a limit.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid, the server is unreachable, or it rejects the user.
    pub async fn connect<C>(client: C) -> Result<Self>
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        let schedule = Self::new(client.try_into().map_err(Into::into)?);
        schedule.client.check()?;
        schedule.client.store.reach(&schedule.client.namespace).await?;
        Ok(schedule)
    }

    /// Returns a schedule that connects when it makes its first call.
    pub fn new(client: Client) -> Self {
        Self { client, registered: Arc::default(), inject: None }
    }

    /// Sets a function that returns the current trace context as a W3C `traceparent`, or `None`. It is called at each
    /// arm, and the handler receives the context. A context takes 26 bytes for each timer.
    ///
    /// A listener continues the trace: see [`ListenerBuilder::trace`](crate::ListenerBuilder::trace).
    #[must_use]
    pub fn trace(self, traceparent: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { inject: Some(Inject(Arc::new(traceparent))), ..self }
    }

    /// Makes a call, and repeats it until it is answered or refused, or the client's `retry_for` has passed.
    pub(crate) async fn persist<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnMut(bool) -> F,
    ) -> Result<T> {
        retry_until_answered(self.client.retry_for, call).await
    }

    /// Makes a read of at most `most` items, and repeats it like [`persist`](Self::persist). An answer may be too large for
    /// the server to send, so each repeat reads a quarter of the previous number.
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

    /// Pauses a topic until [`resume`](Schedule::resume). Timers can still be armed, but listeners do not claim them.
    /// Running attempts continue. The reason is cut to 200 bytes.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call. Some partitions may be paused then. The
    /// call can be repeated.
    pub async fn pause<T>(&self, topic: &Topic<T>, reason: &str) -> Result<()> {
        let reason = if reason.is_empty() { "paused" } else { crate::escape::cut(reason, 200) };
        self.set_pause(&topic.config, Some(reason)).await
    }

    /// Resumes a paused topic. Overdue timers run immediately.
    ///
    /// # Errors
    /// Returns the errors of [`pause`](Schedule::pause).
    pub async fn resume<T>(&self, topic: &Topic<T>) -> Result<()> {
        self.set_pause(&topic.config, None).await
    }

    async fn set_pause(&self, config: &TopicConfig, reason: Option<&str>) -> Result<()> {
        for lane in self.lanes(config).await?.iter() {
            self.persist(|_| self.client.store.pause(lane.at(), reason)).await?;
        }
        Ok(())
    }

    /// Returns the latest report of each listener of this namespace and database. A listener reports every 5 s, and
    /// deletes its report when it stops. Reports older than 15 s are left out.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call.
    pub async fn listeners(&self) -> Result<Vec<ListenerReport>> {
        let hash = listeners(&self.client.namespace);
        self.persist(|_| self.client.store.listeners(&hash)).await
    }

    /// Returns the reports of the [listeners](Self::listeners) that serve a topic.
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
    /// Returns the errors of [`listeners`](Self::listeners).
    pub async fn serving<T>(&self, topic: &Topic<T>) -> Result<Vec<ListenerReport>> {
        let mut all = self.listeners().await?;
        all.retain(|listener| listener.serves(topic.name()));
        Ok(all)
    }

    /// Counts an attached topic's data in Redis, over all partitions. It only reads, and costs the server some
    /// microseconds for each partition, independent of the number of keys.
    ///
    /// ```no_run
    /// # async fn count(schedule: keylapse::Schedule) -> keylapse::Result<()> {
    /// let orders = keylapse::Attached::new(keylapse::Topic::<u64>::new("order:unpaid:{id}")?);
    /// let counts = schedule.attached_counts(orders.topic()).await?;
    /// println!("{} orders are tracked, {} have lapsed and are not done", counts.tracked, counts.lapses);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call. The kind is
    /// [`Invalid`](crate::ErrorKind::Invalid) if the topic is not attached.
    pub async fn attached_counts<T>(&self, topic: &Topic<T>) -> Result<AttachedCounts> {
        topic.config.policy_for("attached_counts")?;
        topic.config.check(&self.client.namespace)?;
        let (mut counts, mut next) = (AttachedCounts::default(), None::<u64>);
        for at in &topic.config.all_partitions(&self.client.namespace) {
            let held = self.persist(|_| self.client.store.attached_holdings(at)).await?;
            let AttachedHoldings { tracked: enrolled, next_check, histories, lapses } = held;
            counts.tracked += enrolled;
            counts.histories += histories;
            counts.lapses += lapses;
            next = next.into_iter().chain(next_check).min();
        }
        counts.next_check = next.map(system_time);
        Ok(counts)
    }

    /// Returns the lanes of a topic's partitions. The first call registers the topic in Redis. A call with other settings
    /// registers them, too, because two [`Topic`] values may share a name.
    async fn lanes(&self, config: &TopicConfig) -> Result<Arc<[Lane]>> {
        config.check(&self.client.namespace)?;
        if let Some(lanes) = self.registered_lanes(config) {
            return Ok(lanes);
        }
        let store = &self.client.store;
        let partitions = config.all_partitions(&self.client.namespace);
        let entry = config.entry();
        self.persist(|_| store.register(&entry, &partitions)).await?;
        if let Some(bounds) = config.journal {
            self.persist(|_| store.keep_journals(&config.name, bounds, &partitions)).await?;
        }
        Ok(self.remember_topic(config))
    }

    fn registered_lanes(&self, config: &TopicConfig) -> Option<Arc<[Lane]>> {
        let known = lock(&self.registered);
        known.get(&config.name).filter(|known| known.covers(config)).map(|known| known.lanes.clone())
    }

    /// Remembers a topic as registered. It keeps existing lanes, because all callers must share them.
    fn remember_topic(&self, config: &TopicConfig) -> Arc<[Lane]> {
        let attached = config.attach.is_some();
        let mut known = lock(&self.registered);
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
        known.insert(config.name.clone(), RegisteredTopic { lanes: lanes.clone(), attached, journal });
        lanes
    }

    /// Remembers a topic that the caller has read in the registry, so that the schedule does not register it again.
    pub(crate) fn adopt(&self, config: &TopicConfig) {
        if self.registered_lanes(config).is_none() {
            self.remember_topic(config);
        }
    }

    async fn lane_of(&self, config: &TopicConfig, key: &[u8]) -> Result<Lane> {
        Ok(self.lanes(config).await?[config.partition_of(key)].clone())
    }
}

// Forwarding of due work to workers in any language, which read a list or a stream.

/// The default of [`ForwardTo::deduplicate_for`], longer than any attempt runs.
const DEFAULT_DEDUPLICATE_FOR: Duration = Duration::from_secs(86_400);

/// The maximum time for which an ID is remembered: a hundred years. Servers refuse times that overflow their clock.
const MAX_REMEMBER_MS: u64 = 100 * 366 * 86_400_000;

/// A Redis list or stream that workers read.
///
/// ```no_run
/// use keylapse::forward::{ForwardTo, Forwarded};
/// use keylapse::{Done, Failure, Lapse, Schedule};
///
/// async fn forward(order: Lapse<String>, schedule: Schedule) -> Result<Done, Failure> {
///     let jobs = ForwardTo::list("jobs").max_length(10_000);
///     match schedule.forward(&jobs, &order.id(), order.payload().clone()).await? {
///         Forwarded::Full => Err(Failure::retry("the list is full")),
///         _ => Ok(Done),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing is forwarded until Schedule::forward is called"]
pub struct ForwardTo {
    key: Bytes,
    is_stream: bool,
    pub(crate) max_length: u64,
    pub(crate) remember: Duration,
}

impl ForwardTo {
    /// Names a list. Messages are pushed at its left end, so `BRPOP` and `BLMOVE … RIGHT …` take the oldest first.
    pub fn list(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), is_stream: false, max_length: 0, remember: DEFAULT_DEDUPLICATE_FOR }
    }

    /// Names a stream.
    pub fn stream(key: impl Into<Bytes>) -> Self {
        Self { is_stream: true, ..Self::list(key) }
    }

    /// Sets the maximum length. At this length, [`Schedule::forward`] returns [`Forwarded::Full`] and adds nothing.
    /// Default: 0, no limit.
    pub fn max_length(self, members: u64) -> Self {
        Self { max_length: members, ..self }
    }

    /// Sets how long an ID is remembered to add its message only once. Each ID takes about 100 bytes. Default: one
    /// day.
    pub fn deduplicate_for(self, time: Duration) -> Self {
        Self { remember: time, ..self }
    }
}

impl Schedule {
    /// Adds a message to a list or a stream, once for each `id`.
    ///
    /// Pass the [ID of a lapse](crate::Lapse::id), which its attempts share. The element of a list is `message`. The
    /// entry of a stream has the fields `message` and `id`.
    ///
    /// Workers receive a message at least once. It is added twice if the record of its ID is lost, for example by
    /// eviction.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call. The user needs write permission for the
    /// key. The kind is [`WrongType`](crate::ErrorKind::WrongType) if the key has another type.
    pub async fn forward(&self, to: &ForwardTo, id: &str, message: impl Into<Bytes>) -> Result<Forwarded> {
        let memory = forwarded(&self.client.namespace, &to.key, id);
        let message = message.into();
        let what = Forwarding {
            into: &to.key,
            memory: &memory,
            is_stream: to.is_stream,
            max_length: to.max_length,
            remember_ms: ms_ceil(to.remember).clamp(1, MAX_REMEMBER_MS),
            id: id.as_bytes(),
            message: &message,
        };
        self.persist(|_| self.client.store.forward(&what)).await
    }
}
