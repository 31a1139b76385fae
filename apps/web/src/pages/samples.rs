//! The status of topics, with a history of their rates. It is read on request, at most once a second for all readers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylapse::Result;
use keylapse_console::{Alarm, Console, Rates, Registry, Status, TopicHandle, TopicStatus, UnreadableTopic};
use tokio::sync::Mutex;

use crate::guard::Caller;
use crate::recent::Last;

/// How long a status is reused.
const FRESH: Duration = Duration::from_millis(1000);
/// With more topics than this, their names are reused for [`NOW_AND_THEN`].
const MANY: usize = 1000;
const NOW_AND_THEN: Duration = Duration::from_secs(30);
/// Time between two points of a sparkline.
const STEP: Duration = Duration::from_secs(4);
/// Maximum points of a sparkline: ten minutes for a page that refreshes every 5 s.
const POINTS: usize = 120;
/// After this time without a request the samples of a topic are deleted.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// The last status of each topic, and the history of its rate.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<SampleCache>);

#[derive(Debug, Default)]
struct SampleCache {
    registry: CachedAnswer<Registry>,
    /// The listeners, including the silent ones, without topics.
    fleet: CachedAnswer<Status>,
    topics: HashMap<String, Sampled>,
    rates: Rates,
}

/// The last answer. An error is an answer, too: while Redis is away, only one reader waits for the timeout.
type CachedAnswer<T> = Last<Result<Arc<T>>>;

#[derive(Debug)]
struct Sampled {
    read: Instant,
    is_stale: bool,
    standing: TopicSample,
    stepped: Instant,
    points: VecDeque<f64>,
}

/// The status of a topic, and the history of its rate.
#[derive(Clone, Debug)]
pub(crate) struct TopicSample {
    pub(crate) status: Arc<TopicStatus>,
    /// Attempts that end per second; `None` before the second report of the listeners.
    pub(crate) rate: Option<f64>,
    /// Earlier rates, oldest first.
    pub(crate) rates: Vec<f64>,
    pub(crate) age: Age,
}

/// The age of the figures on a page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Age {
    /// Time since the figures were read.
    pub(crate) read: Duration,
    /// Age of the oldest report of a listener among them.
    pub(crate) reports: Option<Duration>,
}

impl Age {
    fn or(self, other: Self) -> Self {
        Self { read: self.read.max(other.read), reports: self.reports.max(other.reports) }
    }
}

/// A page of topics.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicPage {
    pub(crate) standings: Vec<TopicSample>,
    /// Topics that cannot be read.
    pub(crate) unreadable: Vec<UnreadableTopic>,
    /// The listeners, including the silent ones.
    pub(crate) fleet: Arc<Status>,
    /// Number of topics whose names match, and of all topics.
    pub(crate) matching: usize,
    pub(crate) all: usize,
    pub(crate) age: Age,
}

impl TopicPage {
    /// Returns the alarms of these topics and of all listeners.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        let mut broken = Status::default();
        broken.unreadable.clone_from(&self.unreadable);
        let topics = self.standings.iter().flat_map(|standing| standing.status.alarms());
        topics.chain(broken.alarms()).chain(self.fleet.alarms()).collect()
    }
}

impl Samples {
    /// Returns a page of the topics that the caller may read and whose names contain a text: `most` of them after `skip`.
    pub(crate) async fn topics(
        &self,
        console: &Console,
        who: &Caller,
        containing: &str,
        skip: usize,
        most: usize,
    ) -> Result<TopicPage> {
        let mut kept = self.0.lock().await;
        let registry = kept.registry(console).await?;
        let topics: Vec<_> = registry.topics.iter().filter(|topic| who.may(topic.name())).collect();
        let broken: Vec<_> = registry.unreadable.iter().filter(|topic| who.may(&topic.name)).collect();
        let all = topics.len() + broken.len();
        let topics: Vec<_> = topics.into_iter().filter(|topic| topic.name().contains(containing)).collect();
        let broken: Vec<_> = broken.into_iter().filter(|topic| topic.name.contains(containing)).collect();
        let page: Vec<_> = topics.iter().skip(skip).take(most).map(|topic| (*topic).clone()).collect();
        let behind = broken.iter().skip(skip.saturating_sub(topics.len())).take(most - page.len());
        let unreadable = behind.map(|topic| (*topic).clone()).collect();
        let matching = topics.len() + broken.len();
        let (fleet, age) = kept.fleet(console).await?;
        let standings = kept.standings(console, &page, &fleet).await;
        let age = standings.iter().fold(age, |age, standing| age.or(standing.age));
        Ok(TopicPage { standings, unreadable, fleet, matching, all, age })
    }

    /// Returns the status of one topic.
    pub(crate) async fn topic(&self, console: &Console, topic: &TopicHandle) -> Result<TopicSample> {
        let mut kept = self.0.lock().await;
        let (fleet, _) = kept.fleet(console).await?;
        Ok(kept.standings(console, std::slice::from_ref(topic), &fleet).await.remove(0))
    }

    /// Has a topic read again, after an action on it.
    pub(crate) async fn changed(&self, topic: &str) {
        if let Some(sampled) = self.0.lock().await.topics.get_mut(topic) {
            sampled.is_stale = true;
        }
    }

    /// Returns all registered topics.
    pub(crate) async fn registry(&self, console: &Console) -> Result<Arc<Registry>> {
        self.0.lock().await.registry(console).await
    }

    /// Returns the listeners, including the silent ones.
    pub(crate) async fn fleet(&self, console: &Console) -> Result<(Arc<Status>, Age)> {
        self.0.lock().await.fleet(console).await
    }
}

impl SampleCache {
    async fn registry(&mut self, console: &Console) -> Result<Arc<Registry>> {
        let life = |registry: &Result<Arc<Registry>>| match registry {
            Ok(registry) if registry.topics.len() > MANY => NOW_AND_THEN,
            _ => FRESH,
        };
        self.registry.within(life, async { console.registry().await.map(Arc::new) }).await
    }

    async fn fleet(&mut self, console: &Console) -> Result<(Arc<Status>, Age)> {
        let fleet = self.fleet.within(|_| FRESH, async { console.fleet().await.map(Arc::new) }).await?;
        let age = self.age(self.fleet.age(), &fleet);
        Ok((fleet, age))
    }

    fn age(&self, read: Duration, fleet: &Status) -> Age {
        let oldest = fleet.listeners.iter().map(|listener| listener.age_ms).max();
        Age { read, reports: oldest.map(|ms| Duration::from_millis(ms) + self.fleet.age()) }
    }

    async fn standings(
        &mut self,
        console: &Console,
        topics: &[TopicHandle],
        fleet: &Status,
    ) -> Vec<TopicSample> {
        let is_fresh = |topic: &TopicHandle| {
            self.topics
                .get(topic.name())
                .is_some_and(|sampled| !sampled.is_stale && sampled.read.elapsed() < FRESH)
        };
        let stale: Vec<_> = topics.iter().filter(|topic| !is_fresh(topic)).cloned().collect();
        for status in console.status_of(&stale, &fleet.listeners).await {
            self.sample(status);
        }
        self.forget();
        let standing = |sampled: &Sampled| TopicSample {
            age: self.age(sampled.read.elapsed(), fleet),
            ..sampled.standing.clone()
        };
        topics.iter().filter_map(|topic| self.topics.get(topic.name()).map(standing)).collect()
    }

    fn sample(&mut self, status: TopicStatus) {
        let (name, now) = (status.topic.name().to_owned(), Instant::now());
        // A topic without listeners has no reports.
        let is_told = status.problem.is_none() && status.listeners > 0;
        let ended = status.handled + status.failed;
        let rate = is_told.then(|| self.rates.of(&name, status.overview.now_ms, ended)).flatten();
        let (mut points, stepped) = match self.topics.remove(&name) {
            Some(sampled) => (sampled.points, sampled.stepped),
            None => (VecDeque::new(), now),
        };
        let is_due = points.is_empty() || stepped.elapsed() >= STEP;
        if let Some(rate) = rate.filter(|_| is_due) {
            points.push_back(rate);
            points.drain(..points.len().saturating_sub(POINTS));
        }
        let (rates, age) = (points.iter().copied().collect(), Age::default());
        let standing = TopicSample { status: Arc::new(status), rate, rates, age };
        let stepped = if is_due { now } else { stepped };
        self.topics.insert(name, Sampled { read: now, is_stale: false, standing, stepped, points });
    }

    fn forget(&mut self) {
        self.topics.retain(|_, sampled| sampled.read.elapsed() < FORGOTTEN);
        self.rates.keep(|topic| self.topics.contains_key(topic));
    }
}
