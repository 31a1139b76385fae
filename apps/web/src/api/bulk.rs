//! One action on all entries that a filter lets pass, as the command line does it: what matches is counted, compared
//! with what was expected, and then acted upon.
//!
//! A request ends in bounded time. One that was cut short says where to go on.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use keylapse_console::{Action, BulkEnd, BulkReport, EntryState};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::act::{MOST, Many, Place};
use crate::api::Fault;
use crate::api::ask::{self, Body, Path, bad};
use crate::guard::Who;
use crate::serve::Closing;
use crate::web::Shared;

/// How long it counts.
const COUNTS: Duration = Duration::from_secs(20);

/// What is to be done, and to how many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(deserialize_with = "action")]
    action: Action,
    /// When, of a move.
    r#in: Option<String>,
    at: Option<String>,
    at_ms: Option<u64>,
    /// Which entries: waiting, or dead where the action is for letters.
    state: Option<String>,
    #[serde(default)]
    filters: Vec<String>,
    /// No more than so many.
    limit: Option<u64>,
    /// No more than so many a second.
    rate: Option<u32>,
    /// Do all but the last step.
    #[serde(default)]
    dry_run: bool,
    /// How many there have to be, or nothing is done.
    expect: Option<u64>,
    /// Where another has ended.
    after: Option<String>,
}

/// What became of them.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    topic: String,
    dry_run: bool,
    #[serde(flatten)]
    report: BulkReport,
}

pub(super) async fn run(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    closing: Option<Extension<Closing>>,
    Path(topic): Path<String>,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Done>, Fault> {
    let (dry_run, expect) = (wanted.dry_run, wanted.expect);
    if !dry_run && expect.is_none() {
        return Err(bad(
            "say \"expect\": how many there have to be, as a dry run counts them, or nothing is done",
        ));
    }
    let place = Place::take(&shared).ok_or_else(|| {
        let why = "enough such requests are under way: try again in some seconds";
        Fault::named(StatusCode::SERVICE_UNAVAILABLE, "too_many", why)
    })?;
    let many = wanted.read(&shared, &topic).await?;
    let topic = many.topic.name().to_owned();
    let counted = many.count(COUNTS).await?;
    if dry_run {
        return Ok(Json(Done { topic, dry_run, report: counted }));
    }
    agree(&counted, expect.unwrap_or_default())?;
    let many = Many { limit: counted.matched, ..many };
    let report = many.act(place, &shared, who, closing.map(|closing| closing.0)).await?;
    Ok(Json(Done { topic, dry_run, report }))
}

impl Wanted {
    async fn read(&self, shared: &Shared, topic: &str) -> Result<Many, Fault> {
        let limit = self.limit.unwrap_or(MOST);
        if !(1..=MOST).contains(&limit) {
            return Err(bad(format!("limit is 1 to {MOST}: `cursor` of an answer says where to go on")));
        }
        let state = match &self.state {
            Some(state) => state.parse()?,
            None if self.action.is_for_letters() => EntryState::Dead,
            None => EntryState::Waiting,
        };
        Ok(Many {
            action: self.action()?,
            state,
            filter: ask::filter(&self.filters)?,
            limit,
            rate: self.rate.unwrap_or_default(),
            after: self.after.as_deref().map(str::parse).transpose()?,
            topic: ask::topic(shared, topic).await?,
        })
    }

    fn action(&self) -> Result<Action, Fault> {
        let has_when = self.r#in.is_some() || self.at.is_some() || self.at_ms.is_some();
        match (self.action, has_when) {
            (Action::Reschedule(_), _) => {
                ask::when(self.r#in.as_deref(), self.at.as_deref(), self.at_ms).map(Action::Reschedule)
            }
            (_, true) => Err(bad("a time is for \"reschedule\" alone")),
            (action, false) => Ok(action),
        }
    }
}

/// By its word; a reschedule without its time.
fn action<'a, D: Deserializer<'a>>(from: D) -> Result<Action, D::Error> {
    Action::try_from(String::deserialize(from)?).map_err(D::Error::custom)
}

fn agree(counted: &BulkReport, expected: u64) -> Result<(), Fault> {
    let refuse = |kind, why: String| Err(Fault::named(StatusCode::CONFLICT, kind, why));
    let matched = counted.matched;
    if counted.end != BulkEnd::Whole {
        let why = "counting took too long: nothing was done; say a smaller limit, or begin behind where a dry run has ended";
        return refuse("not_counted", why.to_owned());
    }
    if matched != expected {
        let why =
            format!("{matched} found, {expected} expected: nothing was done; look at them with a dry run");
        return refuse("not_as_expected", why);
    }
    Ok(())
}
