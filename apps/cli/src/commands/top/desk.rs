//! The requests of the screens, done at the server: looks and acts. Their answers are plain data, so that tests of state
//! and drawings need no server.

use std::time::{Duration, Instant};

use keylapse::fleet::ListenerReport;
use keylapse_console::{
    Action, Console, Cursor, Entry, EntryState, Filter, KnownTopic, Moment, Overview, Rates, Recent,
    Registry, TopicStanding, TopicStatus, UnreadableTopic, Why, text,
};
use tokio::sync::Mutex;

use crate::output::{ms_of, short};

/// Entries of a page.
const PAGE: usize = 100;
/// Topics of a page.
pub(super) const TOPICS: usize = 200;
/// Where there are more topics than this, their names are read anew only now and then.
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
    Act(Result<Done, String>),
}

/// What one look at the server has to find out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Look {
    Topics { containing: String, skip: usize },
    Listeners,
    Entries { topic: String, state: EntryState, filter: String, after: Option<Cursor> },
    Timer { topic: String, key: Vec<u8> },
}

impl Default for Look {
    fn default() -> Self {
        Self::Topics { containing: String::new(), skip: 0 }
    }
}

/// What it has found out.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Topics(TopicPage),
    Listeners(Vec<ListenerReport>),
    Entries(Box<EntryPage>),
    Timer(Box<Timer>),
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

/// Some of the topics, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopicPage {
    pub(super) rows: Vec<TopicRow>,
    /// Topics before these.
    pub(super) skipped: usize,
    /// Topics that the filter lets pass.
    pub(super) matching: usize,
    /// The server's time; none where no topic was read.
    pub(super) now_ms: Option<u64>,
}

/// An entry of a topic, in a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryRow {
    pub(super) key: Vec<u8>,
    pub(super) state: EntryState,
    /// The arming, where the record can be read.
    pub(super) id: Option<String>,
    pub(super) at_ms: u64,
    pub(super) attempt: u32,
    pub(super) lost: u8,
    pub(super) bytes: u64,
    /// Why it died.
    pub(super) reason: &'static str,
    pub(super) error: String,
    /// The dead letter, while it is there: to act upon one takes more than what is shown of it.
    pub(super) letter: Option<Box<Entry>>,
}

/// A page of a topic's entries, and how the topic is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryPage {
    pub(super) topic: TopicRow,
    pub(super) rows: Vec<EntryRow>,
    pub(super) next: Option<Cursor>,
    pub(super) looked_at: usize,
    pub(super) now_ms: u64,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timer {
    pub(super) timer: Option<EntryRow>,
    /// Dead letters, the newest first.
    pub(super) letters: Vec<EntryRow>,
    pub(super) enrolled: bool,
    /// What has happened and what will, the newest first.
    pub(super) timeline: Vec<(u64, String)>,
    pub(super) next: String,
    pub(super) not_now: Vec<String>,
    pub(super) served_by: Vec<String>,
    pub(super) now_ms: u64,
}

/// What somebody wants to be done, and has agreed to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Act {
    pub(super) topic: String,
    pub(super) deed: Deed,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    RunNow(EntryRow),
    Cancel(EntryRow),
    Replay(EntryRow),
    Drop(EntryRow),
    Pause(String),
    Resume,
}

/// The end of an act: whether it was done, and how to report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) was_done: bool,
    pub(super) says: String,
}

impl Data {
    /// The server's time, where it has said it.
    pub(super) fn now_ms(&self) -> Option<u64> {
        match self {
            Self::Topics(page) => page.now_ms,
            Self::Listeners(_) => None,
            Self::Entries(page) => Some(page.now_ms),
            Self::Timer(timer) => Some(timer.now_ms),
        }
    }

    /// Lines that can be chosen.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Topics(page) => page.rows.len(),
            Self::Listeners(reports) => reports.len(),
            Self::Entries(page) => page.rows.len(),
            Self::Timer(timer) => timer.timeline.len(),
        }
    }

    /// What tells a line from all others.
    pub(super) fn name_of(&self, at: usize) -> Option<Vec<u8>> {
        match self {
            Self::Topics(page) => page.rows.get(at).map(|row| row.name.clone().into_bytes()),
            Self::Listeners(reports) => reports.get(at).map(|report| report.id.clone().into_bytes()),
            Self::Entries(page) => page.rows.get(at).map(|row| {
                let died = if row.state == EntryState::Dead { row.at_ms } else { 0 };
                [row.id.as_deref().unwrap_or_default().as_bytes(), &died.to_be_bytes(), &row.key].concat()
            }),
            Self::Timer(_) => None,
        }
    }
}

impl Act {
    /// Returns the key that the act concerns; none where that is the topic.
    pub(super) fn key(&self) -> Option<String> {
        match &self.deed {
            Deed::RunNow(row) | Deed::Cancel(row) | Deed::Replay(row) | Deed::Drop(row) => {
                Some(short(&text::escape(&row.key), 60))
            }
            Deed::Pause(_) | Deed::Resume => None,
        }
    }
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
            Request::Act(act) => Answer::Act(self.act(act).await.map_err(|error| error.to_string())),
        }
    }

    async fn look(&self, look: Look) -> keylapse::Result<Data> {
        // Looks do not overlap: the one before has been given up.
        let mut kept = self.kept.lock().await;
        Ok(match look {
            Look::Topics { containing, skip } => {
                Data::Topics(self.topics(&containing, skip, &mut kept).await?)
            }
            Look::Listeners => Data::Listeners(self.console.listeners().await?),
            Look::Entries { topic, state, filter, after } => {
                let filter = Filter::parse(filter.split_whitespace())?;
                let topic = self.console.topic(&topic).await?;
                let page = topic.filtered(state, &filter, after.as_ref(), PAGE, None).await?;
                let topic = self.rows(&[topic], &mut kept.rates).await?.remove(0);
                let (next, looked_at, now_ms) = (page.next, page.looked_at, ms_of(page.now));
                let rows = page.entries.into_iter().map(EntryRow::from).collect();
                Data::Entries(Box::new(EntryPage { topic, rows, next, looked_at, now_ms }))
            }
            Look::Timer { topic, key } => {
                let topic = self.console.topic(&topic).await?;
                let why = topic.why(&key, &self.console.listeners().await?).await?;
                Data::Timer(Box::new(why.into()))
            }
        })
    }

    /// A page of the topics whose names contain this. Those that cannot be read stand behind the others.
    async fn topics(&self, containing: &str, skip: usize, kept: &mut Kept) -> keylapse::Result<TopicPage> {
        if kept.names.topics.len() <= MANY || kept.read.is_none_or(|read| read.elapsed() >= NOW_AND_THEN) {
            kept.names = self.console.registry().await?;
            kept.read = Some(Instant::now());
        }
        let Registry { topics, unreadable, .. } = &kept.names;
        let known = topics.iter().filter(|topic| topic.name().contains(containing)).map(Ok);
        let unreadable = unreadable.iter().filter(|topic| topic.name.contains(containing)).map(Err);
        let all = known.chain(unreadable);
        let matching = all.clone().count();
        let page: Vec<Result<_, &UnreadableTopic>> = all.skip(skip).take(TOPICS).collect();
        let known: Vec<_> = page.iter().filter_map(|one| one.ok().cloned()).collect();
        let mut rows = if known.is_empty() { Vec::new() } else { self.rows(&known, &mut kept.rates).await? };
        let now_ms = rows.iter().map(|row| row.held.now_ms).max().filter(|now| *now > 0);
        rows.extend(page.iter().filter_map(|one| one.err()).map(TopicRow::from));
        Ok(TopicPage { rows, skipped: skip.min(matching), matching, now_ms })
    }

    async fn rows(&self, topics: &[KnownTopic], rates: &mut Rates) -> keylapse::Result<Vec<TopicRow>> {
        let all = self.console.status_of(topics, &self.console.listeners().await?).await;
        Ok(all.into_iter().map(|status| TopicRow::of(status, rates)).collect())
    }

    /// Acts, after somebody has agreed.
    async fn act(&self, act: Act) -> keylapse::Result<Done> {
        let topic = self.console.topic(&act.topic).await?;
        let done = match &act.deed {
            Deed::RunNow(row) => topic.act(Action::RunNow, &row.key, None).await?,
            Deed::Cancel(row) => topic.act(Action::Cancel, &row.key, None).await?,
            Deed::Replay(row) => topic.act(Action::Replay, &row.key, row.letter.as_deref()).await?,
            Deed::Drop(row) => topic.act(Action::Drop, &row.key, row.letter.as_deref()).await?,
            Deed::Pause(reason) => topic.pause(reason).await?,
            Deed::Resume => topic.resume().await?,
        };
        let of = done.key.map_or(done.topic, |key| short(&key, 60));
        Ok(Done { was_done: done.was_done, says: format!("{of}: {}", done.says) })
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

impl From<Entry> for EntryRow {
    fn from(entry: Entry) -> Self {
        Self {
            key: entry.key.to_vec(),
            state: entry.state,
            id: entry.id.map(|id| id.to_string()),
            at_ms: match entry.state {
                // It is looked at earlier than it expires.
                EntryState::Enrolled => entry.deadline_ms.unwrap_or(entry.at_ms),
                _ => entry.at_ms,
            },
            attempt: entry.attempt,
            lost: entry.lost_leases,
            bytes: entry.payload_bytes,
            reason: entry.reason.map_or("", |reason| reason.as_str()),
            error: entry.last_error().unwrap_or_default().to_owned(),
            letter: (entry.state == EntryState::Dead).then(|| Box::new(entry)),
        }
    }
}

impl From<Why> for Timer {
    fn from(why: Why) -> Self {
        Self {
            timer: why.timer.map(EntryRow::from),
            letters: why.letters.into_iter().map(EntryRow::from).collect(),
            enrolled: why.enrolled.is_some(),
            timeline: why
                .timeline
                .into_iter()
                .rev()
                .map(|Moment { at_ms, what, .. }| (at_ms, what))
                .collect(),
            next: why.next,
            not_now: why.not_now,
            served_by: why.served_by,
            now_ms: why.now_ms,
        }
    }
}
