//! Single timers, by topic and key, and single dead letters, which `{id}-{at_ms}` identifies among those of a key.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keylapse_console::{Action, ActionResult, Entry, KeyExplanation, TopicHandle, text};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::act::AuditedAction;
use crate::api::ApiError;
use crate::api::ask::{self, Body, MAX_ITEMS, Path, Payloads, Query, bad};
use crate::guard::Caller;
use crate::web::SharedState;

/// Maximum bytes of a payload.
const SHOWN: usize = 1 << 20;

/// The body of a request that arms a timer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arm {
    /// A span from now, such as `15m`.
    r#in: Option<String>,
    /// A time with its zone, such as `2026-11-25T09:30:00Z`.
    at: Option<String>,
    /// Milliseconds since 1970.
    at_ms: Option<u64>,
    /// The payload as JSON, which is stored as it is written.
    payload: Option<Box<RawValue>>,
    /// The payload as bytes.
    payload_base64: Option<String>,
    /// Keep an existing timer.
    #[serde(default)]
    only_if_absent: bool,
}

/// The new deadline of a timer, in one of three forms.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    r#in: Option<String>,
    at: Option<String>,
    at_ms: Option<u64>,
}

/// The body of a request that replays a dead letter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayBody {
    /// Replay it as a new arming with an ID of its own.
    #[serde(default)]
    as_new: bool,
}

/// The query of a request for a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Show {
    #[serde(default)]
    payload: Payloads,
}

/// A query without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Everything that is stored for a key. The fields have the names of those of [`KeyExplanation`].
#[derive(Debug, Serialize)]
pub(super) struct TimerResponse {
    topic: String,
    key: String,
    timer: Option<Entry>,
    tracked_key: Option<Entry>,
    /// Dead letters, newest first.
    dead_letters: Vec<Entry>,
    /// Number of further dead letters.
    more_dead_letters: usize,
}

pub(super) async fn show(
    State(shared): State<SharedState>,
    Path((topic, key)): Path<(String, String)>,
    Query(Show { payload }): Query<Show>,
) -> Result<Json<TimerResponse>, ApiError> {
    let payload = payload.bytes(&shared, SHOWN)?;
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let timer = topic.timer(&key, payload).await?;
    let tracked_key = topic.tracked_key(&key).await?;
    let mut dead_letters = topic.dead_letters_of_key(&key, payload).await?;
    if timer.is_none() && tracked_key.is_none() && dead_letters.is_empty() {
        return Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "nothing is stored for this key: its route …/why explains it",
        ));
    }
    let more_dead_letters = dead_letters.len().saturating_sub(MAX_ITEMS);
    dead_letters.truncate(MAX_ITEMS);
    let (topic, key) = (topic.name().to_owned(), text::escape(&key));
    Ok(Json(TimerResponse { topic, key, timer, tracked_key, dead_letters, more_dead_letters }))
}

pub(super) async fn why(
    State(shared): State<SharedState>,
    Path((topic, key)): Path<(String, String)>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<KeyExplanation>, ApiError> {
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let listeners = shared.console.listeners().await?;
    Ok(Json(topic.explain_key(&key, &listeners).await?))
}

pub(super) async fn arm(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path((topic, key)): Path<(String, String)>,
    Body(arm): Body<Arm>,
) -> Result<Response, ApiError> {
    let when = ask::when(arm.r#in.as_deref(), arm.at.as_deref(), arm.at_ms)?;
    let payload = payload(&arm)?;
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let act = AuditedAction::upon("arm", &topic, &key);
    let deed = async move { topic.arm(&key, when, payload, arm.only_if_absent).await };
    let done = act.take(&shared, who, deed).await?;
    let status = if done.outcome == "armed" { StatusCode::CREATED } else { status(&done) };
    Ok((status, Json(done.armed())).into_response())
}

pub(super) async fn cancel(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(path): Path<(String, String)>,
) -> Result<ActionResponse, ApiError> {
    act(Action::Cancel, &shared, who, path).await
}

pub(super) async fn reschedule(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(path): Path<(String, String)>,
    Body(to): Body<Move>,
) -> Result<ActionResponse, ApiError> {
    let when = ask::when(to.r#in.as_deref(), to.at.as_deref(), to.at_ms)?;
    act(Action::Reschedule(when), &shared, who, path).await
}

pub(super) async fn run_now(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(path): Path<(String, String)>,
) -> Result<ActionResponse, ApiError> {
    act(Action::RunNow, &shared, who, path).await
}

async fn act(
    action: Action,
    shared: &SharedState,
    who: Caller,
    (topic, key): (String, String),
) -> Result<ActionResponse, ApiError> {
    let (topic, key) = timer(shared, &topic, &key).await?;
    let act = AuditedAction::upon(action.as_str(), &topic, &key);
    Ok(answer(act.take(shared, who, async move { topic.act(action, &key, None).await }).await?))
}

pub(super) async fn replay(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(named): Path<(String, String, String)>,
    Body(ReplayBody { as_new }): Body<ReplayBody>,
) -> Result<ActionResponse, ApiError> {
    act_on_letter(if as_new { Action::ReplayAsNew } else { Action::Replay }, &shared, who, named).await
}

pub(super) async fn drop_letter(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(named): Path<(String, String, String)>,
) -> Result<ActionResponse, ApiError> {
    act_on_letter(Action::Drop, &shared, who, named).await
}

async fn act_on_letter(
    action: Action,
    shared: &SharedState,
    who: Caller,
    (topic, key, letter): (String, String, String),
) -> Result<ActionResponse, ApiError> {
    let (topic, key) = timer(shared, &topic, &key).await?;
    let named = |entry: &Entry| entry.id.is_some_and(|id| format!("{id}-{}", entry.at_ms) == letter);
    let letters = topic.dead_letters_of_key(&key, None).await?;
    let why = "no such dead letter, or it is gone: name it by {id}-{at_ms} of a dead entry";
    let found = letters.into_iter().find(named).ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, why))?;
    let act = AuditedAction::upon(action.as_str(), &topic, &key);
    Ok(answer(act.take(shared, who, async move { topic.act(action, &key, Some(&found)).await }).await?))
}

/// The answer of a single action, with the fields of the command line's JSON.
pub(super) type ActionResponse = (StatusCode, Json<ActionResult>);

pub(super) fn answer(done: ActionResult) -> ActionResponse {
    (status(&done), Json(done))
}

/// Returns 404 if there was nothing to act on, and 409 if something else prevented the action.
fn status(done: &ActionResult) -> StatusCode {
    match done.done {
        true => StatusCode::OK,
        false if done.found_nothing() => StatusCode::NOT_FOUND,
        false => StatusCode::CONFLICT,
    }
}

async fn timer(shared: &SharedState, topic: &str, key: &str) -> Result<(TopicHandle, Vec<u8>), ApiError> {
    let key = ask::key(key)?;
    Ok((ask::topic(shared, topic).await?, key))
}

fn payload(arm: &Arm) -> Result<Bytes, ApiError> {
    match (&arm.payload, &arm.payload_base64) {
        (Some(json), None) => Ok(Bytes::copy_from_slice(json.get().as_bytes())),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text);
            bytes.map(Bytes::from).map_err(|_| bad("payload_base64 is not valid base64"))
        }
        (None, None) => Ok(Bytes::from_static(b"null")),
        (Some(_), Some(_)) => Err(bad("payload and payload_base64 are both set: send one of them")),
    }
}
