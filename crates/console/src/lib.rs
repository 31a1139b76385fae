//! Operators' access to keylapse: topics by their names, without the types of their payloads.
//!
//! A [`Console`] finds the topics that programs have registered. Each of its queries costs the server bounded work, however
//! many timers exist. Its actions run the scripts that the calls of a [`Schedule`] run. The program `keylapse`, its HTTP API
//! and its web pages are thin layers over this crate.
//!
//! ```no_run
//! use keylapse_console::{Console, EntryState};
//!
//! # async fn example() -> keylapse::Result<()> {
//! let console = Console::connect("redis://127.0.0.1/").await?;
//! for topic in console.topics().await? {
//!     let overview = topic.overview().await?;
//!     println!("{}: {} timers, {} overdue", topic.name(), overview.timers, overview.overdue);
//! }
//! let orders = console.topic("order.unpaid").await?;
//! let page = orders.page(EntryState::Dead, None, 50).await?;
//! println!("{} dead letters", page.entries.len());
//! # Ok(())
//! # }
//! ```
//!
//! Topics, entries, reports and findings implement [`Serialize`]. In JSON, times are milliseconds since 1970 by the server's
//! clock; keys and payloads are printable ASCII with escapes (see [`text`]).

#![forbid(unsafe_code)]

mod act;
mod alarms;
mod bulk;
mod destroy;
pub mod doctor;
mod entry;
mod filter;
pub mod format;
mod journal;
mod listing;
mod overview;
mod repartition;
mod status;
mod survey;
mod tail;
pub mod text;
mod transfer;
mod why;

pub use self::act::{Action, ActionResult};
pub use self::alarms::{Alarm, AlarmKind, Breach, CheckReport, Limits, MaxUndelivered};
pub use self::bulk::{Bulk, BulkEnd, BulkReport};
pub use self::destroy::{DestroyRequest, Destroyed};
pub use self::entry::{Entry, EntryState};
pub use self::filter::{Filter, parse_span, show_span};
pub use self::journal::{JournalCursor, JournalEntry, JournalPage};
pub use self::listing::{Cursor, Page};
pub use self::overview::{Overview, Rates};
pub use self::repartition::{RepartitionRequest, Repartitioned};
pub use self::status::{AttemptSummary, Status, TopicState, TopicStatus};
pub use self::survey::{MissingFigure, Survey, SurveyRequest, WatchedKeys};
pub use self::tail::{Missed, Tail, TailEvent, TailItem};
pub use self::transfer::{Export, Fault, ImportReport, VerifyReport};
pub use self::why::{KeyExplanation, TimelineEvent};

use keylapse::inside::{self, ClientInside as _, ScheduleInside as _};
use keylapse_connection::{self as connection, error, id, log};
use keylapse_pattern::{self as pattern, escape};
use keylapse_wire::{self as wire, figures, policy, time, trace};

use keylapse::{Client, Schedule};

pub use keylapse_wire::figures::{counted, show_count};

pub use crate::wire::Ending;
pub use crate::wire::JournalBounds;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use keylapse::Topic;
use keylapse::inside::{TopicConfig, TopicInside as _};
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::figures::MAX_DESTINATION;
use crate::policy::Policy;
use crate::wire::{ListenerReport, PartitionNames, Store, TopicEntry, listeners};

/// Access to the topics of a namespace for operators. Cloning is cheap; clones share a connection.
#[derive(Clone, Debug)]
pub struct Console {
    client: Client,
    schedule: Schedule,
}

impl Console {
    /// Connects to a server, given by its URL or as a [`Client`].
    ///
    /// # Errors
    /// Returns the errors of [`Schedule::connect`].
    pub async fn connect<C>(client: C) -> Result<Self>
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        let console = Self::new(client.try_into().map_err(Into::into)?);
        console.client.check_settings()?;
        console.store().reach(console.namespace()).await?;
        Ok(console)
    }

    /// Returns a console that connects when it is first used.
    pub fn new(client: Client) -> Self {
        let schedule = Schedule::new(client.clone());
        Self { client, schedule }
    }

    /// Returns the last report of each live listener, as [`Schedule::listeners`] does.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn listeners(&self) -> Result<Vec<ListenerReport>> {
        self.schedule.listeners().await
    }

    /// Returns the last report of each listener, silent listeners included. Redis keeps a report for ten minutes.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn reports(&self) -> Result<Vec<ListenerReport>> {
        let hash = listeners(self.namespace());
        self.retry_until_answered(|_| self.store().reports(&hash)).await
    }

    /// Asks each listener of a topic to call a blocked destination now, such as a host whose circuit is open. The next
    /// reports of the listeners show the result.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command, if no topic has this name, or if the
    /// destination is longer than 255 bytes.
    pub async fn try_now(&self, topic: &str, destination: &str) -> Result<ActionResult> {
        if destination.len() > MAX_DESTINATION {
            return Err(Error::invalid(format!(
                "the destination is longer than {MAX_DESTINATION} bytes: copy it from a listener's report"
            )));
        }
        self.topic(topic).await?.try_now(destination).await
    }

    /// Returns the addresses of the servers without user and password, such as `127.0.0.1:6379`, `h1:7000,h2:7001 (cluster)`
    /// or `h1:26379 (master shop of sentinels)`. A database other than 0 is included.
    pub fn servers(&self) -> String {
        self.store().target().to_string()
    }

    /// Returns the prefix of all names in Redis.
    pub fn namespace(&self) -> &str {
        self.client.prefix()
    }

    fn store(&self) -> &Store {
        self.client.store()
    }

    /// Repeats a call until it is answered or refused, or the client's `retry_for` has passed.
    async fn retry_until_answered<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnMut(bool) -> F,
    ) -> Result<T> {
        self.schedule.repeated(call).await
    }
}

/// A registered topic. Cloning is cheap.
#[derive(Clone)]
pub struct TopicHandle {
    console: Console,
    topic: Topic<Bytes>,
    /// Computed when first used, because a list of topics needs none.
    partitions: Arc<OnceLock<Vec<PartitionNames>>>,
}

/// A registry entry that cannot be read, because another version of keylapse or another program has written it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadableTopic {
    /// The topic's name, as [`text`] writes it.
    pub name: String,
    /// The reason.
    pub problem: String,
}

/// The topics that are registered in a namespace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Registry {
    /// The topics, sorted by name.
    pub topics: Vec<TopicHandle>,
    /// The entries that cannot be read, sorted by name.
    pub unreadable: Vec<UnreadableTopic>,
}

#[derive(Serialize)]
struct TopicJson<'a> {
    name: &'a str,
    pattern: &'a str,
    partitions: u32,
    attached: bool,
    marker_keys: bool,
}

impl Console {
    /// Returns the topics of the namespace, sorted by name, without the entries that cannot be read.
    /// [`registry`](Self::registry) returns those, too.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn topics(&self) -> Result<Vec<TopicHandle>> {
        Ok(self.registry().await?.topics)
    }

    /// Returns the topics with these names, or all topics if `names` is empty.
    ///
    /// # Errors
    /// Returns the errors of [`topic`](Self::topic).
    pub async fn topics_named<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<TopicHandle>> {
        let Registry { topics, unreadable } = self.registered(names).await?;
        match unreadable.first().filter(|_| !names.is_empty()) {
            Some(one) => Err(one.refusal()),
            None => Ok(topics),
        }
    }

    /// Returns the registry entries with these names, or all entries if `names` is empty.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](ErrorKind::Invalid) if no topic has one of the names. Returns an error if the
    /// server cannot be reached or refuses the command.
    pub async fn registered<S: AsRef<str>>(&self, names: &[S]) -> Result<Registry> {
        if names.is_empty() {
            return self.registry().await;
        }
        let mut registry = Registry::default();
        for name in names {
            registry.add(self.find(name.as_ref()).await?);
        }
        Ok(registry)
    }

    /// Returns all registry entries of the namespace.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn registry(&self) -> Result<Registry> {
        let (entries, unreadable) =
            self.retry_until_answered(|_| self.store().registry(self.namespace())).await?;
        let mut registry = Registry::default();
        entries.iter().for_each(|entry| registry.add(TopicHandle::new(self, entry)));
        let unreadable = unreadable.into_iter().map(|(name, why)| UnreadableTopic::new(&name, why));
        registry.unreadable.extend(unreadable);
        registry.unreadable.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(registry)
    }

    /// Returns the topic with this name.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](ErrorKind::Invalid) if no topic has this name; its message lists similar names.
    /// Returns an error of kind [`WireVersion`](ErrorKind::WireVersion) if the topic's entry cannot be read. Returns an
    /// error if the server cannot be reached or refuses the command.
    pub async fn topic(&self, name: &str) -> Result<TopicHandle> {
        self.find(name).await?.map_err(|unreadable| unreadable.refusal())
    }

    async fn find(&self, name: &str) -> Result<Result<TopicHandle, UnreadableTopic>> {
        match self.retry_until_answered(|_| self.store().registered_as(self.namespace(), name)).await? {
            Some(Ok(entry)) => Ok(TopicHandle::new(self, &entry)),
            Some(Err(why)) => Ok(Err(UnreadableTopic::new(name.as_bytes(), why))),
            None => Err(self.no_such_topic(name).await),
        }
    }

    /// Returns the topics whose patterns match a key.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn topics_of(&self, key: &[u8]) -> Result<Vec<TopicHandle>> {
        let mut topics = self.topics().await?;
        topics.retain(|topic| topic.config().pattern.is_match(key));
        Ok(topics)
    }

    async fn no_such_topic(&self, name: &str) -> Error {
        let all = self.topics().await.unwrap_or_default();
        let mut nearest: Vec<_> =
            all.iter().map(|topic| (distance(topic.name(), name), topic.name())).collect();
        nearest.sort_unstable();
        let nearest: Vec<_> = nearest.iter().take(3).map(|(_, name)| *name).collect();
        let advice = match &nearest[..] {
            [] => format!(
                "none is registered in namespace {}; programs register theirs when they first use them",
                self.namespace()
            ),
            some => format!("the nearest of {}: {}", counted(all.len() as u64, "topic"), some.join(", ")),
        };
        let name = crate::escape::excerpt(name.as_bytes());
        Error::new(ErrorKind::Invalid, format!("no topic is called {name}: {advice}"))
    }
}

impl Registry {
    fn add(&mut self, found: Result<TopicHandle, UnreadableTopic>) {
        match found {
            Ok(topic) => self.topics.push(topic),
            Err(unreadable) => self.unreadable.push(unreadable),
        }
    }
}

impl UnreadableTopic {
    fn new(name: &[u8], problem: String) -> Self {
        Self { name: text::escape(name), problem }
    }

    fn refusal(&self) -> Error {
        let Self { name, problem } = self;
        Error::new(ErrorKind::WireVersion, format!("topic {name} cannot be read: {problem}"))
    }
}

impl TopicHandle {
    fn new(console: &Console, entry: &TopicEntry) -> Result<Self, UnreadableTopic> {
        let mut topic = Topic::raw_named(&entry.name, &entry.pattern)
            .map_err(|error| UnreadableTopic::new(entry.name.as_bytes(), error.to_string()))?;
        topic = topic
            .partitions(entry.partitions)
            .marker_keys(entry.marker_keys)
            .payload_limit(keylapse::limits::MAX_PAYLOAD);
        // The programs that attach the topic decide which prefixes are allowed. The console allows all.
        topic.config_mut().attach = entry.attached.then(|| Policy { any_prefix: true, ..Policy::default() });
        topic.config_mut().max_delay = keylapse::limits::MAX_DELAY;
        Ok(Self { console: console.clone(), topic, partitions: Arc::default() })
    }

    /// Returns the topic's name.
    pub fn name(&self) -> &str {
        self.topic.name()
    }

    /// Returns the pattern of the topic's keys.
    pub fn pattern(&self) -> &str {
        self.config().pattern.as_str()
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> u32 {
        self.config().partitions
    }

    /// Returns whether other programs write the topic's keys.
    pub fn is_attached(&self) -> bool {
        self.config().attach.is_some()
    }

    /// Returns whether the topic's pattern matches a key.
    pub fn matches(&self, key: &[u8]) -> bool {
        self.config().pattern.is_match(key)
    }

    fn config(&self) -> &TopicConfig {
        self.topic.config()
    }

    /// Returns the console's schedule after it has taken over the topic's partitions as registered.
    fn schedule(&self) -> &Schedule {
        self.console.schedule.take_as_registered(self.config());
        &self.console.schedule
    }

    fn partition_names(&self) -> &[PartitionNames] {
        self.partitions.get_or_init(|| self.config().all_partitions(self.console.namespace()))
    }

    fn partition_of(&self, key: &[u8]) -> &PartitionNames {
        &self.partition_names()[self.config().partition_of(key)]
    }
}

impl fmt::Debug for TopicHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicHandle({})", self.name())
    }
}

impl Serialize for TopicHandle {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let shown = TopicJson {
            name: self.name(),
            pattern: self.pattern(),
            partitions: self.partitions(),
            attached: self.is_attached(),
            marker_keys: self.config().marker_keys,
        };
        shown.serialize(out)
    }
}

/// Returns the Levenshtein distance in bytes. Only the first 128 bytes of `other` count.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.bytes().take(128).collect();
    let mut row: Vec<_> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let changed = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_takes_the_fewest_changes() {
        for (one, other, changes) in [("a", "a", 0), ("abc", "abd", 1), ("order", "oders", 2), ("", "ab", 2)]
        {
            assert_eq!(distance(one, other), changes, "{one} {other}");
        }
    }

    #[test]
    fn each_documented_default_is_so() {
        let console = Console::new(Client::new("redis://localhost").expect("a URL"));
        let survey = format!("{:?}", console.survey("a:{id}").expect("a pattern"));
        for (documented, value) in [
            ("Default: 1,000,000.", "cap: 1000000"),
            ("Default: 50,000.", "scan_rate: 50000"),
            ("Default: 10 s.", "watch: 10s"),
        ] {
            assert!(include_str!("survey.rs").contains(documented) && survey.contains(value), "{documented}");
        }
        assert!(format!("{:?}", console.doctor()).contains("measure: None"));
        let topic = Topic::raw("a:{id}").expect("a pattern");
        let repartition = format!("{:?}", console.repartition(&topic, 2));
        assert!(
            include_str!("repartition/mod.rs").contains("Default: 2 min.")
                && repartition.contains("wait: 120s")
        );
    }
}
