//! One timer, by its topic and key.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keylapse::console::{Entry, KnownTopic, Why, text};
use keylapse::{Arming, Cancelled, Rescheduled, When};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::act::{Act, Did};
use crate::api::Fault;
use crate::api::ask::{self, Body, MOST, Path, Query, bad};
use crate::api::done::Done;
use crate::api::payloads::Payloads;
use crate::guard::Who;
use crate::time::ms_of;
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
        let (status, outcome) = match &arming {
            Arming::Armed(_) => (StatusCode::CREATED, "armed"),
            Arming::Replaced(_) => (StatusCode::OK, "replaced"),
            Arming::AfterRunning(_) => (StatusCode::OK, "after_running"),
            Arming::Exists => (StatusCode::CONFLICT, "exists"),
            _ => (StatusCode::CONFLICT, "superseded"),
        };
        let receipt = arming.receipt();
        let armed = Armed {
            topic: topic.name().to_owned(),
            key: text::escape(&key),
            outcome,
            id: receipt.map(|receipt| receipt.id.to_string()),
            deadline_ms: receipt.map(|receipt| ms_of(receipt.deadline)),
        };
        Ok(Did::one(outcome, receipt.is_some(), (status, Json(armed))))
    };
    Ok(act.take(&shared, who, deed).await?)
}

pub(super) async fn cancel(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path((topic, key)): Path<(String, String)>,
) -> Result<(StatusCode, Json<Done>), Fault> {
    let (topic, key) = timer(&shared, &topic, &key).await?;
    let act = Act::upon("cancel", &topic, &key);
    let deed = async move {
        let (status, outcome) = match topic.cancel(&key).await? {
            Cancelled::NotArmed => (StatusCode::NOT_FOUND, "not_armed"),
            Cancelled::Cancelled => (StatusCode::OK, "cancelled"),
            Cancelled::Claimed => (StatusCode::OK, "claimed"),
            _ => (StatusCode::OK, "running"),
        };
        Ok(Did::one(outcome, status.is_success(), (status, Json(Done::to_key(&topic, &key, outcome, None)))))
    };
    Ok(act.take(&shared, who, deed).await?)
}

pub(super) async fn reschedule(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
    Body(to): Body<Move>,
) -> Result<(StatusCode, Json<Done>), Fault> {
    let when = ask::when(to.r#in.as_deref(), to.at.as_deref(), to.at_ms)?;
    move_to("reschedule", when, &shared, who, path).await
}

pub(super) async fn run_now(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(path): Path<(String, String)>,
) -> Result<(StatusCode, Json<Done>), Fault> {
    move_to("run_now", When::In(std::time::Duration::ZERO), &shared, who, path).await
}

async fn move_to(
    verb: &'static str,
    when: When,
    shared: &Shared,
    who: Who,
    (topic, key): (String, String),
) -> Result<(StatusCode, Json<Done>), Fault> {
    let (topic, key) = timer(shared, &topic, &key).await?;
    let act = Act::upon(verb, &topic, &key);
    let deed = async move {
        let (status, outcome, at) = match topic.reschedule(&key, when).await? {
            Rescheduled::Rescheduled(at) => (StatusCode::OK, "rescheduled", Some(ms_of(at))),
            Rescheduled::InFlight => (StatusCode::CONFLICT, "running", None),
            _ => (StatusCode::NOT_FOUND, "not_armed", None),
        };
        Ok(Did::one(outcome, at.is_some(), (status, Json(Done::to_key(&topic, &key, outcome, at)))))
    };
    Ok(act.take(shared, who, deed).await?)
}

async fn timer(shared: &Shared, topic: &str, key: &str) -> Result<(KnownTopic, Vec<u8>), Fault> {
    let key = ask::key(key)?;
    Ok((ask::topic(shared, topic).await?, key))
}

impl Done {
    pub(super) fn to_key(
        topic: &KnownTopic,
        key: &[u8],
        outcome: &'static str,
        deadline_ms: Option<u64>,
    ) -> Self {
        Self { topic: topic.name().to_owned(), key: Some(text::escape(key)), outcome, deadline_ms }
    }
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
