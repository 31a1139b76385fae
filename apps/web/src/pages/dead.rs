//! The page of dead letters of all topics, grouped by their errors. It reads a bounded number, and shows how many.

use std::collections::HashMap;
use std::time::Duration;

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse::Result as Answered;
use keylapse_console::format::short;
use keylapse_console::{Cursor, Entry, EntryState, counted, show_count};
use serde::Deserialize;

use super::entries;
use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, Time, answer};
use super::samples::TopicSample;
use crate::parse;
use crate::time::ms_of;

/// Maximum dead letters of each topic, and maximum topics.
const LETTERS: usize = 1000;
const TOPICS: usize = 50;
/// Maximum dead letters of all topics together.
const MAX_SCANNED_DEAD_LETTERS: usize = 5000;
/// Characters of an error by which dead letters are grouped.
const ERROR: usize = 160;
/// Maximum groups.
const GROUPS: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeadLettersQuery {
    /// The period: a word of [`Since`].
    since: String,
}

#[derive(Template)]
#[template(path = "dead.html")]
struct Page {
    frame: Frame,
    spans: Vec<(&'static str, String, bool)>,
    groups: Vec<DeadLetterGroup>,
    all: u64,
    all_shown: String,
    looked_at: String,
    since: &'static str,
    is_all: bool,
    more_groups: String,
}

/// Dead letters of one topic with the same error.
struct DeadLetterGroup {
    topic: String,
    topic_link: String,
    link: String,
    reason: &'static str,
    kind: String,
    error: String,
    count: String,
    number: usize,
    last: Time,
    last_ms: u64,
    example: String,
    example_link: Option<String>,
}

/// The reason and the last error of a dead letter.
struct Cause<'a> {
    reason: &'static str,
    kind: &'a str,
    error: &'a str,
}

/// The period in which dead letters died.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Hour,
    Day,
    Week,
    Ever,
}

impl Since {
    const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Ever];

    fn word(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Day => "1d",
            Self::Week => "7d",
            Self::Ever => "ever",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Hour => "Last hour",
            Self::Day => "Last day",
            Self::Week => "Last week",
            Self::Ever => "All",
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Hour => "in the last hour",
            Self::Day => "in the last day",
            Self::Week => "in the last week",
            Self::Ever => "at any time",
        }
    }

    fn span(self) -> Option<Duration> {
        let hours = match self {
            Self::Hour => 1,
            Self::Day => 24,
            Self::Week => 7 * 24,
            Self::Ever => return None,
        };
        Some(Duration::from_secs(hours * 3600))
    }

    /// Returns the condition for a filter; `None` for all.
    fn condition(self) -> Option<String> {
        self.span().map(|_| format!("newer:{}", self.word()))
    }
}

/// Dead letters of a period.
#[derive(Default)]
struct DeadLetterScan {
    letters: Vec<Entry>,
    /// `true` if there are more than those that were read.
    is_cut: bool,
    now_ms: u64,
}

pub(super) async fn show(
    visit: PageRequest,
    Query(asked): Query<DeadLettersQuery>,
) -> Result<Response, ErrorPage> {
    let wanted = Since::ALL.into_iter().find(|since| since.word() == asked.since);
    if wanted.is_none() && !asked.since.is_empty() {
        return Err(visit.refuse("unknown period: write since=1h, 1d, 7d or ever"));
    }
    let (samples, console) = (&visit.shared.samples, &visit.shared.console);
    let look = async {
        let found = samples.topics(console, &visit.who, "", 0, TOPICS).await?;
        let scanned = scan_first(&found.standings, wanted).await?;
        Ok((found, scanned))
    };
    let (found, (since, scan)) = visit.ask(look).await?;
    let all = found.standings.iter().map(|standing| standing.status.overview.dead).sum();
    Ok(answer(&page(visit.frame("dead").aged(found.age), since, &scan, all)))
}

/// Reads the wanted period; without one, the shortest period that has dead letters.
async fn scan_first(standings: &[TopicSample], wanted: Option<Since>) -> Answered<(Since, DeadLetterScan)> {
    if let Some(since) = wanted {
        return Ok((since, scan(standings, since).await?));
    }
    for since in Since::ALL {
        let found = scan(standings, since).await?;
        if !found.letters.is_empty() || since == Since::Ever {
            return Ok((since, found));
        }
    }
    Ok((Since::Ever, DeadLetterScan::default()))
}

async fn scan(standings: &[TopicSample], since: Since) -> Answered<DeadLetterScan> {
    let mut scan = DeadLetterScan::default();
    for standing in standings {
        let overview = &standing.status.overview;
        scan.now_ms = scan.now_ms.max(overview.now_ms);
        if overview.dead == 0 || standing.status.problem.is_some() {
            continue;
        }
        if scan.letters.len() >= MAX_SCANNED_DEAD_LETTERS {
            scan.is_cut = true;
            break;
        }
        let page = standing
            .status
            .topic
            .page(EntryState::Dead, begin(since, overview.now_ms).as_ref(), LETTERS)
            .await?;
        scan.now_ms = scan.now_ms.max(ms_of(page.now));
        scan.is_cut |= page.next.is_some();
        scan.letters.extend(page.entries);
    }
    Ok(scan)
}

/// Returns the cursor at which the period begins.
fn begin(since: Since, now_ms: u64) -> Option<Cursor> {
    let span = u64::try_from(since.span()?.as_millis()).unwrap_or(u64::MAX);
    format!("{}@0/", now_ms.saturating_sub(span)).parse().ok()
}

fn page(frame: Frame, since: Since, scan: &DeadLetterScan, all: u64) -> Page {
    let mut groups = groups(&frame, since, scan);
    let more = groups.len().saturating_sub(GROUPS);
    groups.truncate(GROUPS);
    let span = |one: Since| (one.label(), frame.link("/dead", &[("since", one.word())]), one == since);
    let spans = Since::ALL.map(span).to_vec();
    Page {
        spans,
        groups,
        all,
        all_shown: counted(all, "dead letter"),
        looked_at: counted(scan.letters.len() as u64, "dead letter"),
        since: since.says(),
        is_all: !scan.is_cut,
        more_groups: if more > 0 { counted(more as u64, "more group") } else { String::new() },
        frame,
    }
}

/// Returns the groups, largest first.
fn groups(frame: &Frame, since: Since, scan: &DeadLetterScan) -> Vec<DeadLetterGroup> {
    let mut groups: HashMap<(&str, &'static str, &str, String), DeadLetterGroup> = HashMap::new();
    for letter in &scan.letters {
        let cause = Cause::of(letter);
        let named = (letter.topic.as_str(), cause.reason, cause.kind, short(cause.error, ERROR));
        let group = groups.entry(named).or_insert_with(|| DeadLetterGroup::of(letter, &cause, frame, since));
        group.add(letter, frame, scan.now_ms);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|one, other| {
        let order = other.number.cmp(&one.number).then(other.last_ms.cmp(&one.last_ms));
        order.then_with(|| one.error.cmp(&other.error))
    });
    groups
}

impl<'a> Cause<'a> {
    fn of(letter: &'a Entry) -> Self {
        Self {
            reason: letter.reason.map_or("unknown", |reason| reason.as_str()),
            kind: letter.failures.last().map_or("", |failed| failed.kind.as_str()),
            error: letter.last_error().unwrap_or_default(),
        }
    }
}

impl DeadLetterGroup {
    fn of(letter: &Entry, cause: &Cause<'_>, frame: &Frame, since: Since) -> Self {
        let Cause { reason, kind, error } = *cause;
        let mut conditions: Vec<_> =
            letter.reason.map(|reason| format!("reason:{}", reason.as_str())).into_iter().collect();
        let plain: String = error.chars().take_while(|letter| !letter.is_control()).take(ERROR / 2).collect();
        conditions.extend(
            (!plain.trim().is_empty()).then(|| parse::condition(&format!("error:~{}", plain.trim()))),
        );
        conditions.extend(since.condition());
        let fields = [("name", letter.topic.as_str()), ("state", "dead"), ("filter", &conditions.join(" "))];
        Self {
            topic: letter.topic.clone(),
            topic_link: frame.topic(&letter.topic),
            link: frame.link("/topic", &fields),
            reason,
            kind: short(kind, 20),
            error: short(error, ERROR),
            count: String::new(),
            number: 0,
            last: Time::new(0, 0),
            last_ms: 0,
            example: String::new(),
            example_link: None,
        }
    }

    /// Adds a dead letter. The newest one is the example of the group.
    fn add(&mut self, letter: &Entry, frame: &Frame, now_ms: u64) {
        self.number += 1;
        self.count = show_count(self.number as u64);
        if letter.at_ms >= self.last_ms {
            self.last_ms = letter.at_ms;
            self.last = Time::new(letter.at_ms, now_ms);
            self.example = entries::cut(&letter.key, 60);
            self.example_link = frame.timer(&letter.topic, &keylapse_console::text::escape(&letter.key));
        }
    }
}
