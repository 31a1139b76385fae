//! How the keys of an attached topic are treated: chosen once, when the listener is built.

use std::time::Duration;

use crate::policy::{Policy, Unenrolled, Vanished, WriteBack};
use crate::topic::Topic;

/// A topic whose keys other programs write, and how they are treated.
///
/// [`ListenerBuilder::attach`](crate::ListenerBuilder::attach) takes a [`Topic`] as it is; this is for those
/// who want something else than the defaults.
///
/// ```
/// use keylapse::{Attached, Topic};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Order { cents: u64 }
/// let unpaid = Attached::new(Topic::<Order>::new("order:unpaid:{id}")?)
///     .keep_values(4096) // the handler gets the value of the expired key, up to 4 KiB
///     .cap(50_000);
/// # Ok::<(), keylapse::Error>(())
/// ```
///
/// Its [`topic`](Attached::topic) is what producers' calls take: dead letters, for one, are asked for with it.
#[derive(Clone, Debug)]
#[must_use = "each setting returns the changed topic"]
pub struct Attached<T>(Topic<T>);

impl<T> Attached<T> {
    /// With the defaults: no values are kept, expiries of unknown keys fire, deleted keys do not.
    pub fn new(mut topic: Topic<T>) -> Self {
        topic.config.attach = Some(Policy::default());
        topic.config.triggers = false;
        Self(topic)
    }

    fn with(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(self.0.config.attach.get_or_insert_default());
        self
    }

    /// The topic, for [`Schedule`](crate::Schedule)'s calls.
    pub fn topic(&self) -> &Topic<T> {
        &self.0
    }

    pub(crate) fn into_topic(self) -> Topic<T> {
        self.0
    }

    /// Keeps a copy of each string value of up to so many bytes, at most 8 MiB, so that the handler gets
    /// the value of the expired key. It is read when the key is found, and again a quarter of a second
    /// before the deadline. Default: no copies. Costs the bytes of each value in Redis once more.
    pub fn keep_values(self, cap: usize) -> Self {
        self.with(|all| all.capture.cap = cap)
    }

    /// Also keeps copies of hashes, lists, sets and streams, as the server's DUMP writes them, if they
    /// are no larger than the cap. Making a dump costs the server time in proportion to the value.
    pub fn keep_dumps(self) -> Self {
        self.with(|all| all.capture.dumps = true)
    }

    /// What becomes of expiries of keys that were not enrolled. Default: they fire.
    pub fn unenrolled(self, policy: Unenrolled) -> Self {
        self.with(|all| all.unenrolled = policy)
    }

    /// What becomes of keys that are gone and did not expire. Default: they are forgotten.
    pub fn vanished(self, policy: Vanished) -> Self {
        self.with(|all| all.vanished = policy)
    }

    /// Writes the key back when its handler fails, with the time to live of the retry, if the name is
    /// free. Default: retries live in keylapse's index alone.
    ///
    /// **A key that is written back exists again**: a session is valid again, a lock is held again, an
    /// unpaid order can be paid again. A key that its writer has created meanwhile is never touched; then
    /// the retry gives way to it. Needs [`keep_values`](Self::keep_values).
    pub fn write_back(self, how: WriteBack) -> Self {
        self.with(|all| all.write_back = Some(how))
    }

    /// How many keys are remembered at most. Beyond, keys are not enrolled, which is logged and counted;
    /// their expiries are heard all the same. Default: 1,000,000.
    pub fn cap(self, keys: usize) -> Self {
        self.with(|all| all.cap = keys)
    }

    /// How many keys of the database a scan looks at in a second, ours or not. Default: 50,000.
    pub fn scan_rate(self, keys_per_second: u32) -> Self {
        self.with(|all| all.scan_rate = keys_per_second)
    }

    /// How long after a scan has ended the next begins; there is also one at the start and after each
    /// gap. Default: 5 min.
    pub fn scan_every(self, pause: Duration) -> Self {
        self.with(|all| all.scan_every = pause)
    }

    /// Allows a pattern without a literal prefix: then each expiry, each change and each key of the
    /// database reaches every listener.
    pub fn allow_any_prefix(self) -> Self {
        self.with(|all| all.any_prefix = true)
    }
}

impl<T> From<Topic<T>> for Attached<T> {
    fn from(topic: Topic<T>) -> Self {
        Self::new(topic)
    }
}
