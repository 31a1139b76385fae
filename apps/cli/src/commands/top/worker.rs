//! Makes the requests of the screens to the server: queries and actions. The answers are plain data, so that tests of state
//! and drawings need no server.

use std::time::{Duration, Instant};

use keylapse::fleet::ListenerReport;
use keylapse_console::{
    Action, AttemptSummary, Console, Cursor, Entry, EntryState, Filter, KeyExplanation, Overview, Rates,
    Registry, TopicHandle, TopicState, TopicStatus, UnreadableTopic,
};
use tokio::sync::Mutex;

use super::app::StatusMessage;
use crate::output::{ms_of, short};

/// Entries on a page.
const SCREEN_PAGE_ENTRIES: usize = 100;
/// Topics on a page.
const TOPICS: usize = 200;
/// With more topics than this, their names are read only every [`NOW_AND_THEN`].
const MANY: usize = 1000;
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// A request to the worker.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScreenRequest {
    /// A query, which supersedes a running one.
    Look {
        ticket: u64,
        look: ScreenQuery,
    },
    Act(ConfirmedAction),
}

/// An answer of the worker.
#[derive(Debug)]
pub(super) enum ScreenAnswer {
    Look { ticket: u64, answer: Result<ScreenData, String> },
    Act(StatusMessage),
}

/// A query for one screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ScreenQuery {
    pub(super) of: ScreenSubject,
    /// The topic of the subject; empty if there are several.
    pub(super) topic: String,
    /// A part of the names of topics, or conditions that entries match.
    pub(super) filter: String,
    pub(super) start: Start,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum ScreenSubject {
    #[default]
    Topics,
    Listeners,
    Entries(EntryState),
    /// The timer of this key.
    Timer(Vec<u8>),
}

/// The start of a page: a number of topics, or the cursor of an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Start {
    pub(super) skip: usize,
    pub(super) after: Option<Cursor>,
}

/// The answer to a query. Fields of other subjects are empty.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenData {
    /// A page of topics by name, or the topic of the entries.
    pub(super) topics: Vec<TopicRow>,
    pub(super) listeners: Vec<ListenerReport>,
    pub(super) entries: Vec<Entry>,
    pub(super) why: Option<Box<KeyExplanation>>,
    /// The number of topics that match the filter, or of entries that were read.
    pub(super) all: usize,
    /// The start of the next page; `None` on the last.
    pub(super) next: Option<Start>,
    /// The server's time in ms since 1970, if the answer has it.
    pub(super) now_ms: Option<u64>,
}

/// A topic as one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopicRow {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) attached: bool,
    pub(super) standing: TopicState,
    /// The text of its first alarm; empty without an alarm.
    pub(super) said: String,
    pub(super) held: Overview,
    pub(super) running: usize,
    pub(super) limit: usize,
    pub(super) listeners: usize,
    /// Attempts that ended a second. `None` until two reports of the listeners were read.
    pub(super) rate: Option<f64>,
    /// The attempts of the last five minutes.
    pub(super) recent: AttemptSummary,
}

/// An action that the operator has confirmed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfirmedAction {
    pub(super) topic: String,
    pub(super) deed: ConfirmedActionKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConfirmedActionKind {
    /// An action on the timer of the key, or on this dead letter if it still exists.
    Entry {
        action: Action,
        key: Vec<u8>,
        letter: Option<Box<Entry>>,
    },
    Pause(String),
    Resume,
}

/// Makes requests to the server, and caches data that make the next query cheaper.
#[derive(Debug)]
pub(super) struct ScreenWorker {
    console: Console,
    kept: Mutex<ScreenCache>,
}

#[derive(Debug, Default)]
struct ScreenCache {
    rates: Rates,
    names: Registry,
    /// When the names were read.
    read: Option<Instant>,
}

impl ScreenWorker {
    pub(super) fn new(console: Console) -> Self {
        Self { console, kept: Mutex::default() }
    }

    pub(super) async fn answer(&self, request: ScreenRequest) -> ScreenAnswer {
        match request {
            ScreenRequest::Look { ticket, look } => {
                let answer = self.look(look).await.map_err(|error| error.to_string());
                ScreenAnswer::Look { ticket, answer }
            }
            ScreenRequest::Act(act) => {
                ScreenAnswer::Act(self.act(act).await.unwrap_or_else(|error| StatusMessage {
                    text: format!("not done: {error}"),
                    is_bad: true,
                }))
            }
        }
    }

    async fn look(&self, look: ScreenQuery) -> keylapse::Result<ScreenData> {
        // Queries do not overlap: a superseded one was aborted.
        let mut kept = self.kept.lock().await;
        let ScreenQuery { of, topic, filter, start } = look;
        Ok(match of {
            ScreenSubject::Topics => self.topics(&filter, start.skip, &mut kept).await?,
            ScreenSubject::Listeners => {
                ScreenData { listeners: self.console.listeners().await?, ..ScreenData::default() }
            }
            ScreenSubject::Entries(state) => {
                let filter = Filter::parse(filter.split_whitespace())?;
                let topic = self.console.topic(&topic).await?;
                let page =
                    topic.filtered(state, &filter, start.after.as_ref(), SCREEN_PAGE_ENTRIES, None).await?;
                ScreenData {
                    topics: self.rows(&[topic], &mut kept.rates).await?,
                    entries: page.entries,
                    all: page.looked_at,
                    next: page.next.map(|after| Start { after: Some(after), ..start }),
                    now_ms: Some(ms_of(page.now)),
                    ..ScreenData::default()
                }
            }
            ScreenSubject::Timer(key) => {
                let topic = self.console.topic(&topic).await?;
                let why = topic.explain_key(&key, &self.console.listeners().await?).await?;
                ScreenData { now_ms: Some(why.now_ms), why: Some(Box::new(why)), ..ScreenData::default() }
            }
        })
    }

    /// Returns a page of the topics whose names contain this text. Unreadable topics come last.
    async fn topics(
        &self,
        containing: &str,
        skip: usize,
        kept: &mut ScreenCache,
    ) -> keylapse::Result<ScreenData> {
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
        Ok(ScreenData { topics: rows, all: count, next, now_ms, ..ScreenData::default() })
    }

    async fn rows(&self, topics: &[TopicHandle], rates: &mut Rates) -> keylapse::Result<Vec<TopicRow>> {
        let all = self.console.status_of(topics, &self.console.listeners().await?).await;
        Ok(all.into_iter().map(|status| TopicRow::of(status, rates)).collect())
    }

    /// Performs an action that the operator has confirmed.
    async fn act(&self, act: ConfirmedAction) -> keylapse::Result<StatusMessage> {
        let topic = self.console.topic(&act.topic).await?;
        let done = match &act.deed {
            ConfirmedActionKind::Entry { action, key, letter } => {
                topic.act(*action, key, letter.as_deref()).await?
            }
            ConfirmedActionKind::Pause(reason) => topic.pause(reason).await?,
            ConfirmedActionKind::Resume => topic.resume().await?,
        };
        let of = done.key.map_or(done.topic, |key| short(&key, 60));
        Ok(StatusMessage { text: format!("{of}: {}", done.message), is_bad: !done.done })
    }
}

impl TopicRow {
    fn of(status: TopicStatus, rates: &mut Rates) -> Self {
        // A topic without listeners has no reports, so its rate is unknown.
        let is_told = status.problem.is_none() && status.listeners > 0;
        let ended = status.handled + status.failed;
        let rate = || rates.of(status.topic.name(), status.overview.now_ms, ended);
        Self {
            name: status.topic.name().to_owned(),
            pattern: status.topic.pattern().to_owned(),
            attached: status.topic.is_attached(),
            standing: status.state(),
            said: status.alarms().into_iter().next().map_or_else(String::new, |alarm| alarm.message),
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
        Self { name, said, standing: TopicState::Unreadable, ..Self::default() }
    }
}
