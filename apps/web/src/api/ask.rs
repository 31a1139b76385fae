//! Path, query and body of a request. Each is read completely or refused.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use keylapse::When;
use keylapse::limits::MAX_KEY;
use keylapse_console::{Filter, TopicHandle, text};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, UNIX_EPOCH};

use crate::api::ApiError;
use crate::parse::parse_when;
use crate::web::SharedState;

/// Maximum items of one answer.
pub(super) const MAX_ITEMS: usize = 250;
/// Maximum conditions of a filter, and maximum bytes of each.
const CONDITIONS: usize = 16;
const CONDITION: usize = 256;

/// The parameters of the path.
pub(super) struct Path<T>(pub(super) T);

/// The parameters of the query. A list is a repeated parameter. Unknown parameters are refused.
pub(super) struct Query<T>(pub(super) T);

/// The body, as JSON. Unknown fields are refused.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|refused| ApiError::new(refused.status(), refused.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = serde_html_form::from_str(parts.uri.query().unwrap_or_default());
        query.map(Self).map_err(|error| bad(format!("invalid query: {error}")))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body: Result<_, JsonRejection> = axum::Json::<T>::from_request(request, state).await;
        body.map(|body| Self(body.0)).map_err(refused)
    }
}

fn refused(rejection: JsonRejection) -> ApiError {
    use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
    match rejection {
        JsonRejection::BytesRejection(BytesRejection::FailedToBufferBody(
            FailedToBufferBody::UnknownBodyError(_),
        )) => ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body ended early or did not arrive in time"),
        other => ApiError::new(other.status(), other.body_text()),
    }
}

pub(super) fn bad(why: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, why)
}

/// A page of a list: the position after which it begins, and its size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    pub(super) after: Option<String>,
    pub(super) count: Option<usize>,
}

/// Looks up a topic. An unknown topic is a 404 error.
pub(super) async fn topic(shared: &SharedState, name: &str) -> Result<TopicHandle, ApiError> {
    shared.console.topic(name).await.map_err(|error| ApiError::absent(&error))
}

/// Reads a key in its escaped form.
pub(super) fn key(said: &str) -> Result<Vec<u8>, ApiError> {
    let key = text::unescape(said)?;
    match key.len() {
        ..=MAX_KEY => Ok(key),
        long => Err(bad(format!("a key of {long} bytes is over the limit of {MAX_KEY}"))),
    }
}

/// Returns the size of a page, 1 to [`MAX_ITEMS`]; `otherwise` if the request has none.
pub(super) fn count(said: Option<usize>, otherwise: usize) -> Result<usize, ApiError> {
    match said.unwrap_or(otherwise) {
        count @ 1..=MAX_ITEMS => Ok(count),
        _ => {
            Err(bad(format!("count must be 1 to {MAX_ITEMS}: send `next` of an answer as `after` for more")))
        }
    }
}

pub(super) fn filter(conditions: &[String]) -> Result<Filter, ApiError> {
    if conditions.len() > CONDITIONS || conditions.iter().any(|one| one.len() > CONDITION) {
        return Err(bad(format!("a filter has at most {CONDITIONS} conditions of {CONDITION} bytes each")));
    }
    Ok(Filter::parse(conditions)?)
}

/// Reads a time. Exactly one of the three fields must be set.
pub(super) fn when(r#in: Option<&str>, at: Option<&str>, at_ms: Option<u64>) -> Result<When, ApiError> {
    match (r#in, at, at_ms) {
        (Some(text), None, None) | (None, Some(text), None) => parse_when(text).map_err(bad),
        (None, None, Some(ms)) => Ok(When::At(UNIX_EPOCH + Duration::from_millis(ms))),
        _ => Err(bad(
            "set exactly one of \"in\": \"15m\", \"at\": \"2026-11-25T09:30:00Z\" and \"at_ms\": 1795599000000",
        )),
    }
}

/// The parameter `payload`: `1` requests payloads.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum Payloads {
    #[default]
    #[serde(rename = "0")]
    Hidden,
    #[serde(rename = "1")]
    Wanted,
}

impl Payloads {
    /// Returns the maximum bytes of each payload; `None` if none are requested. Refuses the request if the server hides
    /// them.
    pub(super) fn bytes(self, shared: &SharedState, most: usize) -> Result<Option<usize>, ApiError> {
        match self {
            Self::Hidden => Ok(None),
            Self::Wanted if shared.shows_payloads => Ok(Some(most)),
            Self::Wanted => {
                let why = "this server hides payloads: start it with --show-payloads";
                Err(ApiError::new(StatusCode::FORBIDDEN, why))
            }
        }
    }
}
