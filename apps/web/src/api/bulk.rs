//! One action on all entries that match a filter. The matching entries are counted, and the action runs if their number is
//! the expected one.
//!
//! A request ends in bounded time. If it ends early, its answer has the cursor for the next request.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use keylapse_console::{Action, BulkEnd, BulkReport, EntryState};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::act::{BulkJob, BulkPermit, MAX_BULK_ENTRIES};
use crate::api::ApiError;
use crate::api::ask::{self, Body, Path, bad};
use crate::guard::Caller;
use crate::serve::ServerShutdown;
use crate::web::SharedState;

/// Time limit of counting.
const COUNTS: Duration = Duration::from_secs(20);

/// The body of a bulk request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkBody {
    #[serde(deserialize_with = "action")]
    action: Action,
    /// The new deadline of a reschedule, in one of three forms.
    r#in: Option<String>,
    at: Option<String>,
    at_ms: Option<u64>,
    /// The state of the entries. Default: `dead` for actions on dead letters, else `waiting`.
    state: Option<String>,
    #[serde(default)]
    filters: Vec<String>,
    /// Maximum entries.
    limit: Option<u64>,
    /// Maximum entries per second.
    rate: Option<u32>,
    /// Only count the entries.
    #[serde(default)]
    dry_run: bool,
    /// The expected number of entries. If it is another, nothing is done.
    expect: Option<u64>,
    /// The cursor at which an earlier request ended.
    after: Option<String>,
}

/// The result of a bulk request.
#[derive(Debug, Serialize)]
pub(super) struct BulkResponse {
    topic: String,
    dry_run: bool,
    #[serde(flatten)]
    report: BulkReport,
}

pub(super) async fn run(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    closing: Option<Extension<ServerShutdown>>,
    Path(topic): Path<String>,
    Body(wanted): Body<BulkBody>,
) -> Result<Json<BulkResponse>, ApiError> {
    let (dry_run, expect) = (wanted.dry_run, wanted.expect);
    if !dry_run && expect.is_none() {
        return Err(bad("\"expect\" is missing: set it to the number of entries that a dry run counts"));
    }
    let place = BulkPermit::take(&shared).ok_or_else(|| {
        let why = "too many bulk requests are running: try again in a few seconds";
        ApiError::named(StatusCode::SERVICE_UNAVAILABLE, "too_many", why)
    })?;
    let many = wanted.read(&shared, &topic).await?;
    let topic = many.topic.name().to_owned();
    let counted = many.count(COUNTS).await?;
    if dry_run {
        return Ok(Json(BulkResponse { topic, dry_run, report: counted }));
    }
    agree(&counted, expect.unwrap_or_default())?;
    let many = BulkJob { limit: counted.matched, ..many };
    let report = many.act(place, &shared, who, closing.map(|closing| closing.0)).await?;
    Ok(Json(BulkResponse { topic, dry_run, report }))
}

impl BulkBody {
    async fn read(&self, shared: &SharedState, topic: &str) -> Result<BulkJob, ApiError> {
        let limit = self.limit.unwrap_or(MAX_BULK_ENTRIES);
        if !(1..=MAX_BULK_ENTRIES).contains(&limit) {
            return Err(bad(format!(
                "limit must be 1 to {MAX_BULK_ENTRIES}: send `cursor` of an answer as `after` for more"
            )));
        }
        let state = match &self.state {
            Some(state) => state.parse()?,
            None if self.action.is_for_letters() => EntryState::Dead,
            None => EntryState::Waiting,
        };
        Ok(BulkJob {
            action: self.action()?,
            state,
            filter: ask::filter(&self.filters)?,
            limit,
            rate: self.rate.unwrap_or_default(),
            after: self.after.as_deref().map(str::parse).transpose()?,
            topic: ask::topic(shared, topic).await?,
        })
    }

    fn action(&self) -> Result<Action, ApiError> {
        let has_when = self.r#in.is_some() || self.at.is_some() || self.at_ms.is_some();
        match (self.action, has_when) {
            (Action::Reschedule(_), _) => {
                ask::when(self.r#in.as_deref(), self.at.as_deref(), self.at_ms).map(Action::Reschedule)
            }
            (_, true) => Err(bad("only \"reschedule\" takes a time: remove \"in\", \"at\" and \"at_ms\"")),
            (action, false) => Ok(action),
        }
    }
}

/// Reads the name of an action. A reschedule gets its time later.
fn action<'a, D: Deserializer<'a>>(from: D) -> Result<Action, D::Error> {
    Action::try_from(String::deserialize(from)?).map_err(D::Error::custom)
}

fn agree(counted: &BulkReport, expected: u64) -> Result<(), ApiError> {
    let refuse = |kind, why: String| Err(ApiError::named(StatusCode::CONFLICT, kind, why));
    let matched = counted.matched;
    if counted.end != BulkEnd::Completed {
        let why = "counting took too long: nothing was done; set a smaller limit, or set \"after\" to the cursor of a dry run";
        return refuse("not_counted", why.to_owned());
    }
    if matched != expected {
        let why =
            format!("{matched} found, {expected} expected: nothing was done; check them with a dry run");
        return refuse("not_as_expected", why);
    }
    Ok(())
}
