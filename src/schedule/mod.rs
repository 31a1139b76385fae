//! The producers' door: arm, cancel, look, pause, and the dead letters.

mod arm;
mod bulk;
mod cancel;
mod key;
mod letters;
mod look;

pub use arm::{ArmRequest, Arming, Durably, Receipt, TriggerKey};
pub use bulk::{ArmManyRequest, NewArm};
pub use cancel::{Cancelled, Rescheduled};
pub use key::{Key, KeyArgs};
pub use letters::{DeadLetter, Replayed};
pub use look::{Phase, Timer};

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::calls::persist;
use crate::error::Result;
use crate::store::keys::{DEFAULT_NAMESPACE, Partition, check_name};
use crate::store::{RedisStore, Store};
use crate::topic::{Shape, Topic};

/// Arms, cancels and looks at timers. Cheap to clone; clones share a connection.
///
/// Each call is repeated, safely, while its answer is lost or the server is
/// away, until [`patience`](Schedule::patience) (5 s) runs out.
///
/// ```no_run
/// use std::time::Duration;
/// use keylapse::{Schedule, Topic};
///
/// # async fn produce() -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// let schedule = Schedule::connect("redis://127.0.0.1/").await?;
/// schedule.arm(&orders, ["42"], Duration::from_secs(900), &1999).await?;
/// schedule.cancel(&orders, ["42"]).await?; // it was paid
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    store: Arc<dyn Store>,
    pub(crate) namespace: Arc<str>,
    pub(crate) patience: Duration,
    known: Arc<Mutex<HashMap<String, Arc<[Partition]>>>>,
}

impl Schedule {
    /// Connects to a server.
    ///
    /// # Errors
    /// When the URL cannot be read, or the server cannot be reached or refuses
    /// the user.
    pub async fn connect(url: &str) -> Result<Self> {
        let schedule = Self::on_store(RedisStore::new(url)?);
        schedule.store.peek(&[]).await?;
        Ok(schedule)
    }

    /// A schedule on a store: to share a connection, or to test with a
    /// [`MemoryStore`](crate::store::MemoryStore).
    pub fn on_store(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            namespace: DEFAULT_NAMESPACE.into(),
            patience: Duration::from_secs(5),
            known: Arc::default(),
        }
    }

    /// With another prefix of all names in Redis. Default: `keylapse`.
    ///
    /// # Errors
    /// When the prefix could not be part of a name.
    pub fn namespace(mut self, prefix: &str) -> Result<Self> {
        check_name("the namespace", prefix)?;
        self.namespace = prefix.into();
        self.known = Arc::default();
        Ok(self)
    }

    /// For how long a call is repeated while it has no answer. Default: 5 s.
    /// Two minutes at most: a repeat must find what the first call left behind.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(Duration::from_secs(120));
        self
    }

    /// Pauses a topic: timers are kept and can be armed, but none is given out
    /// until [`resume`](Schedule::resume). Attempts that are running go on.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses. Some partitions may be
    /// paused then; the call can be repeated.
    pub async fn pause<T>(&self, topic: &Topic<T>, reason: &str) -> Result<()> {
        let reason = if reason.is_empty() { "paused" } else { crate::escape::cut(reason, 200) };
        self.set_paused(&topic.shape, Some(reason)).await
    }

    /// Resumes a paused topic; what has become due runs at once.
    ///
    /// # Errors
    /// As for [`pause`](Schedule::pause).
    pub async fn resume<T>(&self, topic: &Topic<T>) -> Result<()> {
        self.set_paused(&topic.shape, None).await
    }

    async fn set_paused(&self, shape: &Shape, reason: Option<&str>) -> Result<()> {
        for at in self.partitions(shape).await?.iter() {
            persist(self.patience, |_| self.store.pause(at, reason)).await?;
        }
        Ok(())
    }

    /// The partitions of a topic; its definition is checked, agreed on with
    /// Redis and registered when this schedule first uses it.
    async fn partitions(&self, shape: &Shape) -> Result<Arc<[Partition]>> {
        if let Some(known) =
            self.lock().get(&shape.name).filter(|known| known.len() == shape.partitions as usize)
        {
            return Ok(known.clone());
        }
        shape.check(&self.namespace)?;
        let partitions: Arc<[Partition]> = shape.all_partitions(&self.namespace).into();
        let entry = shape.entry();
        persist(self.patience, |_| self.store.register(&entry, &partitions)).await?;
        self.lock().insert(shape.name.clone(), partitions.clone());
        Ok(partitions)
    }

    async fn partition_of(&self, shape: &Shape, key: &[u8]) -> Result<Partition> {
        Ok(self.partitions(shape).await?[shape.partition_of(key)].clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<[Partition]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
