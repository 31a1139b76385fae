//! A key: how its timer stands, what has happened and what comes, and what can be done.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse::Result as Answered;
use keylapse_console::words::{short, size};
use keylapse_console::{Action, Entry, EntryState, KnownTopic, Why, counted, text};
use serde::Deserialize;

use super::entries::Failure;
use super::frame::{Frame, Time, Visit, answer};
use super::notice::{Notice, Said};
use super::trouble::Trouble;
use crate::time::moment;

/// Bytes of a payload that are shown.
const PAYLOAD: usize = 16 << 10;
/// Bytes of a key that are shown.
const KEY: usize = 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    topic: String,
    key: String,
}

#[derive(Template)]
#[template(path = "timer.html")]
struct Page {
    frame: Frame,
    topic: String,
    /// As it is written, and as it is shown.
    key: String,
    shown: String,
    state: &'static str,
    sums_up: String,
    next: String,
    not_now: Vec<String>,
    served_by: Vec<String>,
    timer: Option<Held>,
    letters: Vec<Held>,
    moments: Vec<Moment>,
    keeps_journal: bool,
    hides_payloads: bool,
    quoted: String,
}

/// A timer or a letter.
struct Held {
    facts: Vec<(&'static str, String)>,
    failures: Vec<Failure>,
    payload: Option<String>,
    verbs: &'static [Action],
    id: String,
    at_ms: u64,
    when: Time,
}

struct Moment {
    when: Time,
    what: String,
    is_ahead: bool,
    /// It is the newest of what has happened: now lies before it.
    is_newest: bool,
}

pub(super) async fn show(
    visit: Visit,
    Query(asked): Query<Asked>,
    Query(said): Query<Said>,
) -> Result<Response, Trouble> {
    visit.may(&asked.topic)?;
    let key = text::unescape(&asked.key).map_err(|error| visit.trouble(&error))?;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&asked.topic).await?;
        let (fleet, age) = shared.samples.fleet(&shared.console).await?;
        let mut why = topic.why(&key, &fleet.listeners).await?;
        if shared.shows_payloads {
            with_payloads(&topic, &mut why).await?;
        }
        Ok((why, age))
    };
    let (why, age) = visit.ask(look).await?;
    let frame = visit.frame("topics").aged(age).saying(Notice::of(&said));
    Ok(answer(&page(why, frame, shared.shows_payloads)))
}

/// Looks once more, for what is not part of why a timer runs.
async fn with_payloads(topic: &KnownTopic, why: &mut Why) -> Answered<()> {
    if let Some(timer) = &mut why.timer {
        *timer = topic.timer(&why.key, Some(PAYLOAD)).await?.unwrap_or_else(|| timer.clone());
    }
    if !why.letters.is_empty() {
        let shown = why.letters.len();
        why.letters = topic.letters_of(&why.key, Some(PAYLOAD)).await?;
        why.letters.truncate(shown);
    }
    Ok(())
}

fn page(why: Why, frame: Frame, shows_payloads: bool) -> Page {
    let key = text::escape(&why.key);
    Page {
        topic: why.topic.clone(),
        shown: super::entries::cut(&why.key, KEY),
        state: state(&why),
        sums_up: sums_up(&why),
        moments: moments(&why),
        timer: why.timer.as_ref().map(|timer| held(timer, why.now_ms)),
        letters: why.letters.iter().map(|letter| held(letter, why.now_ms)).collect(),
        next: why.next,
        not_now: why.not_now.iter().map(|reason| short(reason, 400)).collect(),
        served_by: why.served_by.iter().map(|who| short(who, 200)).collect(),
        keeps_journal: why.journal,
        hides_payloads: !shows_payloads && (why.timer.is_some() || !why.letters.is_empty()),
        quoted: text::quoted(&key),
        key,
        frame,
    }
}

fn state(why: &Why) -> &'static str {
    match (&why.timer, &why.enrolled, why.letters.first()) {
        (Some(timer), ..) => timer.state.as_str(),
        (None, Some(_), _) => EntryState::Enrolled.as_str(),
        (None, None, Some(_)) => EntryState::Dead.as_str(),
        (None, None, None) => "nothing",
    }
}

fn sums_up(why: &Why) -> String {
    match (&why.timer, &why.enrolled, why.letters.first()) {
        (Some(timer), ..) => {
            format!(
                "{}, attempt {}, payload {}",
                timer.state.as_str(),
                timer.attempt,
                size(timer.payload_bytes)
            )
        }
        (None, Some(_), _) => "enrolled: it is known when the key expires".to_owned(),
        (None, None, Some(letter)) => {
            let reason = letter.reason.map_or("unknown", |reason| reason.as_str());
            format!("dead: {reason}, after {}", counted(letter.attempt.into(), "attempt"))
        }
        (None, None, None) => "nothing is armed under this key".to_owned(),
    }
}

fn held(entry: &Entry, now_ms: u64) -> Held {
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
    Held {
        facts,
        failures: Failure::all(&entry.failures, now_ms),
        payload: entry.payload.as_ref().map(|payload| text::escape(payload)),
        verbs: Action::of(entry.state),
        id,
        at_ms: entry.at_ms,
        when: Time::new(entry.at_ms, now_ms),
    }
}

/// The newest first.
fn moments(why: &Why) -> Vec<Moment> {
    let is_ahead = |at: u64| at > why.now_ms;
    let newest = why.timeline.iter().rposition(|moment| !is_ahead(moment.at_ms));
    let one = |(at, moment): (usize, &keylapse_console::Moment)| Moment {
        when: Time::new(moment.at_ms, why.now_ms),
        what: short(&moment.what, 600),
        is_ahead: is_ahead(moment.at_ms),
        is_newest: Some(at) == newest,
    };
    why.timeline.iter().enumerate().map(one).rev().collect()
}
