//! How all topics are, and who serves them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::figures::{Destination, Distribution};
use crate::wire::{ListenerReport, RecentAttempts};
use crate::{Console, KnownTopic, Overview, Registry, UnreadableTopic, overview};

/// Topics whose partitions are asked in one go.
const AT_A_TIME: usize = 100;

/// How a topic stands, by the worst that is so of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicStanding {
    /// It can be used.
    #[default]
    Fine,
    /// It holds timers, or expects keys to expire, and nobody serves it.
    Unserved,
    /// Nothing is given out.
    Paused,
    /// What its handlers call does not answer, or asks to be called later: timers wait for that.
    HeldBack,
    /// Most attempts of the last five minutes have failed.
    Failing,
    /// It is being destroyed or repartitioned, or of another wire version.
    Closed,
    /// It cannot be read.
    Unreadable,
}

impl TopicStanding {
    /// A word for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Unserved => "unserved",
            Self::Paused => "paused",
            Self::HeldBack => "held back",
            Self::Failing => "failing",
            Self::Closed => "closed",
            Self::Unreadable => "unreadable",
        }
    }

    /// Whether somebody has to look at it. A pause is somebody's wish.
    pub fn is_alarm(self) -> bool {
        !matches!(self, Self::Fine | Self::Paused)
    }
}

/// How everything is.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The topics, by name.
    pub topics: Vec<TopicStatus>,
    /// What is registered as a topic and cannot be read.
    pub unreadable: Vec<UnreadableTopic>,
    /// Topics beyond those that were asked for.
    pub more_topics: u64,
    /// The listeners.
    pub listeners: Vec<ListenerReport>,
    /// Listeners that have not reported for seven seconds: they have ended without a word, stand still, or cannot reach the
    /// server. One is forgotten after ten minutes, or once one that was started on the same machine since then serves all of
    /// its topics.
    pub silent: Vec<ListenerReport>,
}

/// How a topic is.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TopicStatus {
    /// The topic.
    #[serde(flatten)]
    pub topic: KnownTopic,
    /// What it holds.
    #[serde(flatten)]
    pub overview: Overview,
    /// Why that cannot be said: then all of it is 0.
    pub problem: Option<String>,
    /// Listeners that serve it.
    pub listeners: usize,
    /// Attempts that run, as the listeners have said last: every five seconds they do.
    pub running: usize,
    /// Attempts that may run.
    pub limit: usize,
    /// Attempts that ended well, since the listeners were started.
    pub handled: u64,
    /// Failed attempts, since the listeners were started.
    pub failed: u64,
    /// Attempts of the last five minutes; none where no listener has said.
    pub last_5m: Option<Recent>,
    /// Attempts of the last hour.
    pub last_1h: Option<Recent>,
    /// The places that handlers call, such as hosts, the worst first: up to twenty of each listener. Of one that several
    /// listeners call, what is worst.
    pub destinations: Vec<Destination>,
    /// How many different things its listeners do with what is due, such as calls of other URLs: more than one is a mistake.
    pub different_handlers: usize,
}

/// Attempts of a span of time that ends now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recent {
    /// Those that ended well.
    pub handled: u64,
    /// Those that failed.
    pub failed: u64,
    /// How late half of the attempts were started at most, in µs.
    pub late_p50_us: Option<u64>,
    /// The same of 99 in 100.
    pub late_p99_us: Option<u64>,
}

impl Recent {
    /// The share of the attempts that failed.
    pub fn failing(&self) -> Option<f64> {
        let all = self.handled + self.failed;
        (all > 0).then(|| self.failed as f64 / all as f64)
    }

    /// Whether most failed, and more than two.
    fn is_failing(&self) -> bool {
        self.failed > 2 && self.failed >= self.handled
    }
}

impl TopicStatus {
    /// How it stands.
    pub fn standing(&self) -> TopicStanding {
        match &self.overview {
            _ if self.problem.is_some() => TopicStanding::Unreadable,
            held if held.closed.is_some() => TopicStanding::Closed,
            held if held.paused.is_some() => TopicStanding::Paused,
            _ if self.is_unserved() => TopicStanding::Unserved,
            _ if self.held_back().next().is_some() => TopicStanding::HeldBack,
            _ if self.last_5m.as_ref().is_some_and(Recent::is_failing) => TopicStanding::Failing,
            _ => TopicStanding::Fine,
        }
    }

    /// Whether it holds timers, or expects keys to expire, and nobody serves it: an alarm.
    pub fn is_unserved(&self) -> bool {
        self.overview.timers + self.overview.enrolled > 0 && self.listeners == 0
    }

    /// The destinations that timers wait for; none where nothing is undelivered.
    pub fn held_back(&self) -> impl Iterator<Item = &Destination> {
        let waits = self.overview.undelivered > 0;
        self.destinations.iter().filter(move |one| waits && one.state.holds_back())
    }

    /// The share of the attempts of the last five minutes that failed.
    pub fn failing(&self) -> Option<f64> {
        self.last_5m.as_ref()?.failing()
    }
}

impl Console {
    /// How the topics are that come first by name, as many as these, and who listens.
    ///
    /// It costs the server some microseconds for each partition of these topics. What the listeners say is up to five
    /// seconds old.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses. A topic that cannot be read says so in its own place.
    pub async fn status(&self, most: usize) -> Result<Status> {
        let mut registry = self.registry().await?;
        let Registry { topics, unreadable } = &mut registry;
        let more_topics = (topics.len().saturating_sub(most) + unreadable.len().saturating_sub(most)) as u64;
        topics.truncate(most);
        unreadable.truncate(most);
        Ok(Status { more_topics, ..self.status_in(registry).await? })
    }

    /// The same of the topics with these names and of the listeners that serve one of them; of all, where none is named.
    ///
    /// # Errors
    /// As for [`registered`](Self::registered).
    pub async fn status_named<S: AsRef<str>>(&self, names: &[S]) -> Result<Status> {
        let mut status = self.status_in(self.registered(names).await?).await?;
        let serves = |listener: &ListenerReport| {
            names.is_empty() || names.iter().any(|name| listener.serves(name.as_ref()))
        };
        status.listeners.retain(serves);
        status.silent.retain(serves);
        Ok(status)
    }

    async fn status_in(&self, registry: Registry) -> Result<Status> {
        let Registry { topics, unreadable } = registry;
        let fleet = self.fleet().await?;
        let topics = self.status_of(&topics, &fleet.listeners).await;
        Ok(Status { topics, unreadable, ..fleet })
    }

    /// Returns the listeners, the silent ones too, without any topics.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn fleet(&self) -> Result<Status> {
        let mut listeners = self.reports().await?;
        let is_missed =
            |one: &&ListenerReport| one.is_silent() && !listeners.iter().any(|other| other.replaces(one));
        let silent = listeners.iter().filter(is_missed).cloned().collect();
        listeners.retain(ListenerReport::is_present);
        Ok(Status { listeners, silent, ..Status::default() })
    }

    /// The same of these topics, by what these listeners have said.
    pub async fn status_of(&self, topics: &[KnownTopic], listeners: &[ListenerReport]) -> Vec<TopicStatus> {
        let mut all = Vec::with_capacity(topics.len());
        for some in topics.chunks(AT_A_TIME) {
            let partitions: Vec<_> = some.iter().map(KnownTopic::parts).collect();
            let overviews = overview::overviews(self.store(), &partitions).await;
            all.extend(
                some.iter().zip(overviews).map(|(topic, overview)| of_topic(topic, overview, listeners)),
            );
        }
        all
    }
}

fn of_topic(topic: &KnownTopic, overview: Result<Overview>, listeners: &[ListenerReport]) -> TopicStatus {
    let reports: Vec<_> = listeners.iter().filter_map(|listener| listener.topics.get(topic.name())).collect();
    let count = |name: &str| reports.iter().filter_map(|report| report.counts.get(name)).sum();
    TopicStatus {
        topic: topic.clone(),
        problem: overview.as_ref().err().map(ToString::to_string),
        overview: overview.unwrap_or_default(),
        listeners: reports.len(),
        running: reports.iter().map(|report| report.running).sum(),
        limit: reports.iter().map(|report| report.limit).sum(),
        handled: count("handled"),
        failed: count("failed"),
        last_5m: recent(reports.iter().filter_map(|report| report.last_5m.as_ref())),
        last_1h: recent(reports.iter().filter_map(|report| report.last_1h.as_ref())),
        destinations: destinations(topic.name(), listeners),
        different_handlers: reports
            .iter()
            .filter_map(|report| report.identity.as_ref())
            .collect::<BTreeSet<_>>()
            .len(),
    }
}

/// The sum of what listeners have said.
fn recent<'a>(all: impl Iterator<Item = &'a RecentAttempts>) -> Option<Recent> {
    let (mut sum, mut lateness) = (None::<Recent>, Distribution::default());
    for one in all {
        let sum = sum.get_or_insert_default();
        (sum.handled, sum.failed) = (sum.handled + one.handled, sum.failed + one.failed);
        lateness.add(&one.lateness);
    }
    let late = |share| lateness.quantile(share).map(micros);
    sum.map(|sum| Recent { late_p50_us: late(0.5), late_p99_us: late(0.99), ..sum })
}

/// Each once, by what is worst of it, as it is now.
pub(super) fn destinations(topic: &str, listeners: &[ListenerReport]) -> Vec<Destination> {
    let mut worst = BTreeMap::<String, Destination>::new();
    for listener in listeners {
        for one in listener.topics.get(topic).iter().flat_map(|report| &report.destinations) {
            let retry_in_ms = one.retry_in_ms.map(|ms| ms.saturating_sub(listener.age_ms));
            let mut one = one.clone();
            one.retry_in_ms = retry_in_ms;
            match worst.entry(one.name.clone()) {
                Entry::Vacant(free) => _ = free.insert(one),
                Entry::Occupied(mut there)
                    if (there.get().state, there.get().failures) < (one.state, one.failures) =>
                {
                    there.insert(one);
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    let mut all: Vec<_> = worst.into_values().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.state));
    all
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
