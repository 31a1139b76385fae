//! How topics are and were. It is asked for when somebody looks, and no more than once a second for all who do.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylapse::Result;
use keylapse_console::{Alarm, Console, KnownTopic, Rates, Registry, Status, TopicStatus, UnreadableTopic};
use tokio::sync::Mutex;

use crate::guard::Who;
use crate::recent::Last;

/// What is as new as this is not asked for again.
const FRESH: Duration = Duration::from_millis(1000);
/// Where there are more topics than this, their names are read anew only now and then.
const MANY: usize = 1000;
const NOW_AND_THEN: Duration = Duration::from_secs(30);
/// Between two points of a line.
const STEP: Duration = Duration::from_secs(4);
/// Points of a line: about ten minutes, where somebody looks all the time.
const POINTS: usize = 120;
/// Of a topic that nobody has looked at for so long nothing is kept.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// What was found out last, and before.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    registry: Answer<Registry>,
    /// The listeners, the silent ones too, without topics.
    fleet: Answer<Status>,
    topics: HashMap<String, Sampled>,
    rates: Rates,
}

/// What was answered last. A refusal is an answer, too: where the server is away, not everybody who looks has to wait for
/// that.
type Answer<T> = Last<Result<Arc<T>>>;

#[derive(Debug)]
struct Sampled {
    read: Instant,
    is_stale: bool,
    standing: Standing,
    stepped: Instant,
    points: VecDeque<f64>,
}

/// How a topic is and was.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) status: Arc<TopicStatus>,
    /// Attempts that ended a second, once two reports of the listeners have been seen.
    pub(crate) rate: Option<f64>,
    /// The same as it was, the oldest first.
    pub(crate) rates: Vec<f64>,
    pub(crate) age: Age,
}

/// How old something is that is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Age {
    /// How long ago it was read.
    pub(crate) read: Duration,
    /// How old the oldest of the listeners' figures in it is.
    pub(crate) reports: Option<Duration>,
}

impl Age {
    fn or(self, other: Self) -> Self {
        Self { read: self.read.max(other.read), reports: self.reports.max(other.reports) }
    }
}

/// Some of the topics.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicPage {
    pub(crate) standings: Vec<Standing>,
    /// Those that cannot be read.
    pub(crate) unreadable: Vec<UnreadableTopic>,
    /// The listeners, the silent ones too.
    pub(crate) fleet: Arc<Status>,
    /// How many there are that contain what was asked for, and in all.
    pub(crate) matching: usize,
    pub(crate) all: usize,
    pub(crate) age: Age,
}

impl TopicPage {
    /// Returns the alarms of the topics, and of all listeners.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        let mut broken = Status::default();
        broken.unreadable.clone_from(&self.unreadable);
        let topics = self.standings.iter().flat_map(|standing| standing.status.alarms());
        topics.chain(broken.alarms()).chain(self.fleet.alarms()).collect()
    }
}

impl Samples {
    /// The topics whose names contain this, as many as these behind so many, of those that this one may look at.
    pub(crate) async fn topics(
        &self,
        console: &Console,
        who: &Who,
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

    /// One topic.
    pub(crate) async fn topic(&self, console: &Console, topic: &KnownTopic) -> Result<Standing> {
        let mut kept = self.0.lock().await;
        let (fleet, _) = kept.fleet(console).await?;
        Ok(kept.standings(console, std::slice::from_ref(topic), &fleet).await.remove(0))
    }

    /// A topic that somebody has acted upon is looked at anew.
    pub(crate) async fn changed(&self, topic: &str) {
        if let Some(sampled) = self.0.lock().await.topics.get_mut(topic) {
            sampled.is_stale = true;
        }
    }

    /// All names, for what has to look at each.
    pub(crate) async fn registry(&self, console: &Console) -> Result<Arc<Registry>> {
        self.0.lock().await.registry(console).await
    }

    /// The listeners, the silent ones too.
    pub(crate) async fn fleet(&self, console: &Console) -> Result<(Arc<Status>, Age)> {
        self.0.lock().await.fleet(console).await
    }
}

impl Kept {
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

    async fn standings(&mut self, console: &Console, topics: &[KnownTopic], fleet: &Status) -> Vec<Standing> {
        let is_fresh = |topic: &KnownTopic| {
            self.topics
                .get(topic.name())
                .is_some_and(|sampled| !sampled.is_stale && sampled.read.elapsed() < FRESH)
        };
        let stale: Vec<_> = topics.iter().filter(|topic| !is_fresh(topic)).cloned().collect();
        for status in console.status_of(&stale, &fleet.listeners).await {
            self.sample(status);
        }
        self.forget();
        let standing = |sampled: &Sampled| Standing {
            age: self.age(sampled.read.elapsed(), fleet),
            ..sampled.standing.clone()
        };
        topics.iter().filter_map(|topic| self.topics.get(topic.name()).map(standing)).collect()
    }

    fn sample(&mut self, status: TopicStatus) {
        let (name, now) = (status.topic.name().to_owned(), Instant::now());
        // Of a topic that nobody serves there are no reports.
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
        let standing = Standing { status: Arc::new(status), rate, rates, age };
        let stepped = if is_due { now } else { stepped };
        self.topics.insert(name, Sampled { read: now, is_stale: false, standing, stepped, points });
    }

    fn forget(&mut self) {
        self.topics.retain(|_, sampled| sampled.read.elapsed() < FORGOTTEN);
        self.rates.keep(|topic| self.topics.contains_key(topic));
    }
}
