//! What a request says: its path, its query and its body, each read as a whole or refused.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use keylapse::When;
use keylapse::limits::MAX_KEY;
use keylapse_console::{Filter, KnownTopic, text};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, UNIX_EPOCH};

use crate::api::Fault;
use crate::asking::parse_when;
use crate::web::Shared;

/// Things that one answer has at most.
pub(super) const MOST: usize = 250;
/// Conditions of a filter, and characters of each.
const CONDITIONS: usize = 16;
const CONDITION: usize = 256;

/// What stands in the path.
pub(super) struct Path<T>(pub(super) T);

/// What stands in the query. Parameters may be repeated where a list is wanted; unknown ones are refused.
pub(super) struct Query<T>(pub(super) T);

/// The body, as JSON. Unknown fields are refused.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|refused| Fault::new(refused.status(), refused.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let query = serde_html_form::from_str(parts.uri.query().unwrap_or_default());
        query.map(Self).map_err(|error| bad(format!("the query: {error}")))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let body: Result<_, JsonRejection> = axum::Json::<T>::from_request(request, state).await;
        body.map(|body| Self(body.0)).map_err(refused)
    }
}

fn refused(rejection: JsonRejection) -> Fault {
    use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
    match rejection {
        JsonRejection::BytesRejection(BytesRejection::FailedToBufferBody(
            FailedToBufferBody::UnknownBodyError(_),
        )) => Fault::new(StatusCode::REQUEST_TIMEOUT, "the body has broken off, or did not come in time"),
        other => Fault::new(other.status(), other.body_text()),
    }
}

pub(super) fn bad(why: impl Into<String>) -> Fault {
    Fault::new(StatusCode::BAD_REQUEST, why)
}

/// A part of a list: from behind a place, and how much.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    pub(super) after: Option<String>,
    pub(super) count: Option<usize>,
}

/// The topic with this name.
pub(super) async fn topic(shared: &Shared, name: &str) -> Result<KnownTopic, Fault> {
    shared.console.topic(name).await.map_err(|error| Fault::absent(&error))
}

/// The bytes of a key that is written as it is shown.
pub(super) fn key(said: &str) -> Result<Vec<u8>, Fault> {
    let key = text::unescape(said)?;
    match key.len() {
        ..=MAX_KEY => Ok(key),
        long => Err(bad(format!("a key of {long} bytes is over the limit of {MAX_KEY}"))),
    }
}

/// How many are wanted, of as many as there may be.
pub(super) fn count(said: Option<usize>, otherwise: usize) -> Result<usize, Fault> {
    match said.unwrap_or(otherwise) {
        count @ 1..=MOST => Ok(count),
        _ => Err(bad(format!("count is 1 to {MOST}: `next` of an answer says where to go on"))),
    }
}

pub(super) fn filter(conditions: &[String]) -> Result<Filter, Fault> {
    if conditions.len() > CONDITIONS || conditions.iter().any(|one| one.len() > CONDITION) {
        return Err(bad(format!("a filter has at most {CONDITIONS} conditions of {CONDITION} bytes each")));
    }
    Ok(Filter::parse(conditions)?)
}

/// When: exactly one of the three ways to say it.
pub(super) fn when(r#in: Option<&str>, at: Option<&str>, at_ms: Option<u64>) -> Result<When, Fault> {
    match (r#in, at, at_ms) {
        (Some(text), None, None) | (None, Some(text), None) => parse_when(text).map_err(bad),
        (None, None, Some(ms)) => Ok(When::At(UNIX_EPOCH + Duration::from_millis(ms))),
        _ => Err(bad(
            "say when: one of \"in\": \"15m\", \"at\": \"2026-11-25T09:30:00Z\" and \"at_ms\": 1795599000000",
        )),
    }
}

/// `payload=1`, or nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum Payloads {
    #[default]
    #[serde(rename = "0")]
    Hidden,
    #[serde(rename = "1")]
    Wanted,
}

impl Payloads {
    /// How many bytes of each are shown.
    pub(super) fn bytes(self, shared: &Shared, most: usize) -> Result<Option<usize>, Fault> {
        match self {
            Self::Hidden => Ok(None),
            Self::Wanted if shared.shows_payloads => Ok(Some(most)),
            Self::Wanted => {
                let why = "payloads are not shown here: the program was not told --show-payloads";
                Err(Fault::new(StatusCode::FORBIDDEN, why))
            }
        }
    }
}
