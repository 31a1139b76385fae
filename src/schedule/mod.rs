//! The producers' door: arm, cancel, look, pause, repartition, destroy, and the dead letters.

mod arm;
mod attached;
mod bulk;
mod destroy;
mod fleet;
mod forward;
mod key;
mod key_scan;
mod lane;
mod letters;
mod repartition;
mod timer;

pub use self::arm::ArmRequest;
pub use self::attached::{AttachPlan, AttachedCounts};
pub use self::bulk::{BulkRequest, NewArm};
pub use self::destroy::{DestroyRequest, Destroyed};
pub use self::forward::ForwardTo;
pub use self::key::{Key, KeyArgs};
pub use self::letters::{DeadLetter, DeadLetters, Undecoded};
pub use self::repartition::{RepartitionRequest, Repartitioned};
pub use self::timer::{Timer, TimerPhase};

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::client::Client;
use crate::connection::persist;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::schedule::lane::Lane;
use crate::topic::{Topic, TopicConfig};
use crate::trace::Inject;

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
    /// The partitions of the topics that were used.
    known: Arc<Mutex<HashMap<String, Arc<[Lane]>>>>,
    inject: Option<Inject>,
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
        schedule.client.store.reach().await?;
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

    /// The partitions of a topic; its definition is checked, agreed on with
    /// Redis and registered when this schedule first uses it.
    async fn partitions(&self, config: &TopicConfig) -> Result<Arc<[Lane]>> {
        let known = lock(&self.known).get(&config.name).cloned();
        if let Some(known) = known.filter(|known| known.len() == config.partitions as usize) {
            return Ok(known);
        }
        config.check(&self.client.namespace)?;
        let store = &self.client.store;
        let partitions = config.all_partitions(&self.client.namespace);
        let entry = config.entry();
        self.persist(|_| store.register(&entry, &partitions)).await?;
        if let Some(bounds) = config.journal {
            self.persist(|_| store.keep_journals(&config.name, bounds, &partitions)).await?;
        }
        let lanes: Arc<[Lane]> = partitions.into_iter().map(|at| Lane::new(store.clone(), at)).collect();
        let mut known = lock(&self.known);
        let known = known.entry(config.name.clone()).or_insert_with(|| lanes.clone());
        // Who was first has made those that all share.
        if known.len() != lanes.len() {
            *known = lanes;
        }
        Ok(known.clone())
    }

    /// Takes a topic's partitions for known, as somebody has read them in the registry: nothing is agreed on or
    /// registered when it is used.
    #[cfg(feature = "console")]
    pub(crate) fn adopt(&self, config: &TopicConfig) {
        let mut known = lock(&self.known);
        if known.get(&config.name).is_some_and(|known| known.len() == config.partitions as usize) {
            return;
        }
        let store = &self.client.store;
        let partitions = config.all_partitions(&self.client.namespace).into_iter();
        known.insert(config.name.clone(), partitions.map(|at| Lane::new(store.clone(), at)).collect());
    }

    async fn lane_of(&self, config: &TopicConfig, key: &[u8]) -> Result<Lane> {
        Ok(self.partitions(config).await?[config.partition_of(key)].clone())
    }
}
