//! One action on all entries that a filter lets pass, as the command line does it: what matches is counted, compared
//! with what was expected, and then acted upon.
//!
//! A request ends in bounded time. One that was cut short says where to go on.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use futures::future::{Either, pending, select};
use keylapse::console::{Action, BulkEnd, BulkReport, Cursor, EntryState, Filter, KnownTopic};
use serde::{Deserialize, Serialize};

use crate::act::{Act, Did};
use crate::api::Fault;
use crate::api::ask::{self, Body, Path, bad};
use crate::guard::Who;
use crate::serve::Closing;
use crate::web::Shared;

/// Entries that one request acts upon, at most.
const MOST: u64 = 10_000;
/// How long it counts, and how long it acts. Together they are shorter than a request may take.
const COUNTS: Duration = Duration::from_secs(20);
const ACTS: Duration = Duration::from_secs(25);

/// What is to be done, and to how many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    action: Verb,
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

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Cancel,
    RunNow,
    Reschedule,
    Replay,
    ReplayAsNew,
    Drop,
}

/// What became of them.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    topic: String,
    dry_run: bool,
    #[serde(flatten)]
    report: BulkReport,
}

/// What is meant, once it has been read.
#[derive(Clone)]
struct Work {
    topic: KnownTopic,
    action: Action,
    state: EntryState,
    filter: Filter,
    limit: u64,
    rate: u32,
    after: Option<Cursor>,
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
    let place = shared.bulks.clone().try_acquire_owned().map_err(|_| {
        let why = "enough such requests are under way: try again in some seconds";
        Fault::named(StatusCode::SERVICE_UNAVAILABLE, "too_many", why)
    })?;
    let work = wanted.read(&shared, &topic).await?;
    let counted = work.count().await?;
    if dry_run {
        return Ok(work.done(true, counted));
    }
    work.agree(&counted, expect.unwrap_or_default())?;
    let work = Work { limit: counted.matched, ..work };
    let act = Act { verb: wanted.action.as_str(), topic: work.topic.clone(), what: work.words() };
    let deed = async move {
        let _place = place;
        let report = work.act(closing.map(|closing| closing.0)).await?;
        let (outcome, count) = (report.to_string(), report.done);
        Ok(Did { outcome, count, found: work.done(false, report) })
    };
    Ok(act.take(&shared, who, deed).await?)
}

impl Wanted {
    async fn read(&self, shared: &Shared, topic: &str) -> Result<Work, Fault> {
        let limit = self.limit.unwrap_or(MOST);
        if !(1..=MOST).contains(&limit) {
            return Err(bad(format!("limit is 1 to {MOST}: `cursor` of an answer says where to go on")));
        }
        let state = match &self.state {
            Some(state) => state.parse()?,
            None => self.action.state(),
        };
        Ok(Work {
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
        let when = || ask::when(self.r#in.as_deref(), self.at.as_deref(), self.at_ms);
        let has_when = self.r#in.is_some() || self.at.is_some() || self.at_ms.is_some();
        Ok(match self.action {
            Verb::Reschedule => Action::Reschedule(when()?),
            _ if has_when => return Err(bad("a time is for \"reschedule\" alone")),
            Verb::Cancel => Action::Cancel,
            Verb::RunNow => Action::RunNow,
            Verb::Replay => Action::Replay,
            Verb::ReplayAsNew => Action::ReplayAsNew,
            Verb::Drop => Action::Drop,
        })
    }
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::RunNow => "run_now",
            Self::Reschedule => "reschedule",
            Self::Replay => "replay",
            Self::ReplayAsNew => "replay_as_new",
            Self::Drop => "drop",
        }
    }

    /// The entries that it is mostly for.
    fn state(self) -> EntryState {
        match self {
            Self::Cancel | Self::RunNow | Self::Reschedule => EntryState::Waiting,
            Self::Replay | Self::ReplayAsNew | Self::Drop => EntryState::Dead,
        }
    }
}

impl Work {
    fn bulk(&self) -> keylapse::console::Bulk<'_> {
        let bulk = self.topic.bulk(self.action, self.state, self.filter.clone());
        bulk.limit(self.limit).after(self.after.clone())
    }

    /// How many match: all but the last step.
    async fn count(&self) -> Result<BulkReport, Fault> {
        Ok(self.bulk().dry_run(true).until(tokio::time::sleep(COUNTS)).run().await?)
    }

    fn agree(&self, counted: &BulkReport, expected: u64) -> Result<(), Fault> {
        let refuse = |kind, why: String| Err(Fault::named(StatusCode::CONFLICT, kind, why));
        if counted.end != BulkEnd::Whole {
            let why = "counting took too long: nothing was done; say a smaller limit, or begin behind where a dry run has ended";
            return refuse("not_counted", why.to_owned());
        }
        let matched = counted.matched;
        if matched != expected {
            let why = format!(
                "{matched} found, {expected} expected: nothing was done; look at them with a dry run"
            );
            return refuse("not_as_expected", why);
        }
        Ok(())
    }

    /// Ends early where it takes too long, or the server is to end.
    async fn act(&self, closing: Option<Closing>) -> Result<BulkReport, keylapse::Error> {
        if self.limit == 0 {
            return Ok(BulkReport::default());
        }
        let closes = match closing {
            Some(closing) => Either::Left(closing.begins()),
            None => Either::Right(pending()),
        };
        let ends = async move {
            let time = tokio::time::sleep(ACTS);
            tokio::pin!(closes, time);
            select(closes, time).await;
        };
        self.bulk().rate(self.rate).until(ends).run().await
    }

    fn done(&self, dry_run: bool, report: BulkReport) -> Json<Done> {
        Json(Done { topic: self.topic.name().to_owned(), dry_run, report })
    }

    /// `dead error:~timeout`.
    fn words(&self) -> String {
        format!("{} {}", self.state.as_str(), self.filter).trim_end().to_owned()
    }
}
