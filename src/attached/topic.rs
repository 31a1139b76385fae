//! How the keys of an attached topic are treated: chosen once, when the listener is built, and agreed on when it starts.
//!
//! All listeners of a topic that start go by one policy: that of the highest revision, whoever brought it. Else whoever is
//! first to note or to enrol a key would decide for listeners that ask for something else.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::figures::Destinations;
use crate::log::{debug, error, warn};
use crate::policy::{Fields, Policy, TopicPolicy, Treatment, WriteBack};
use crate::runtime::{RunningTopic, Runtime};
use crate::time::MAX_DELAY;
use crate::topic::Topic;
use crate::wire::StandingPolicy;

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

    /// Names the places that the topic's handlers call, as [`Topic::destinations`]. Default: nothing is reported.
    pub fn destinations(self, all: Arc<dyn Destinations>) -> Self {
        Self(self.0.destinations(all))
    }

    pub(crate) fn into_topic(self) -> Topic<T> {
        self.0
    }

    /// Keeps a copy of each string value of up to so many bytes, at most 8 MiB, so that the handler gets
    /// the value of the expired key. It is read when the key is found, and again a quarter of a second
    /// before the deadline. Default: no copies. Costs the bytes of each value in Redis once more.
    pub fn keep_values(self, cap: usize) -> Self {
        self.with(|all| all.topic.values = cap)
    }

    /// Also keeps these fields of hashes, as far as there are such, if they fit into the cap: each counts as its name,
    /// its value and 8 bytes. [`Expired::value`](crate::Expired::value) is then read from them: the names are a struct's
    /// or the keys of a map, and the values text, numbers in digits, bytes, or JSON where the type has a sequence, a map
    /// or a struct. A topic of bytes gets [`KeptValue::Fields`](crate::attach::KeptValue::Fields). Default: a hash is
    /// not copied.
    pub fn keep_fields(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|all| all.topic.fields = Fields::named(names.into_iter().map(Into::into)))
    }

    /// The same with all fields that a hash has. Of one that does not fit, nothing is kept. The names are read to find
    /// out, and the lengths of the values.
    pub fn keep_all_fields(self) -> Self {
        self.with(|all| all.topic.fields = Fields::All)
    }

    /// Also keeps copies of hashes, lists, sets and streams, as the server's DUMP writes them, if they
    /// are no larger than the cap. Making a dump costs the server time in proportion to the value.
    pub fn keep_dumps(self) -> Self {
        self.with(|all| all.topic.dumps = true)
    }

    /// What becomes of expiries of keys whose deadline had not been read before. Default: they fire.
    ///
    /// With [`Treatment::Fire`] the handler runs without a value and without a known deadline. Whoever may PUBLISH on the
    /// channel of expired events can make it run this way. With [`Treatment::Ignore`] an expiry counts only if the key's
    /// deadline was read, and has passed. What expires sooner than it can be read is lost.
    pub fn unenrolled(self, treatment: Treatment) -> Self {
        self.with(|all| all.topic.unenrolled = treatment)
    }

    /// What becomes of keys that are gone at their deadline though nothing was missed, and did not expire: they were deleted
    /// or evicted. Default: they are forgotten. With [`Treatment::Fire`] handlers also run for keys that their writer has
    /// deleted, unless the deletion was heard.
    pub fn vanished(self, treatment: Treatment) -> Self {
        self.with(|all| all.topic.vanished = treatment)
    }

    /// What becomes of keys that are gone when something may have been missed: after a gap, or when all listeners
    /// were down. Nobody knows whether they expired or were deleted. Default: they fire.
    ///
    /// With [`Treatment::Fire`] the handler runs as [`Expiry::Recovered`](crate::Expiry::Recovered): also for keys that were
    /// deleted or renamed while nobody listened. With [`Treatment::Ignore`] what expired while nobody listened is lost. Should another listener have heard it, and say
    /// so later, its handler runs without the value. Where [`unenrolled`](Self::unenrolled) keys are ignored, too, it does
    /// not run. A listener that hears nothing at all ([`EventMode::Blind`](crate::health::EventMode::Blind)) then fires nothing.
    pub fn recovered(self, treatment: Treatment) -> Self {
        self.with(|all| all.topic.recovered = treatment)
    }

    /// Writes the key back when its handler fails, with the time to live of the retry and, as [`WriteBack`] says, the
    /// next attempt number, if the name is free. Default: retries live in keylapse's index alone.
    ///
    /// **A key that is written back exists again**: a session is valid again, a lock is held again, an
    /// unpaid order can be paid again. A key that its writer has created meanwhile is never touched; then
    /// the retry gives way to it. Needs [`keep_values`](Self::keep_values), but for [`WriteBack::counting`].
    pub fn write_back(self, how: WriteBack) -> Self {
        self.with(|all| all.topic.write_back = how.0)
    }

    /// Which revision of the topic's policy this is. All listeners of a topic treat its keys alike: by what the highest
    /// revision says of [`unenrolled`](Self::unenrolled), [`vanished`](Self::vanished), [`recovered`](Self::recovered),
    /// [`keep_values`](Self::keep_values), [`keep_dumps`](Self::keep_dumps), [`keep_fields`](Self::keep_fields) and
    /// [`write_back`](Self::write_back). Raise it with each change of these, and restart the listeners. One of a lower revision
    /// follows from its next start on. One of the same that says something else does not start. Default: 1.
    pub fn revision(self, number: u32) -> Self {
        self.with(|all| all.revision = number)
    }

    /// Says that no deadline is ever brought forward: each change of a key's deadline makes it live longer, as
    /// requests do with a session. Then a key that is enrolled is not read when it is heard to be written, until
    /// shortly before the deadline that is known, which saves the server most of what `KExg$` costs where keys are
    /// extended all the time. Default: each change is read.
    ///
    /// Where it is not true, a deadline that was brought forward is not known: the key fires when the server
    /// happens to announce its expiry, at the latest at the deadline that was known before.
    pub fn deadlines_only_grow(self) -> Self {
        self.with(|all| all.only_extended = true)
    }

    /// How many keys are remembered at most. Beyond, keys are not enrolled, which is logged and counted;
    /// their expiries are heard all the same. Default: 1,000,000.
    pub fn cap(self, keys: usize) -> Self {
        self.with(|all| all.cap = keys)
    }

    /// How many keys of the database a scan looks at in a second, ours or not. Default: 50,000. A scan that serves
    /// several topics of a listener goes by the smallest.
    pub fn scan_rate(self, keys_per_second: u32) -> Self {
        self.with(|all| all.scan_rate = keys_per_second)
    }

    /// How long after a scan has ended the next begins; there is also one at the start and after each
    /// gap. Default: 5 min. Where all that is written is heard (`KExg$`), and scans find nothing new, it becomes up to
    /// 16 times as long.
    pub fn scan_every(self, pause: Duration) -> Self {
        self.with(|all| all.scan_every = pause.min(MAX_DELAY)) // what is added to a moment must not overflow it
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

/// How often a listener that runs says its policy again: so it stands for those that start, if the database was emptied.
const EVERY: Duration = Duration::from_secs(60);

/// At the start of a listener, of each of its attached topics.
///
/// # Errors
/// When a topic's policy contradicts the one that stands, or cannot be read.
pub(crate) async fn agree(runtime: &Runtime) -> Result<()> {
    let topics = runtime.attached_topics().map(|topic| agree_on(runtime, topic));
    try_join_all(topics).await.map(drop)
}

async fn agree_on(runtime: &Runtime, topic: &RunningTopic) -> Result<()> {
    let heals = |error: &Error, _| error.is_transient();
    let other = match retry(None, |_| false, heals, |_| other_policy(runtime, topic)).await {
        // The partition parks and reports.
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
    topic.follow(Policy { revision: stands, topic: other.policy, ..own.clone() });
    Ok(())
}

/// Compares for as long as a listener runs. A change of policy is a restart, so none is followed here.
pub(super) async fn keep_comparing(runtime: Arc<Runtime>) {
    loop {
        tokio::time::sleep(EVERY).await;
        for topic in runtime.attached_topics() {
            match other_policy(&runtime, topic).await {
                Ok(other) => other.iter().for_each(|other| other.tell(topic)),
                Err(error) if !error.is_transient() => warn!(
                    ?topic, %error,
                    "the topic's policy in Redis is not followed: this listener goes on as before"
                ),
                Err(error) => debug!(%error, "the topic's policy is asked for again"),
            }
        }
    }
}

/// A policy that stands, and is not the one that a listener goes by.
struct Other {
    revision: u32,
    policy: TopicPolicy,
    differs: String,
}

/// Says which policy a listener goes by. Returns what stands then, if that is another.
async fn other_policy(runtime: &Runtime, topic: &RunningTopic) -> Result<Option<Other>> {
    let (first, own) = (&runtime.partitions_of(topic)[0], topic.policy());
    let stands = first.store.agree_on_policy(&first.names, own.revision, &own.topic.text()).await?;
    let StandingPolicy { revision, text } = stands;
    let policy = TopicPolicy::read(&text).map_err(|error| unreadable(topic, revision, &error))?;
    let differs = own.topic.differences(&policy);
    Ok((!differs.is_empty()).then_some(Other { revision, policy, differs }))
}

impl Other {
    fn tell(&self, topic: &RunningTopic) {
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
                "another policy of the same revision stands in Redis: this listener keeps its own, and would not start again"
            );
        }
    }
}

fn contradiction(topic: &RunningTopic, revision: u32, differs: &str) -> Error {
    let name = &topic.config.name;
    let message = format!(
        "attached topic {name}: its policy of revision {revision} is another one in Redis: {differs}; let both programs \
         say the same, or give the one that is to hold for all a higher Attached::revision"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn unreadable(topic: &RunningTopic, revision: u32, error: &Error) -> Error {
    let (name, own) = (&topic.config.name, topic.own_policy().revision);
    let message = format!(
        "attached topic {name}: its policy in Redis is of revision {revision}, this program's of {own}, and {error}; \
         a newer program has written it: upgrade this one, or give its policy a higher Attached::revision"
    );
    Error::new(error.kind(), message)
}
