//! Bulk actions from pages. The matching entries are counted, and the action runs if the confirmed number still matches.

use std::time::Duration;

use askama::Template;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use keylapse_console::format::short;
use keylapse_console::{Action, BulkEnd, BulkReport, counted, show_count, text};
use serde::Deserialize;

use crate::act::{BulkJob, BulkPermit, MAX_BULK_ENTRIES};
use crate::pages::error_page::ErrorPage;
use crate::pages::frame::{Frame, PageRequest, answer, link};
use crate::pages::notice;
use crate::pages::topic::{filter_of, state_of};
use crate::parse::{self, parse_when};
use crate::serve::ServerShutdown;

/// Time limit of counting.
const COUNTING: Duration = Duration::from_secs(3);

/// The action, and the entries that it is for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::pages) struct BulkForm {
    name: String,
    state: String,
    filter: String,
    verb: String,
    /// The new deadline, for a reschedule.
    to: String,
    /// The number of entries that the caller confirmed.
    expect: u64,
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Page {
    frame: Frame,
    wanted: BulkForm,
    action: Action,
    words: String,
    shown: String,
    matched: u64,
    /// `true` if more entries match than one action is for.
    is_cut: bool,
    /// `true` if counting took too long, so that there is nothing to confirm.
    is_endless: bool,
    needs_time: bool,
    /// Why an action was not done completely.
    remark: String,
    errors: Vec<String>,
    command: String,
    back: String,
}

/// Counts the matching entries, and asks for confirmation.
pub(in crate::pages) async fn ask(
    visit: PageRequest,
    Query(wanted): Query<BulkForm>,
) -> Result<Response, ErrorPage> {
    if visit.who.role != crate::access::Role::Act {
        return Err(visit.refuse("this token may only read: log in with one that may act"));
    }
    let many = read(&visit, &wanted).await?;
    let counted = count(&visit, &many).await?;
    Ok(confirm(&visit, wanted, &many, &counted, String::new()))
}

/// Runs the action, if the confirmed number of entries still matches.
pub(in crate::pages) async fn bulk(
    visit: PageRequest,
    closing: Option<Extension<ServerShutdown>>,
    Form(wanted): Form<BulkForm>,
) -> Result<Response, ErrorPage> {
    let many = read(&visit, &wanted).await?;
    if is_reschedule(many.action) && wanted.to.trim().is_empty() {
        return Err(visit.refuse("the new deadline is missing: write a span, such as 15m, or a time"));
    }
    let counted = count(&visit, &many).await?;
    if counted.matched != wanted.expect || counted.end != BulkEnd::Completed {
        let (found, expected) = (show_count(counted.matched), show_count(wanted.expect));
        let remark = format!("{found} found, {expected} expected: nothing was done");
        let page = confirm(&visit, wanted, &many, &counted, remark);
        return Ok((StatusCode::CONFLICT, page).into_response());
    }
    let busy = || visit.refuse("too many bulk actions are running: try again in a few seconds");
    let place = BulkPermit::take(&visit.shared).ok_or_else(busy)?;
    let agreed = BulkJob { limit: counted.matched, ..many.clone() };
    let acted = agreed.act(place, &visit.shared, visit.who.clone(), closing.map(|closing| closing.0));
    let report = acted.await.map_err(|error| visit.trouble(&error))?;
    visit.shared.samples.changed(many.topic.name()).await;
    if report.failed > 0 || report.end != BulkEnd::Completed {
        return Ok(ended_early(&visit, wanted, &many, &report));
    }
    let said = notice::fields(&report);
    let said: Vec<_> = said.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let fields = [&fields(&wanted)[..], &said].concat();
    Ok(Redirect::to(&link(&visit.shared, "/topic", &fields)).into_response())
}

/// Counts the matching entries with a dry run.
async fn count(visit: &PageRequest, many: &BulkJob) -> Result<BulkReport, ErrorPage> {
    many.count(COUNTING).await.map_err(|error| visit.trouble(&error))
}

async fn read(visit: &PageRequest, wanted: &BulkForm) -> Result<BulkJob, ErrorPage> {
    visit.may(&wanted.name)?;
    let mut action =
        Action::try_from(wanted.verb.clone()).map_err(|error| visit.refuse(error.to_string()))?;
    let (state, filter) = (state_of(visit, &wanted.state)?, filter_of(visit, &wanted.filter)?);
    if !wanted.to.trim().is_empty() {
        let when = parse_when(wanted.to.trim()).map_err(|why| visit.refuse(why))?;
        if is_reschedule(action) {
            action = Action::Reschedule(when);
        }
    }
    let topic = visit.ask(visit.shared.console.topic(&wanted.name)).await?;
    Ok(BulkJob { topic, state, filter, action, limit: MAX_BULK_ENTRIES, rate: 0, after: None })
}

impl BulkJob {
    fn words(&self, matched: u64) -> String {
        let all = format!("{} of {}", counted(matched, self.state.label()), self.topic.name());
        if self.filter.is_empty() {
            all
        } else {
            format!("{all} matching {}", short(&self.filter.to_string(), 400))
        }
    }

    /// Returns the command for a terminal that does the same.
    fn command(&self, wanted: &BulkForm) -> String {
        let conditions = parse::conditions(&wanted.filter).unwrap_or_default();
        let conditions: String = conditions.iter().map(|one| format!(" {}", text::quoted(one))).collect();
        let name = text::quoted(self.topic.name());
        match self.action {
            Action::Replay => format!("keylapse dead replay {name}{conditions}"),
            Action::ReplayAsNew => format!("keylapse dead replay {name}{conditions} --as-new"),
            Action::Drop => format!("keylapse dead drop {name}{conditions}"),
            action => {
                let to = if is_reschedule(action) { " --to 15m" } else { "" };
                let state = self.state.as_str();
                format!("keylapse {} --in {name} --state {state}{conditions}{to}", action.as_str())
            }
        }
    }
}

fn is_reschedule(action: Action) -> bool {
    matches!(action, Action::Reschedule(_))
}

fn fields(wanted: &BulkForm) -> [(&'static str, &str); 3] {
    [("name", &wanted.name), ("state", &wanted.state), ("filter", &wanted.filter)]
}

fn confirm(
    visit: &PageRequest,
    wanted: BulkForm,
    many: &BulkJob,
    counted: &BulkReport,
    remark: String,
) -> Response {
    let page = Page {
        frame: visit.frame("topics").still(),
        action: many.action,
        words: many.words(counted.matched),
        shown: show_count(counted.matched),
        matched: counted.matched,
        is_cut: counted.matched >= MAX_BULK_ENTRIES && counted.cursor.is_some(),
        is_endless: counted.end != BulkEnd::Completed,
        needs_time: is_reschedule(many.action),
        remark,
        errors: Vec::new(),
        command: many.command(&wanted),
        back: link(&visit.shared, "/topic", &fields(&wanted)),
        wanted,
    };
    answer(&page)
}

/// Shows the result of an action that was not done completely.
fn ended_early(visit: &PageRequest, wanted: BulkForm, many: &BulkJob, report: &BulkReport) -> Response {
    let why = match report.end {
        BulkEnd::Stopped => "The action took too long and was stopped",
        BulkEnd::ServerLost => "The connection to Redis was lost",
        _ => "Some entries failed",
    };
    let remark = format!("{why}. Changes made until then remain. {report}");
    let errors = report.errors.iter().map(|error| short(error, 300)).collect();
    let page = Page {
        frame: visit.frame("topics").still(),
        action: many.action,
        words: many.words(report.matched),
        shown: String::new(),
        matched: 0,
        is_cut: false,
        is_endless: false,
        needs_time: false,
        remark,
        errors,
        command: many.command(&wanted),
        back: link(&visit.shared, "/topic", &fields(&wanted)),
        wanted,
    };
    (StatusCode::BAD_GATEWAY, answer(&page)).into_response()
}
