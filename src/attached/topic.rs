//! The policy of an attached topic: how its keys are handled. The program sets it when it builds the listener.
//!
//! All listeners that start follow one policy: that of the highest revision in Redis. Otherwise the first listener to
//! record or track a key would decide for listeners with another policy.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::figures::Destinations;
use crate::log::{debug, error, warn};
use crate::policy::{FieldSelection, Policy, TopicPolicy, Treatment, WriteBack};
use crate::runtime::{RunningTopic, Runtime};
use crate::time::MAX_DELAY;
use crate::topic::Topic;
use crate::wire::StoredPolicy;

/// A topic whose keys other programs write, and how they are handled.
///
/// [`ListenerBuilder::attach`](crate::ListenerBuilder::attach) takes a [`Topic`] with the defaults, or this type with other
/// settings.
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
/// Calls of a [`Schedule`](crate::Schedule), such as those for dead letters, take its [`topic`](Attached::topic).
#[derive(Clone, Debug)]
#[must_use = "each setting returns the changed topic"]
pub struct Attached<T>(Topic<T>);

impl<T> Attached<T> {
    /// Attaches a topic with the defaults: no values are kept, expiries of untracked keys fire, and deleted keys do not
    /// fire.
    pub fn new(mut topic: Topic<T>) -> Self {
        topic.config.attach = Some(Policy::default());
        topic.config.marker_keys = false;
        Self(topic)
    }

    fn with(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(self.0.config.attach.get_or_insert_default());
        self
    }

    /// Returns the topic, for calls of a [`Schedule`](crate::Schedule).
    pub fn topic(&self) -> &Topic<T> {
        &self.0
    }

    /// Names the destinations that the topic's handlers call, as [`Topic::destinations`] does. Default: none.
    pub fn destinations(self, all: Arc<dyn Destinations>) -> Self {
        Self(self.0.destinations(all))
    }

    pub(crate) fn into_topic(self) -> Topic<T> {
        self.0
    }

    /// Keeps a copy of each string value of at most `cap` bytes, for the handler of the expired key. `cap` may be up to
    /// 8 MiB. The value is read when the key is found, and again 250 ms before the deadline. Each copy takes its bytes
    /// in Redis once more. Default: no copies.
    pub fn keep_values(self, cap: usize) -> Self {
        self.with(|all| all.topic.values = cap)
    }

    /// Also keeps these fields of hashes, if they exist and together fit into the cap. A field counts as its name, its
    /// value and 8 bytes. Default: hashes are not copied.
    ///
    /// [`Expired::value`](crate::Expired::value) is then decoded from the fields. Their names are those of a struct, or
    /// the keys of a map. Their values are text, numbers in digits, bytes, or JSON if the type has a sequence, a map or
    /// a struct. A topic of bytes gets [`KeptValue::Fields`](crate::attach::KeptValue::Fields).
    pub fn keep_fields(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|all| all.topic.fields = FieldSelection::named(names.into_iter().map(Into::into)))
    }

    /// Also keeps all fields of hashes, as [`keep_fields`](Self::keep_fields) does. Keeps nothing of a hash that does
    /// not fit into the cap. To find out, keylapse reads the names of the fields and the lengths of the values.
    pub fn keep_all_fields(self) -> Self {
        self.with(|all| all.topic.fields = FieldSelection::All)
    }

    /// Also keeps copies of hashes, lists, sets and streams in the format of DUMP, if they fit into the cap. A dump
    /// costs the server time in proportion to the value.
    pub fn keep_dumps(self) -> Self {
        self.with(|all| all.topic.dumps = true)
    }

    /// Sets what happens to an expired key whose deadline was not read before. Default: its handler runs.
    ///
    /// With [`Treatment::Fire`] the handler runs without a value and without a known deadline. Any client that may
    /// PUBLISH on the channel of expired events can cause this. With [`Treatment::Ignore`] an expiry counts only if the
    /// key's deadline was read and has passed. A key that expires before it can be read is then lost.
    pub fn untracked(self, treatment: Treatment) -> Self {
        self.with(|all| all.topic.untracked = treatment)
    }

    /// Sets what happens to a key that is gone at its deadline without an expiry, although no event was missed: it was
    /// deleted or evicted. Default: it is ignored. With [`Treatment::Fire`] its handler runs, unless an event reported
    /// the deletion.
    pub fn vanished(self, treatment: Treatment) -> Self {
        self.with(|all| all.topic.vanished = treatment)
    }

    /// Sets what happens to a key that is gone when events may have been missed: after a gap, or after all listeners
    /// were down. The key may have expired or may have been deleted. Default: its handler runs.
    ///
    /// With [`Treatment::Fire`] the handler runs as [`Expiry::Recovered`](crate::Expiry::Recovered). It also runs for
    /// keys that were deleted or renamed while no listener received events.
    ///
    /// With [`Treatment::Ignore`] a key is lost if it expired while no listener received events. If another listener
    /// received the expiry and records it later, the handler runs without the value. It does not run if
    /// [`untracked`](Self::untracked) keys are ignored, too. A listener that receives no events at all
    /// ([`EventMode::ScanOnly`](crate::health::EventMode::ScanOnly)) then fires nothing.
    pub fn recovered(self, treatment: Treatment) -> Self {
        self.with(|all| all.topic.recovered = treatment)
    }

    /// Writes the key back when its handler fails, with the TTL of the retry and the value that [`WriteBack`] sets.
    /// Nothing is written if a key of that name exists. Default: the key is not written, and retries exist only in
    /// keylapse's index.
    ///
    /// **A key that is written back exists again**: a session is valid again, a lock is held again, an unpaid order can
    /// be paid again. If the key's writer has created it in the meantime, keylapse leaves it unchanged, and the retry
    /// is replaced by that key. Needs [`keep_values`](Self::keep_values), except for [`WriteBack::counting`].
    pub fn write_back(self, how: WriteBack) -> Self {
        self.with(|all| all.topic.write_back = how.0)
    }

    /// Sets the revision of the topic's policy. Default: 1.
    ///
    /// All listeners of a topic follow the policy with the highest revision. It consists of
    /// [`untracked`](Self::untracked), [`vanished`](Self::vanished), [`recovered`](Self::recovered),
    /// [`keep_values`](Self::keep_values), [`keep_dumps`](Self::keep_dumps), [`keep_fields`](Self::keep_fields) and
    /// [`write_back`](Self::write_back). Raise the revision with each change of these, and restart the listeners.
    ///
    /// A listener with a lower revision follows the higher one from its next start. A listener with the same revision
    /// and another policy does not start.
    pub fn revision(self, number: u32) -> Self {
        self.with(|all| all.revision = number)
    }

    /// Assumes that every change of a key's deadline makes it later, as requests do with a session. Events of a tracked
    /// key then cause no read until shortly before its known deadline. If TTLs are extended often, this saves the
    /// server most of what `KExg$` costs. Default: each change is read.
    ///
    /// If the assumption is wrong, an earlier deadline stays unknown. The key then fires when the server announces its
    /// expiry, and at the latest at the deadline that was known before.
    pub fn assume_ttl_only_extended(self) -> Self {
        self.with(|all| all.only_extended = true)
    }

    /// Sets how many keys are tracked at most. Default: 1,000,000. Further keys are not tracked, which is logged and
    /// counted. They still fire when the server announces their expiry.
    pub fn cap(self, keys: usize) -> Self {
        self.with(|all| all.cap = keys)
    }

    /// Sets how many keys of the database a scan visits per second, including keys of no topic. Default: 50,000. A scan
    /// for several topics of a listener uses the lowest rate.
    pub fn scan_rate(self, keys_per_second: u32) -> Self {
        self.with(|all| all.scan_rate = keys_per_second)
    }

    /// Sets the pause between two scans. Default: 5 min. A scan also runs at the start and after each gap. If events
    /// report all changes (`KExg$`), and scans find nothing new, the pause becomes up to 16 times as long.
    pub fn scan_every(self, pause: Duration) -> Self {
        self.with(|all| all.scan_every = pause.min(MAX_DELAY)) // adding it to an `Instant` must not overflow
    }

    /// Allows a pattern without a literal prefix. Every listener then receives each expiry, each change and each key of
    /// the database.
    pub fn allow_any_prefix(self) -> Self {
        self.with(|all| all.any_prefix = true)
    }
}

impl<T> From<Topic<T>> for Attached<T> {
    fn from(topic: Topic<T>) -> Self {
        Self::new(topic)
    }
}

/// How often a running listener writes its policy again, so that it is there if the database was emptied.
const POLICY_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Agrees with Redis on the policy of each attached topic, at the start of a listener.
///
/// # Errors
///
/// If a topic's policy conflicts with the one in Redis, or that one cannot be read.
pub(crate) async fn agree(runtime: &Runtime) -> Result<()> {
    let topics = runtime.attached_topics().map(|topic| agree_on(runtime, topic));
    try_join_all(topics).await.map(drop)
}

async fn agree_on(runtime: &Runtime, topic: &RunningTopic) -> Result<()> {
    let heals = |error: &Error, _| error.is_transient();
    let other = match retry(None, |_| false, heals, |_| other_policy(runtime, topic)).await {
        // The partition will be parked, and reports the error.
        Err((error, _)) if error.kind() == ErrorKind::WrongType => return Ok(()),
        asked => asked.map_err(|(error, _)| error)?,
    };
    let Some(other) = other else { return Ok(()) };
    let own = topic.own_policy();
    let (revision, stands, differs) = (own.revision, other.revision, other.differs);
    if stands == revision {
        return Err(contradiction(topic, stands, &differs));
    }
    warn!(
        ?topic,
        revision,
        stands,
        differs,
        "the topic's policy in Redis is of a higher revision: this listener follows it"
    );
    topic.adopt_policy(Policy { revision: stands, topic: other.policy, ..own.clone() });
    Ok(())
}

/// Compares policies while the listener runs. It follows no change, as that needs a restart.
pub(super) async fn keep_comparing(runtime: Arc<Runtime>) {
    loop {
        tokio::time::sleep(POLICY_CHECK_INTERVAL).await;
        for topic in runtime.attached_topics() {
            match other_policy(&runtime, topic).await {
                Ok(other) => other.iter().for_each(|other| other.log_difference(topic)),
                Err(error) if !error.is_transient() => warn!(
                    ?topic, %error,
                    "the topic's policy in Redis cannot be compared: this listener keeps its own"
                ),
                Err(error) => debug!(%error, "cannot read the topic's policy in Redis: retrying"),
            }
        }
    }
}

/// A policy in Redis that differs from the one of this listener.
struct DifferingPolicy {
    revision: u32,
    policy: TopicPolicy,
    differs: String,
}

/// Writes the listener's policy to Redis, unless that has the same revision or a higher one. Returns the policy in
/// Redis if it differs.
async fn other_policy(runtime: &Runtime, topic: &RunningTopic) -> Result<Option<DifferingPolicy>> {
    let (first, own) = (&runtime.partitions_of(topic)[0], topic.policy());
    let stands = first.store.agree_on_policy(&first.names, own.revision, &own.topic.text()).await?;
    let StoredPolicy { revision, text } = stands;
    let policy = TopicPolicy::read(&text).map_err(|error| unreadable(topic, revision, &error))?;
    let differs = own.topic.differences(&policy);
    Ok((!differs.is_empty()).then_some(DifferingPolicy { revision, policy, differs }))
}

impl DifferingPolicy {
    fn log_difference(&self, topic: &RunningTopic) {
        let Self { revision: stands, differs, .. } = self;
        let revision = topic.policy().revision;
        if revision < *stands {
            warn!(
                ?topic,
                revision,
                stands,
                differs,
                "the topic's policy in Redis is of a higher revision: this listener keeps its own until it is started again"
            );
        } else {
            error!(
                ?topic,
                revision,
                stands,
                differs,
                "Redis has another policy of the same revision: this listener keeps its own, and would not start again"
            );
        }
    }
}

fn contradiction(topic: &RunningTopic, revision: u32, differs: &str) -> Error {
    let name = &topic.config.name;
    let message = format!(
        "attached topic {name}: its policy of revision {revision} differs from the one in Redis: {differs}; use one policy in \
         both programs, or raise the revision in the one that has the right policy"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn unreadable(topic: &RunningTopic, revision: u32, error: &Error) -> Error {
    let (name, own) = (&topic.config.name, topic.own_policy().revision);
    let message = format!(
        "attached topic {name}: cannot read its policy of revision {revision} in Redis, where this program has {own}: \
         {error}; a newer program has written it: upgrade this one, or raise its revision"
    );
    Error::new(error.kind(), message)
}
