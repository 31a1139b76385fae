//! What an operator sees and does: topics by their names, without the types of their payloads.
//!
//! A [`Console`] finds topics where their programs have registered them. What it shows costs the server bounded work,
//! however much there is; what it does is done by the same scripts as a [`Schedule`]'s calls. The program `keylapse`
//! is a thin layer over it, so that whatever one can do, all can.
//!
//! ```no_run
//! use keylapse_console::{Console, EntryState};
//!
//! # async fn look() -> keylapse::Result<()> {
//! let console = Console::connect("redis://127.0.0.1/").await?;
//! for topic in console.topics().await? {
//!     let overview = topic.overview().await?;
//!     println!("{}: {} timers, {} overdue", topic.name(), overview.timers, overview.overdue);
//! }
//! let orders = console.topic("order.unpaid").await?;
//! let page = orders.page(EntryState::Dead, None, 50).await?;
//! println!("{} letters", page.entries.len());
//! # Ok(())
//! # }
//! ```
//!
//! Everything that is shown can be written as JSON: times are milliseconds since 1970 by the server's clock, keys and
//! payloads printable ASCII with escapes (see [`text`]).

#![forbid(unsafe_code)]

mod act;
mod alarms;
mod bulk;
mod destroy;
pub mod doctor;
mod entry;
mod filter;
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
pub mod words;

pub use self::act::{Action, Done};
pub use self::alarms::{Alarm, AlarmKind, Breach, Checked, Limits, MaxUndelivered};
pub use self::bulk::{Bulk, BulkEnd, BulkReport};
pub use self::destroy::{DestroyRequest, Destroyed};
pub use self::entry::{Entry, EntryState};
pub use self::filter::{Filter, parse_span, show_span};
pub use self::journal::{JournalCursor, JournalEntry, JournalPage};
pub use self::listing::{Cursor, Page};
pub use self::overview::{Overview, Rates};
pub use self::repartition::{RepartitionRequest, Repartitioned};
pub use self::status::{Recent, Status, TopicStanding, TopicStatus};
pub use self::survey::{MissingFigure, Survey, SurveyRequest, Watched};
pub use self::tail::{Missed, Tail, TailEvent, Tailed};
pub use self::transfer::{Export, Fault, ImportReport, Verified};
pub use self::why::{Moment, Why};

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

/// The operator's door to the topics of a namespace. Cheap to clone; clones share a connection.
#[derive(Clone, Debug)]
pub struct Console {
    client: Client,
    schedule: Schedule,
}

impl Console {
    /// Connects to a server, given by its URL or as a [`Client`].
    ///
    /// # Errors
    /// As for [`Schedule::connect`].
    pub async fn connect<C>(client: C) -> Result<Self>
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        let console = Self::new(client.try_into().map_err(Into::into)?);
        console.client.check_settings()?;
        console.store().reach(console.namespace()).await?;
        Ok(console)
    }

    /// A console that connects when it is first used.
    pub fn new(client: Client) -> Self {
        let schedule = Schedule::new(client.clone());
        Self { client, schedule }
    }

    /// What each listener said of itself last, as [`Schedule::listeners`].
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn listeners(&self) -> Result<Vec<ListenerReport>> {
        self.schedule.listeners().await
    }

    /// The same, with those that have said nothing since: a report is forgotten after ten minutes.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn reports(&self) -> Result<Vec<ListenerReport>> {
        let hash = listeners(self.namespace());
        self.persist(|_| self.store().reports(&hash)).await
    }

    /// Asks each listener of a topic to call a destination now that it holds back, such as a host whose circuit is open.
    /// How that went is in their next reports.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, there is no such topic, or the name is longer than 255 bytes.
    pub async fn try_now(&self, topic: &str, destination: &str) -> Result<Done> {
        if destination.len() > MAX_DESTINATION {
            return Err(Error::invalid(format!(
                "a destination has at most {MAX_DESTINATION} bytes: take one that is reported"
            )));
        }
        self.topic(topic).await?.try_now(destination).await
    }

    /// Returns where the servers are, without user and password, such as `127.0.0.1:6379`, `h1:7000,h2:7001 (cluster)` or
    /// `h1:26379 (master shop of sentinels)`, with the database where that is not 0.
    pub fn servers(&self) -> String {
        self.store().target().to_string()
    }

    /// The prefix of all names in Redis.
    pub fn namespace(&self) -> &str {
        self.client.prefix()
    }

    fn store(&self) -> &Store {
        self.client.store()
    }

    /// Makes a call until it is answered or refused, or the client's patience has run out.
    async fn persist<T, F: Future<Output = Result<T>>>(&self, call: impl FnMut(bool) -> F) -> Result<T> {
        self.schedule.repeated(call).await
    }
}

/// A topic that somebody has registered. Cheap to clone.
#[derive(Clone)]
pub struct KnownTopic {
    console: Console,
    topic: Topic<Bytes>,
    /// Made when they are first used: a list of topics needs none.
    partitions: Arc<OnceLock<Vec<PartitionNames>>>,
}

/// What is registered as a topic and cannot be read: another version of keylapse has written it, or somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadableTopic {
    /// Its name, as [`text`] writes it.
    pub name: String,
    /// Why it cannot be read.
    pub problem: String,
}

/// What is registered in a namespace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Registry {
    /// The topics, by name.
    pub topics: Vec<KnownTopic>,
    /// What cannot be read, by name.
    pub unreadable: Vec<UnreadableTopic>,
}

/// What is written of it as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    pattern: &'a str,
    partitions: u32,
    attached: bool,
    triggers: bool,
}

impl Console {
    /// The topics of the namespace, by name. What cannot be read is left out: [`registry`](Self::registry) has it.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn topics(&self) -> Result<Vec<KnownTopic>> {
        Ok(self.registry().await?.topics)
    }

    /// The topics with these names; all, where none is said.
    ///
    /// # Errors
    /// As for [`topic`](Self::topic).
    pub async fn topics_named<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<KnownTopic>> {
        let Registry { topics, unreadable } = self.registered(names).await?;
        match unreadable.first().filter(|_| !names.is_empty()) {
            Some(one) => Err(one.refusal()),
            None => Ok(topics),
        }
    }

    /// What is registered under these names; all, where none is said. What cannot be read stands by itself.
    ///
    /// # Errors
    /// Of kind [`Invalid`](ErrorKind::Invalid) if there is nothing under a name. When the server cannot be reached or
    /// refuses.
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

    /// All that is registered in the namespace. What cannot be read stands by itself.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn registry(&self) -> Result<Registry> {
        let (entries, unreadable) = self.persist(|_| self.store().registry(self.namespace())).await?;
        let mut registry = Registry::default();
        entries.iter().for_each(|entry| registry.add(KnownTopic::new(self, entry)));
        let unreadable = unreadable.into_iter().map(|(name, why)| UnreadableTopic::new(&name, why));
        registry.unreadable.extend(unreadable);
        registry.unreadable.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(registry)
    }

    /// The topic with this name.
    ///
    /// # Errors
    /// Of kind [`Invalid`](ErrorKind::Invalid) if there is none, naming those that are nearest; of kind
    /// [`WireVersion`](ErrorKind::WireVersion) if it cannot be read. When the server cannot be reached or refuses.
    pub async fn topic(&self, name: &str) -> Result<KnownTopic> {
        self.find(name).await?.map_err(|unreadable| unreadable.refusal())
    }

    async fn find(&self, name: &str) -> Result<Result<KnownTopic, UnreadableTopic>> {
        match self.persist(|_| self.store().registered_as(self.namespace(), name)).await? {
            Some(Ok(entry)) => Ok(KnownTopic::new(self, &entry)),
            Some(Err(why)) => Ok(Err(UnreadableTopic::new(name.as_bytes(), why))),
            None => Err(self.no_such_topic(name).await),
        }
    }

    /// The topics whose patterns match a key.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn topics_of(&self, key: &[u8]) -> Result<Vec<KnownTopic>> {
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
            some => format!("of {} the nearest: {}", counted(all.len() as u64, "topic"), some.join(", ")),
        };
        let name = crate::escape::excerpt(name.as_bytes());
        Error::new(ErrorKind::Invalid, format!("no topic is called {name}: {advice}"))
    }
}

impl Registry {
    fn add(&mut self, found: Result<KnownTopic, UnreadableTopic>) {
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

impl KnownTopic {
    fn new(console: &Console, entry: &TopicEntry) -> Result<Self, UnreadableTopic> {
        let mut topic = Topic::raw_named(&entry.name, &entry.pattern)
            .map_err(|error| UnreadableTopic::new(entry.name.as_bytes(), error.to_string()))?;
        topic = topic
            .partitions(entry.partitions)
            .triggers(entry.triggers)
            .payload_limit(keylapse::limits::MAX_PAYLOAD);
        // The programs that attach it say whether any prefix is allowed.
        topic.config_mut().attach = entry.attached.then(|| Policy { any_prefix: true, ..Policy::default() });
        topic.config_mut().max_delay = keylapse::limits::MAX_DELAY;
        Ok(Self { console: console.clone(), topic, partitions: Arc::default() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.topic.name()
    }

    /// The pattern of its keys.
    pub fn pattern(&self) -> &str {
        self.config().pattern.as_str()
    }

    /// How many partitions it has.
    pub fn partitions(&self) -> u32 {
        self.config().partitions
    }

    /// Whether other programs write its keys.
    pub fn is_attached(&self) -> bool {
        self.config().attach.is_some()
    }

    /// Whether a key can be one of its keys.
    pub fn matches(&self, key: &[u8]) -> bool {
        self.config().pattern.is_match(key)
    }

    fn config(&self) -> &TopicConfig {
        self.topic.config()
    }

    /// The console's schedule, to which the topic's partitions are known.
    fn schedule(&self) -> &Schedule {
        self.console.schedule.take_as_registered(self.config());
        &self.console.schedule
    }

    /// Its partitions.
    fn parts(&self) -> &[PartitionNames] {
        self.partitions.get_or_init(|| self.config().all_partitions(self.console.namespace()))
    }

    /// The partition of a key.
    fn partition_of(&self, key: &[u8]) -> &PartitionNames {
        &self.parts()[self.config().partition_of(key)]
    }
}

impl fmt::Debug for KnownTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownTopic({})", self.name())
    }
}

impl Serialize for KnownTopic {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let shown = Shown {
            name: self.name(),
            pattern: self.pattern(),
            partitions: self.partitions(),
            attached: self.is_attached(),
            triggers: self.config().triggers,
        };
        shown.serialize(out)
    }
}

/// How many characters have to change to make one name of the other.
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
            ("Default: 10 s; 0: not at all.", "watch: 10s"),
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
