//! The status of topics and of the listeners that serve them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::figures::{Destination, Distribution};
use crate::wire::{ListenerReport, RecentAttempts};
use crate::{Console, Overview, Registry, TopicHandle, UnreadableTopic, overview};

const TOPICS_PER_REQUEST: usize = 100;

/// The state of a topic. If several apply, the first of unreadable, closed, paused, unserved, held back and failing counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicState {
    /// The topic works.
    #[default]
    Fine,
    /// The topic has timers or tracked keys, and no listener serves it.
    Unserved,
    /// The topic is paused: listeners claim none of its timers.
    Paused,
    /// Timers wait for a destination that does not answer or has asked for a later call.
    HeldBack,
    /// At least half of the attempts of the last five minutes have failed, and more than two.
    Failing,
    /// The topic is being destroyed or repartitioned, or has another wire version.
    Closed,
    /// The topic cannot be read.
    Unreadable,
}

impl TopicState {
    /// Returns the state's name, for tables.
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

    /// Returns whether the state needs an operator's attention. A pause does not, because an operator has asked for it.
    pub fn is_alarm(self) -> bool {
        !matches!(self, Self::Fine | Self::Paused)
    }
}

/// The status of topics and listeners.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The topics, sorted by name.
    pub topics: Vec<TopicStatus>,
    /// Registered topics that cannot be read.
    pub unreadable: Vec<UnreadableTopic>,
    /// The number of topics beyond the requested ones.
    pub more_topics: u64,
    /// The listeners.
    pub listeners: Vec<ListenerReport>,
    /// Listeners that have not reported for seven seconds: they have crashed, are blocked, or cannot reach the server.
    ///
    /// A silent listener is forgotten after ten minutes, or when a listener that was started later on the same machine
    /// serves all of its topics.
    pub silent_listeners: Vec<ListenerReport>,
}

/// The status of a topic.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TopicStatus {
    /// The topic.
    #[serde(flatten)]
    pub topic: TopicHandle,
    /// The counts of the topic.
    #[serde(flatten)]
    pub overview: Overview,
    /// The reason why the counts cannot be read. If it is set, all counts are 0.
    pub problem: Option<String>,
    /// The number of listeners that serve the topic.
    pub listeners: usize,
    /// Running attempts, by the last reports of the listeners. A listener reports every five seconds.
    pub running: usize,
    /// The number of attempts that can run at the same time, over all listeners.
    pub limit: usize,
    /// Successful attempts since the listeners were started.
    pub handled: u64,
    /// Failed attempts since the listeners were started.
    pub failed: u64,
    /// Attempts of the last five minutes, if a listener has reported them.
    pub last_5m: Option<AttemptSummary>,
    /// Attempts of the last hour, if a listener has reported them.
    pub last_1h: Option<AttemptSummary>,
    /// The destinations that handlers call, such as hosts, the worst first: up to twenty of each listener. A destination of
    /// several listeners appears once, with the worst state.
    pub destinations: Vec<Destination>,
    /// The number of different handlers among the topic's listeners, such as webhooks with different URLs. More than one is
    /// a mistake.
    pub handler_variants: usize,
}

/// The attempts of a recent span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AttemptSummary {
    /// Successful attempts.
    pub handled: u64,
    /// Failed attempts.
    pub failed: u64,
    /// The median lateness of the attempts, in µs.
    pub late_p50_us: Option<u64>,
    /// The 99th percentile of the lateness of the attempts, in µs.
    pub late_p99_us: Option<u64>,
}

impl AttemptSummary {
    /// Returns the share of attempts that failed, from 0 to 1, or `None` without attempts.
    pub fn failing(&self) -> Option<f64> {
        let all = self.handled + self.failed;
        (all > 0).then(|| self.failed as f64 / all as f64)
    }

    /// Returns whether at least half of the attempts failed, and more than two.
    fn is_failing(&self) -> bool {
        self.failed > 2 && self.failed >= self.handled
    }
}

impl TopicStatus {
    /// Returns the state of the topic.
    pub fn state(&self) -> TopicState {
        match &self.overview {
            _ if self.problem.is_some() => TopicState::Unreadable,
            held if held.closed.is_some() => TopicState::Closed,
            held if held.paused.is_some() => TopicState::Paused,
            _ if self.is_unserved() => TopicState::Unserved,
            _ if self.held_back().next().is_some() => TopicState::HeldBack,
            _ if self.last_5m.as_ref().is_some_and(AttemptSummary::is_failing) => TopicState::Failing,
            _ => TopicState::Fine,
        }
    }

    /// Returns whether the topic has timers or tracked keys, and no listener serves it.
    pub fn is_unserved(&self) -> bool {
        self.overview.timers + self.overview.tracked > 0 && self.listeners == 0
    }

    /// Returns the destinations that timers wait for. Without undelivered timers there are none.
    pub fn held_back(&self) -> impl Iterator<Item = &Destination> {
        let waits = self.overview.undelivered > 0;
        self.destinations.iter().filter(move |one| waits && one.state.holds_back())
    }

    /// Returns the share of attempts of the last five minutes that failed, from 0 to 1.
    pub fn failing(&self) -> Option<f64> {
        self.last_5m.as_ref()?.failing()
    }
}

impl Console {
    /// Returns the status of the first `most` topics by name, and of all listeners.
    ///
    /// It costs the server some microseconds for each partition of these topics. The listeners' figures are up to five
    /// seconds old.
    ///
    /// # Errors
    /// Returns an error if the registry or the reports cannot be read. If the counts of a topic cannot be read, its
    /// [`problem`](TopicStatus::problem) has the reason.
    pub async fn status(&self, most: usize) -> Result<Status> {
        let mut registry = self.registry().await?;
        let Registry { topics, unreadable } = &mut registry;
        let more_topics = (topics.len().saturating_sub(most) + unreadable.len().saturating_sub(most)) as u64;
        topics.truncate(most);
        unreadable.truncate(most);
        Ok(Status { more_topics, ..self.status_in(registry).await? })
    }

    /// Returns the status of the topics with these names and of the listeners that serve one of them. Returns the status of
    /// all topics and listeners if `names` is empty.
    ///
    /// # Errors
    /// Returns the errors of [`registered`](Self::registered).
    pub async fn status_named<S: AsRef<str>>(&self, names: &[S]) -> Result<Status> {
        let mut status = self.status_in(self.registered(names).await?).await?;
        let serves = |listener: &ListenerReport| {
            names.is_empty() || names.iter().any(|name| listener.serves(name.as_ref()))
        };
        status.listeners.retain(serves);
        status.silent_listeners.retain(serves);
        Ok(status)
    }

    async fn status_in(&self, registry: Registry) -> Result<Status> {
        let Registry { topics, unreadable } = registry;
        let fleet = self.fleet().await?;
        let topics = self.status_of(&topics, &fleet.listeners).await;
        Ok(Status { topics, unreadable, ..fleet })
    }

    /// Returns the listeners, including the silent ones, without topics.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses the command.
    pub async fn fleet(&self) -> Result<Status> {
        let mut listeners = self.reports().await?;
        let is_missed =
            |one: &&ListenerReport| one.is_silent() && !listeners.iter().any(|other| other.replaces(one));
        let silent = listeners.iter().filter(is_missed).cloned().collect();
        listeners.retain(ListenerReport::is_present);
        Ok(Status { listeners, silent_listeners: silent, ..Status::default() })
    }

    /// Returns the status of some topics, given the reports of the listeners.
    pub async fn status_of(&self, topics: &[TopicHandle], listeners: &[ListenerReport]) -> Vec<TopicStatus> {
        let mut all = Vec::with_capacity(topics.len());
        for some in topics.chunks(TOPICS_PER_REQUEST) {
            let partitions: Vec<_> = some.iter().map(TopicHandle::partition_names).collect();
            let overviews = overview::overviews(self.store(), &partitions).await;
            all.extend(
                some.iter().zip(overviews).map(|(topic, overview)| of_topic(topic, overview, listeners)),
            );
        }
        all
    }
}

fn of_topic(topic: &TopicHandle, overview: Result<Overview>, listeners: &[ListenerReport]) -> TopicStatus {
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
        handler_variants: reports
            .iter()
            .filter_map(|report| report.identity.as_ref())
            .collect::<BTreeSet<_>>()
            .len(),
    }
}

/// Adds up the attempts that listeners have reported.
fn recent<'a>(all: impl Iterator<Item = &'a RecentAttempts>) -> Option<AttemptSummary> {
    let (mut sum, mut lateness) = (None::<AttemptSummary>, Distribution::default());
    for one in all {
        let sum = sum.get_or_insert_default();
        (sum.handled, sum.failed) = (sum.handled + one.handled, sum.failed + one.failed);
        lateness.add(&one.lateness);
    }
    let late = |share| lateness.quantile(share).map(micros);
    sum.map(|sum| AttemptSummary { late_p50_us: late(0.5), late_p99_us: late(0.99), ..sum })
}

/// Returns each destination of a topic once, with its worst state, the worst first. The time until the next call is reduced
/// by the age of the report.
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
