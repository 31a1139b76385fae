//! The requests of the screens, done at the server: looks and acts. Their answers are plain data, so that tests of state
//! and drawings need no server.

use std::time::{Duration, Instant};

use keylapse::fleet::ListenerReport;
use keylapse_console::{
    Action, Console, Cursor, Entry, EntryState, Filter, KnownTopic, Overview, Rates, Recent, Registry,
    TopicStanding, TopicStatus, UnreadableTopic, Why,
};
use tokio::sync::Mutex;

use super::app::Notice;
use crate::output::{ms_of, short};

/// Entries of a page.
const PAGE: usize = 100;
/// Topics of a page.
const TOPICS: usize = 200;
/// With more topics than this, the desk reads their names only now and then.
const MANY: usize = 1000;
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// The requests to the desk.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    /// A look, in the place of one that may still be under way.
    Look {
        ticket: u64,
        look: Look,
    },
    Act(Act),
}

/// The answers of the desk.
#[derive(Debug)]
pub(super) enum Answer {
    Look { ticket: u64, answer: Result<Data, String> },
    Act(Notice),
}

/// A question that one look at the server answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    pub(super) of: Of,
    /// The topic that all of it is of; empty where there are several.
    pub(super) topic: String,
    /// A part of topics' names, or conditions that entries match.
    pub(super) filter: String,
    pub(super) start: Start,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Of {
    #[default]
    Topics,
    Listeners,
    Entries(EntryState),
    /// The timer of this key.
    Timer(Vec<u8>),
}

/// Where a page begins: topics are counted, entries have cursors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Start {
    pub(super) skip: usize,
    pub(super) after: Option<Cursor>,
}

/// The answer of one look. Fields of other subjects are empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    /// A page of them, by name; or the one that the entries are of.
    pub(super) topics: Vec<TopicRow>,
    pub(super) listeners: Vec<ListenerReport>,
    pub(super) entries: Vec<Entry>,
    pub(super) why: Option<Box<Why>>,
    /// Topics that the filter lets pass, or entries that were looked at.
    pub(super) all: usize,
    /// Where the next page begins; none behind the last.
    pub(super) next: Option<Start>,
    /// The server's time, where it has said it.
    pub(super) now_ms: Option<u64>,
}

/// A topic, in a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopicRow {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) attached: bool,
    pub(super) standing: TopicStanding,
    /// The text of its first alarm; empty where it has none.
    pub(super) said: String,
    pub(super) held: Overview,
    pub(super) running: usize,
    pub(super) limit: usize,
    pub(super) listeners: usize,
    /// Attempts that ended a second, once two reports of the listeners have been seen.
    pub(super) rate: Option<f64>,
    /// The attempts of the last five minutes.
    pub(super) recent: Recent,
}

/// An action that the operator has confirmed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Act {
    pub(super) topic: String,
    pub(super) deed: Deed,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    /// Upon a dead letter only while it is there.
    Entry {
        action: Action,
        key: Vec<u8>,
        letter: Option<Box<Entry>>,
    },
    Pause(String),
    Resume,
}

/// Looks and acts at the server. It keeps what makes the next look cheaper.
#[derive(Debug)]
pub(super) struct Desk {
    console: Console,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rates: Rates,
    names: Registry,
    /// When these were read.
    read: Option<Instant>,
}

impl Desk {
    pub(super) fn new(console: Console) -> Self {
        Self { console, kept: Mutex::default() }
    }

    pub(super) async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Look { ticket, look } => {
                let answer = self.look(look).await.map_err(|error| error.to_string());
                Answer::Look { ticket, answer }
            }
            Request::Act(act) => Answer::Act(
                self.act(act)
                    .await
                    .unwrap_or_else(|error| Notice { text: format!("not done: {error}"), is_bad: true }),
            ),
        }
    }

    async fn look(&self, look: Look) -> keylapse::Result<Data> {
        // Looks do not overlap: the one before has been given up.
        let mut kept = self.kept.lock().await;
        let Look { of, topic, filter, start } = look;
        Ok(match of {
            Of::Topics => self.topics(&filter, start.skip, &mut kept).await?,
            Of::Listeners => Data { listeners: self.console.listeners().await?, ..Data::default() },
            Of::Entries(state) => {
                let filter = Filter::parse(filter.split_whitespace())?;
                let topic = self.console.topic(&topic).await?;
                let page = topic.filtered(state, &filter, start.after.as_ref(), PAGE, None).await?;
                Data {
                    topics: self.rows(&[topic], &mut kept.rates).await?,
                    entries: page.entries,
                    all: page.looked_at,
                    next: page.next.map(|after| Start { after: Some(after), ..start }),
                    now_ms: Some(ms_of(page.now)),
                    ..Data::default()
                }
            }
            Of::Timer(key) => {
                let topic = self.console.topic(&topic).await?;
                let why = topic.why(&key, &self.console.listeners().await?).await?;
                Data { now_ms: Some(why.now_ms), why: Some(Box::new(why)), ..Data::default() }
            }
        })
    }

    /// A page of the topics whose names contain this. Those that cannot be read stand behind the others.
    async fn topics(&self, containing: &str, skip: usize, kept: &mut Kept) -> keylapse::Result<Data> {
        if kept.names.topics.len() <= MANY || kept.read.is_none_or(|read| read.elapsed() >= NOW_AND_THEN) {
            kept.names = self.console.registry().await?;
            kept.read = Some(Instant::now());
        }
        let Registry { topics, unreadable, .. } = &kept.names;
        let known = topics.iter().filter(|topic| topic.name().contains(containing)).map(Ok);
        let unreadable = unreadable.iter().filter(|topic| topic.name.contains(containing)).map(Err);
        let all = known.chain(unreadable);
        let count = all.clone().count();
        let page: Vec<Result<_, &UnreadableTopic>> = all.skip(skip).take(TOPICS).collect();
        let known: Vec<_> = page.iter().filter_map(|one| one.ok().cloned()).collect();
        let mut rows = if known.is_empty() { Vec::new() } else { self.rows(&known, &mut kept.rates).await? };
        let now_ms = rows.iter().map(|row| row.held.now_ms).max().filter(|now| *now > 0);
        rows.extend(page.iter().filter_map(|one| one.err()).map(TopicRow::from));
        let next = Start { skip: skip + TOPICS, after: None };
        let next = (next.skip < count).then_some(next);
        Ok(Data { topics: rows, all: count, next, now_ms, ..Data::default() })
    }

    async fn rows(&self, topics: &[KnownTopic], rates: &mut Rates) -> keylapse::Result<Vec<TopicRow>> {
        let all = self.console.status_of(topics, &self.console.listeners().await?).await;
        Ok(all.into_iter().map(|status| TopicRow::of(status, rates)).collect())
    }

    /// Acts, after somebody has agreed.
    async fn act(&self, act: Act) -> keylapse::Result<Notice> {
        let topic = self.console.topic(&act.topic).await?;
        let done = match &act.deed {
            Deed::Entry { action, key, letter } => topic.act(*action, key, letter.as_deref()).await?,
            Deed::Pause(reason) => topic.pause(reason).await?,
            Deed::Resume => topic.resume().await?,
        };
        let of = done.key.map_or(done.topic, |key| short(&key, 60));
        Ok(Notice { text: format!("{of}: {}", done.says), is_bad: !done.was_done })
    }
}

impl TopicRow {
    fn of(status: TopicStatus, rates: &mut Rates) -> Self {
        // Of a topic that nobody serves there are no reports.
        let is_told = status.problem.is_none() && status.listeners > 0;
        let ended = status.handled + status.failed;
        let rate = || rates.of(status.topic.name(), status.overview.now_ms, ended);
        Self {
            name: status.topic.name().to_owned(),
            pattern: status.topic.pattern().to_owned(),
            attached: status.topic.is_attached(),
            standing: status.standing(),
            said: status.alarms().into_iter().next().map_or_else(String::new, |alarm| alarm.says),
            rate: is_told.then(rate).flatten(),
            held: status.overview,
            running: status.running,
            limit: status.limit,
            listeners: status.listeners,
            recent: status.last_5m.unwrap_or_default(),
        }
    }
}

impl From<&UnreadableTopic> for TopicRow {
    fn from(topic: &UnreadableTopic) -> Self {
        let (name, said) = (topic.name.clone(), topic.problem.clone());
        Self { name, said, standing: TopicStanding::Unreadable, ..Self::default() }
    }
}
