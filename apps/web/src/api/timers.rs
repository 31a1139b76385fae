//! One timer, by its topic and key; and one dead letter, by what tells it from others of that key: `{id}-{at_ms}`.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keylapse_console::{Action, Done, Entry, KnownTopic, Why, text};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::act::Act;
use crate::api::Fault;
use crate::api::ask::{self, Body, MOST, Path, Payloads, Query, bad};
use crate::guard::Who;
use crate::web::Shared;

/// Bytes of a payload that are shown.
const SHOWN: usize = 1 << 20;

/// What is to be armed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arm {
    /// A span from now, such as `15m`.
    r#in: Option<String>,
    /// A time with its zone, such as `2026-11-25T09:30:00Z`.
    at: Option<String>,
    /// Milliseconds since 1970.
    at_ms: Option<u64>,
    /// The payload as JSON, taken as it is written.
    payload: Option<Box<RawValue>>,
    /// The payload as bytes.
    payload_base64: Option<String>,
    /// Leave a timer alone that is there.
    #[serde(default)]
    only_if_absent: bool,
}

/// Where a timer is to be moved.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    r#in: Option<String>,
    at: Option<String>,
    at_ms: Option<u64>,
}

/// How a letter is to be replayed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    /// As a new arming with an id of its own.
    #[serde(default)]
    as_new: bool,
}

/// What is wanted of a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Show {
    #[serde(default)]
    payload: Payloads,
}

/// Nothing may be said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// All that is kept of a key. The fields are named as those of [`Why`].
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    topic: String,
    key: String,
    timer: Option<Entry>,
    enrolled: Option<Entry>,
    /// The newest first.
    letters: Vec<Entry>,
    /// Letters beyond those.
    more_letters: usize,
}

pub(super) async fn show(
    State(shared): State<Shared>,
    Path((topic, key)): Path<(String, String)>,
    Query(Show { payload }): Query<Show>,
) -> Result<Json<Kept>, Fault> {
    let payload = payload.bytes(&shared, SHOWN)?;
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let timer = topic.timer(&key, payload).await?;
    let enrolled = topic.enrolment(&key).await?;
    let mut letters = topic.letters_of(&key, payload).await?;
    if timer.is_none() && enrolled.is_none() && letters.is_empty() {
        return Err(Fault::new(StatusCode::NOT_FOUND, "nothing is kept of this key: …/why says more"));
    }
    let more_letters = letters.len().saturating_sub(MOST);
    letters.truncate(MOST);
    let (topic, key) = (topic.name().to_owned(), text::escape(&key));
    Ok(Json(Kept { topic, key, timer, enrolled, letters, more_letters }))
}

pub(super) async fn why(
    State(shared): State<Shared>,
    Path((topic, key)): Path<(String, String)>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<Why>, Fault> {
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let listeners = shared.console.listeners().await?;
    Ok(Json(topic.why(&key, &listeners).await?))
}

pub(super) async fn arm(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path((topic, key)): Path<(String, String)>,
    Body(arm): Body<Arm>,
) -> Result<Response, Fault> {
    let when = ask::when(arm.r#in.as_deref(), arm.at.as_deref(), arm.at_ms)?;
    let payload = payload(&arm)?;
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let act = Act::upon("arm", &topic, &key);
    let deed = async move { topic.arm(&key, when, payload, arm.only_if_absent).await };
    let done = act.take(&shared, who, deed).await?;
    let status = if done.outcome == "armed" { StatusCode::CREATED } else { status(&done) };
    Ok((status, Json(done.armed())).into_response())
}

pub(super) async fn cancel(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
) -> Result<Answer, Fault> {
    act(Action::Cancel, &shared, who, path).await
}

pub(super) async fn reschedule(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
    Body(to): Body<Move>,
) -> Result<Answer, Fault> {
    let when = ask::when(to.r#in.as_deref(), to.at.as_deref(), to.at_ms)?;
    act(Action::Reschedule(when), &shared, who, path).await
}

pub(super) async fn run_now(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
) -> Result<Answer, Fault> {
    act(Action::RunNow, &shared, who, path).await
}

async fn act(
    action: Action,
    shared: &Shared,
    who: Who,
    (topic, key): (String, String),
) -> Result<Answer, Fault> {
    let (topic, key) = timer(shared, &topic, &key).await?;
    let act = Act::upon(action.as_str(), &topic, &key);
    Ok(answer(act.take(shared, who, async move { topic.act(action, &key, None).await }).await?))
}

pub(super) async fn replay(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(named): Path<(String, String, String)>,
    Body(Replay { as_new }): Body<Replay>,
) -> Result<Answer, Fault> {
    act_on_letter(if as_new { Action::ReplayAsNew } else { Action::Replay }, &shared, who, named).await
}

pub(super) async fn drop_letter(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(named): Path<(String, String, String)>,
) -> Result<Answer, Fault> {
    act_on_letter(Action::Drop, &shared, who, named).await
}

async fn act_on_letter(
    action: Action,
    shared: &Shared,
    who: Who,
    (topic, key, letter): (String, String, String),
) -> Result<Answer, Fault> {
    let (topic, key) = timer(shared, &topic, &key).await?;
    let named = |entry: &Entry| entry.id.is_some_and(|id| format!("{id}-{}", entry.at_ms) == letter);
    let letters = topic.letters_of(&key, None).await?;
    let why = "there is no such letter, or it is gone: {id}-{at_ms} of an entry that is dead names one";
    let found = letters.into_iter().find(named).ok_or_else(|| Fault::new(StatusCode::NOT_FOUND, why))?;
    let act = Act::upon(action.as_str(), &topic, &key);
    Ok(answer(act.take(shared, who, async move { topic.act(action, &key, Some(&found)).await }).await?))
}

/// The answer of an action upon one thing. The fields are those of the command line's.
pub(super) type Answer = (StatusCode, Json<Done>);

pub(super) fn answer(done: Done) -> Answer {
    (status(&done), Json(done))
}

/// 404 where there was nothing, and 409 where something stood in the way.
fn status(done: &Done) -> StatusCode {
    match done.was_done {
        true => StatusCode::OK,
        false if done.found_nothing() => StatusCode::NOT_FOUND,
        false => StatusCode::CONFLICT,
    }
}

async fn timer(shared: &Shared, topic: &str, key: &str) -> Result<(KnownTopic, Vec<u8>), Fault> {
    let key = ask::key(key)?;
    Ok((ask::topic(shared, topic).await?, key))
}

fn payload(arm: &Arm) -> Result<Bytes, Fault> {
    match (&arm.payload, &arm.payload_base64) {
        (Some(json), None) => Ok(Bytes::copy_from_slice(json.get().as_bytes())),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text);
            bytes.map(Bytes::from).map_err(|_| bad("payload_base64 is no base64"))
        }
        (None, None) => Ok(Bytes::from_static(b"null")),
        (Some(_), Some(_)) => Err(bad("payload and payload_base64 are both there")),
    }
}
