//! Topics, as their programs have registered them.

use keylapse::inside::ScheduleInside as _;
use keylapse::inside::TopicInside as _;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::policy::Policy;
use crate::{Console, counted, text};
use keylapse::Schedule;
use keylapse::Topic;

use crate::inside::TopicConfig;
use crate::wire::{PartitionNames, TopicEntry};

/// A topic that somebody has registered. Cheap to clone.
#[derive(Clone)]
pub struct KnownTopic {
    pub(super) console: Console,
    pub(super) topic: Topic<Bytes>,
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
    pub(super) fn new(name: &[u8], problem: String) -> Self {
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
        topic =
            topic.partitions(entry.partitions).triggers(entry.triggers).payload_limit(keylapse::MAX_PAYLOAD);
        // The programs that attach it say whether any prefix is allowed.
        topic.config_mut().attach = entry.attached.then(|| Policy { any_prefix: true, ..Policy::default() });
        topic.config_mut().max_delay = keylapse::MAX_DELAY;
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

    pub(super) fn config(&self) -> &TopicConfig {
        self.topic.config()
    }

    /// The console's schedule, to which the topic's partitions are known.
    pub(super) fn schedule(&self) -> &Schedule {
        self.console.schedule.take_as_registered(self.config());
        &self.console.schedule
    }

    /// Its partitions.
    pub(super) fn parts(&self) -> &[PartitionNames] {
        self.partitions.get_or_init(|| self.config().all_partitions(self.console.namespace()))
    }

    /// The partition of a key.
    pub(super) fn partition_of(&self, key: &[u8]) -> &PartitionNames {
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
}
