//! The page of a key: its timer, its timeline, its dead letters, and the actions on them.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse::Result as Answered;
use keylapse_console::format::{short, size};
use keylapse_console::{Action, Entry, EntryState, KeyExplanation, TopicHandle, counted, text};
use serde::Deserialize;

use super::entries::FailureRow;
use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, Time, answer};
use super::notice::{Notice, NoticeQuery};
use crate::time::moment;

/// Maximum bytes of a payload.
const PAYLOAD: usize = 16 << 10;
/// Maximum bytes of a key.
const KEY: usize = 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TimerPageQuery {
    topic: String,
    key: String,
}

#[derive(Template)]
#[template(path = "timer.html")]
struct Page {
    frame: Frame,
    topic: String,
    /// The escaped key, for forms and links. `shown` is cut to [`KEY`].
    key: String,
    shown: String,
    state: &'static str,
    sums_up: String,
    next: String,
    not_now: Vec<String>,
    served_by: Vec<String>,
    timer: Option<EntryDetails>,
    letters: Vec<EntryDetails>,
    moments: Vec<TimelineRow>,
    keeps_journal: bool,
    hides_payloads: bool,
    quoted: String,
}

/// A timer or a dead letter.
struct EntryDetails {
    facts: Vec<(&'static str, String)>,
    failures: Vec<FailureRow>,
    payload: Option<String>,
    verbs: &'static [Action],
    id: String,
    at_ms: u64,
    when: Time,
}

struct TimelineRow {
    when: Time,
    what: String,
    is_ahead: bool,
    /// `true` for the newest past event. The row `now` is above it.
    is_newest: bool,
}

pub(super) async fn show(
    visit: PageRequest,
    Query(asked): Query<TimerPageQuery>,
    Query(said): Query<NoticeQuery>,
) -> Result<Response, ErrorPage> {
    visit.may(&asked.topic)?;
    let key = text::unescape(&asked.key).map_err(|error| visit.trouble(&error))?;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&asked.topic).await?;
        let (fleet, age) = shared.samples.fleet(&shared.console).await?;
        let mut why = topic.explain_key(&key, &fleet.listeners).await?;
        if shared.shows_payloads {
            with_payloads(&topic, &mut why).await?;
        }
        Ok((why, age))
    };
    let (why, age) = visit.ask(look).await?;
    let frame = visit.frame("topics").aged(age).saying(Notice::of(&said));
    Ok(answer(&page(why, frame, shared.shows_payloads)))
}

/// Adds the payloads, which an explanation does not have.
async fn with_payloads(topic: &TopicHandle, why: &mut KeyExplanation) -> Answered<()> {
    if let Some(timer) = &mut why.timer {
        *timer = topic.timer(&why.key, Some(PAYLOAD)).await?.unwrap_or_else(|| timer.clone());
    }
    if !why.dead_letters.is_empty() {
        let shown = why.dead_letters.len();
        why.dead_letters = topic.dead_letters_of_key(&why.key, Some(PAYLOAD)).await?;
        why.dead_letters.truncate(shown);
    }
    Ok(())
}

fn page(why: KeyExplanation, frame: Frame, shows_payloads: bool) -> Page {
    let key = text::escape(&why.key);
    Page {
        topic: why.topic.clone(),
        shown: super::entries::cut(&why.key, KEY),
        state: state(&why),
        sums_up: sums_up(&why),
        moments: moments(&why),
        timer: why.timer.as_ref().map(|timer| held(timer, why.now_ms)),
        letters: why.dead_letters.iter().map(|letter| held(letter, why.now_ms)).collect(),
        next: why.next,
        not_now: why.blocked_by.iter().map(|reason| short(reason, 400)).collect(),
        served_by: why.served_by.iter().map(|who| short(who, 200)).collect(),
        keeps_journal: why.journal,
        hides_payloads: !shows_payloads && (why.timer.is_some() || !why.dead_letters.is_empty()),
        quoted: text::quoted(&key),
        key,
        frame,
    }
}

fn state(why: &KeyExplanation) -> &'static str {
    match (&why.timer, &why.tracked_key, why.dead_letters.first()) {
        (Some(timer), ..) => timer.state.as_str(),
        (None, Some(_), _) => EntryState::Tracked.as_str(),
        (None, None, Some(_)) => EntryState::Dead.as_str(),
        (None, None, None) => "nothing",
    }
}

fn sums_up(why: &KeyExplanation) -> String {
    match (&why.timer, &why.tracked_key, why.dead_letters.first()) {
        (Some(timer), ..) => {
            format!(
                "{}, attempt {}, payload {}",
                timer.state.as_str(),
                timer.attempt,
                size(timer.payload_bytes)
            )
        }
        (None, Some(_), _) => "tracked: the time of its expiry is known".to_owned(),
        (None, None, Some(letter)) => {
            let reason = letter.reason.map_or("unknown", |reason| reason.as_str());
            format!("dead: {reason}, after {}", counted(letter.attempt.into(), "attempt"))
        }
        (None, None, None) => "nothing is armed under this key".to_owned(),
    }
}

fn held(entry: &Entry, now_ms: u64) -> EntryDetails {
    let id = entry.id.map(|id| id.to_string()).unwrap_or_default();
    let mut facts = vec![("Arming", if id.is_empty() { "unreadable".to_owned() } else { id.clone() })];
    facts.extend(entry.deadline_ms.map(|at| ("First deadline", moment(at))));
    facts.extend(entry.reason.map(|reason| ("Reason", reason.as_str().to_owned())));
    let attempt = if entry.state == EntryState::Dead { "Attempts" } else { "Attempt" };
    facts.push((attempt, entry.attempt.to_string()));
    facts.push(("Lost leases", entry.lost_leases.to_string()));
    facts.push(("Snoozes", entry.snoozes.to_string()));
    facts.push(("Payload", size(entry.payload_bytes)));
    facts.push(("Partition", entry.partition.to_string()));
    EntryDetails {
        facts,
        failures: FailureRow::all(&entry.failures, now_ms),
        payload: entry.payload.as_ref().map(|payload| text::escape(payload)),
        verbs: Action::of(entry.state),
        id,
        at_ms: entry.at_ms,
        when: Time::new(entry.at_ms, now_ms),
    }
}

/// Returns the timeline, newest first.
fn moments(why: &KeyExplanation) -> Vec<TimelineRow> {
    let is_ahead = |at: u64| at > why.now_ms;
    let newest = why.timeline.iter().rposition(|moment| !is_ahead(moment.at_ms));
    let one = |(at, moment): (usize, &keylapse_console::TimelineEvent)| TimelineRow {
        when: Time::new(moment.at_ms, why.now_ms),
        what: short(&moment.event, 600),
        is_ahead: is_ahead(moment.at_ms),
        is_newest: Some(at) == newest,
    };
    why.timeline.iter().enumerate().map(one).rev().collect()
}
