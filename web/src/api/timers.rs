//! One timer, by its topic and key.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keylapse::{Arming, Rescheduled, When};
use keylapse_console::{Became, Entry, KnownTopic, Why, text};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::act::{Act, Did};
use crate::api::Fault;
use crate::api::ask::{self, Body, MOST, Path, Query, bad};
use crate::api::done::{self, Answer, status};
use crate::api::payloads::Payloads;
use crate::guard::Who;
use crate::time::ms_of;
use crate::verb::{NOW, Verb};
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

/// What was armed.
#[derive(Debug, Serialize)]
pub(super) struct Armed {
    topic: String,
    key: String,
    outcome: &'static str,
    id: Option<String>,
    deadline_ms: Option<u64>,
}

/// Where a timer is to be moved.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    r#in: Option<String>,
    at: Option<String>,
    at_ms: Option<u64>,
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
) -> Result<(StatusCode, Json<Armed>), Fault> {
    let when = ask::when(arm.r#in.as_deref(), arm.at.as_deref(), arm.at_ms)?;
    let payload = payload(&arm)?;
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let act = Act::upon("arm", &topic, &key);
    let deed = async move {
        let arming = topic.arm(&key, when, payload, arm.only_if_absent).await?;
        let became = Became::of_arm(&arming);
        let status = match &arming {
            Arming::Armed(_) => StatusCode::CREATED,
            _ => status(became),
        };
        let receipt = arming.receipt();
        let armed = Armed {
            topic: topic.name().to_owned(),
            key: text::escape(&key),
            outcome: became.code,
            id: receipt.map(|receipt| receipt.id.to_string()),
            deadline_ms: receipt.map(|receipt| ms_of(receipt.deadline)),
        };
        Ok(Did::one(became, (status, Json(armed))))
    };
    Ok(act.take(&shared, who, deed).await?)
}

pub(super) async fn cancel(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path((topic, key)): Path<(String, String)>,
) -> Result<Answer, Fault> {
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let act = Act::upon("cancel", &topic, &key);
    let deed = async move {
        let became = Became::of_cancel(topic.cancel(&key).await?);
        Ok(done::to_key(&topic, &key, became))
    };
    Ok(act.take(&shared, who, deed).await?)
}

pub(super) async fn reschedule(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
    Body(to): Body<Move>,
) -> Result<Answer, Fault> {
    let when = ask::when(to.r#in.as_deref(), to.at.as_deref(), to.at_ms)?;
    move_to(Verb::Reschedule, when, &shared, who, path).await
}

pub(super) async fn run_now(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
) -> Result<Answer, Fault> {
    move_to(Verb::RunNow, NOW, &shared, who, path).await
}

async fn move_to(
    verb: Verb,
    when: When,
    shared: &Shared,
    who: Who,
    (topic, key): (String, String),
) -> Result<Answer, Fault> {
    let (topic, key) = timer(shared, &topic, &key).await?;
    let act = Act::upon(verb.word(), &topic, &key);
    let deed = async move {
        let moved = topic.reschedule(&key, when).await?;
        let became = match verb {
            Verb::RunNow => Became::of_run_now(moved),
            _ => Became::of_move(moved),
        };
        let due = match moved {
            Rescheduled::Rescheduled(at) => Some(ms_of(at)),
            _ => None,
        };
        Ok(done::to_be_due(&topic, &key, became, due))
    };
    Ok(act.take(shared, who, deed).await?)
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
