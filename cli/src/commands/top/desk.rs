//! What looks and acts come to at the server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use keylapse::{ListenerReport, Result};
use keylapse_console::{
    Console, Entry, EntryState, Filter, KnownTopic, Rates, Registry, TopicStanding, TopicStatus,
    UnreadableTopic, Why,
};

use super::model::{Data, EntryPage, EntryRow, Letter, ListenerRow, Look, Timer, TopicPage, TopicRow};
use crate::output::ms_of;

/// Entries of a page.
const PAGE: usize = 100;
/// Topics of a page.
pub(super) const TOPICS: usize = 200;
/// Where there are more topics than this, their names are read anew only now and then.
const MANY: usize = 1000;
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// Does what the screens ask for. It remembers what makes the next look cheaper, and which letters were shown.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) console: Console,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rates: Rates,
    names: Option<(Instant, Registry)>,
    /// The letters that were read last: to act upon one takes more than what is shown of it.
    letters: Vec<Entry>,
}

impl Desk {
    pub(super) fn new(console: Console) -> Self {
        Self { console, kept: Mutex::default() }
    }

    pub(super) async fn look(&self, look: Look) -> Result<Data> {
        match look {
            Look::Topics { containing, skip } => self.topics(&containing, skip).await.map(Data::Topics),
            Look::Listeners => {
                Ok(Data::Listeners(self.console.listeners().await?.iter().map(listener_row).collect()))
            }
            Look::Entries { topic, state, filter, after } => {
                let filter = Filter::parse(filter.split_whitespace())?;
                let topic = self.console.topic(&topic).await?;
                let page = topic.filtered(state, &filter, after.as_ref(), PAGE, None).await?;
                let listeners = self.console.listeners().await?;
                let now_ms = ms_of(page.now);
                let rows = page.entries.iter().map(entry_row).collect();
                self.keep_letters(page.entries);
                let (next, looked_at) = (page.next, page.looked_at);
                let topic = self.rows(&self.console.status_of(&[topic], &listeners).await).remove(0);
                Ok(Data::Entries(Box::new(EntryPage { topic, rows, next, looked_at, now_ms })))
            }
            Look::Timer { topic, key } => {
                let topic = self.console.topic(&topic).await?;
                let why = topic.why(&key, &self.console.listeners().await?).await?;
                let timer = timer(&why);
                self.keep_letters(why.letters);
                Ok(Data::Timer(Box::new(timer)))
            }
        }
    }

    async fn topics(&self, containing: &str, skip: usize) -> Result<TopicPage> {
        let (matching, page, unreadable) = self.names(containing, skip).await?;
        let all = match page.is_empty() {
            true => Vec::new(),
            false => self.console.status_of(&page, &self.console.listeners().await?).await,
        };
        let now_ms = all.iter().map(|topic| topic.overview.now_ms).max().filter(|now| *now > 0);
        let mut rows = self.rows(&all);
        rows.extend(unreadable.iter().map(unreadable_row));
        Ok(TopicPage { rows, skipped: skip.min(matching), matching, now_ms })
    }

    /// How many topics contain this, and a page of them: those that cannot be read stand behind the others.
    async fn names(
        &self,
        containing: &str,
        skip: usize,
    ) -> Result<(usize, Vec<KnownTopic>, Vec<UnreadableTopic>)> {
        let fresh =
            |(read, names): &(Instant, Registry)| names.topics.len() > MANY && read.elapsed() < NOW_AND_THEN;
        if !self.kept().names.as_ref().is_some_and(fresh) {
            let names = self.console.registry().await?;
            self.kept().names = Some((Instant::now(), names));
        }
        let kept = self.kept();
        let all = || kept.names.iter().map(|(_, names)| names);
        let topics: Vec<_> =
            all().flat_map(|all| &all.topics).filter(|topic| topic.name().contains(containing)).collect();
        let unreadable: Vec<_> =
            all().flat_map(|all| &all.unreadable).filter(|topic| topic.name.contains(containing)).collect();
        let page: Vec<_> = topics.iter().skip(skip).take(TOPICS).map(|topic| (*topic).clone()).collect();
        let behind = unreadable.iter().skip(skip.saturating_sub(topics.len())).take(TOPICS - page.len());
        let behind = behind.map(|topic| (*topic).clone()).collect();
        Ok((topics.len() + unreadable.len(), page, behind))
    }

    fn rows(&self, all: &[TopicStatus]) -> Vec<TopicRow> {
        let mut kept = self.kept();
        all.iter().map(|status| topic_row(status, &mut kept.rates)).collect()
    }

    fn keep_letters(&self, mut entries: Vec<Entry>) {
        entries.retain(|entry| entry.state == EntryState::Dead);
        self.kept().letters = entries;
    }

    /// A letter that was shown, if it is of this topic.
    pub(super) fn letter(&self, topic: &str, letter: &Letter) -> Option<Entry> {
        let is_it = |entry: &&Entry| entry.topic == topic && Letter::of(&entry_row(entry)) == *letter;
        self.kept().letters.iter().find(is_it).cloned()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What a panic has left behind is at worst an old page.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn topic_row(status: &TopicStatus, rates: &mut Rates) -> TopicRow {
    let held = &status.overview;
    let said = status.alarms().into_iter().next().map(|alarm| alarm.says);
    let recent = status.last_5m.as_ref();
    let ended = status.handled + status.failed;
    // Of a topic that nobody serves there are no reports.
    let is_told = status.problem.is_none() && status.listeners > 0;
    let rate = is_told.then(|| rates.of(status.topic.name(), held.now_ms, ended)).flatten();
    TopicRow {
        name: status.topic.name().to_owned(),
        pattern: status.topic.pattern().to_owned(),
        attached: status.topic.is_attached(),
        standing: status.standing(),
        said: said.unwrap_or_default(),
        timers: held.timers,
        quarantined: held.quarantined,
        dead: held.dead,
        enrolled: held.enrolled,
        overdue: held.overdue,
        undelivered: held.undelivered,
        oldest_ms: held.oldest_undelivered_ms,
        due_1m: held.due_in_1m,
        due_1h: held.due_in_1h,
        running: status.running,
        limit: status.limit,
        listeners: status.listeners,
        rate,
        failing: status.failing(),
        late_p50_us: recent.and_then(|recent| recent.late_p50_us),
        late_p99_us: recent.and_then(|recent| recent.late_p99_us),
    }
}

fn unreadable_row(topic: &UnreadableTopic) -> TopicRow {
    TopicRow {
        name: topic.name.clone(),
        standing: TopicStanding::Unreadable,
        said: topic.problem.clone(),
        ..TopicRow::default()
    }
}

fn entry_row(entry: &Entry) -> EntryRow {
    EntryRow {
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
    }
}

fn timer(why: &Why) -> Timer {
    Timer {
        timer: why.timer.as_ref().map(entry_row),
        letters: why.letters.iter().map(entry_row).collect(),
        enrolled: why.enrolled.is_some(),
        timeline: why.timeline.iter().rev().map(|moment| (moment.at_ms, moment.what.clone())).collect(),
        next: why.next.clone(),
        not_now: why.not_now.clone(),
        served_by: why.served_by.clone(),
        now_ms: why.now_ms,
    }
}

fn listener_row(report: &ListenerReport) -> ListenerRow {
    let hears: Vec<_> = report.nodes.iter().map(|node| format!("{} {}", node.node, node.mode)).collect();
    let gaps: Vec<_> = report.nodes.iter().filter_map(|node| node.gap.clone()).collect();
    let topics: Vec<_> = report.topics.keys().map(String::as_str).collect();
    ListenerRow {
        id: report.id.clone(),
        host: report.host.clone(),
        pid: report.pid,
        version: report.version.clone(),
        places: report.places(),
        stalled_ms: report.handlers_stalled_ms,
        hears: hears.join(", "),
        gap: gaps.join(", "),
        topics: topics.join(" "),
    }
}
