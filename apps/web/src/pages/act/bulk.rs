//! All entries that match: counted first, then done to as many as were agreed to.

use std::time::Duration;

use askama::Template;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use keylapse_console::words::short;
use keylapse_console::{Action, BulkEnd, BulkReport, counted, show_count, text};
use serde::Deserialize;

use crate::act::{MOST, Many, Place};
use crate::asking::{self, parse_when};
use crate::pages::frame::{Frame, Visit, answer, link};
use crate::pages::notice;
use crate::pages::topic::{filter_of, state_of};
use crate::pages::trouble::Trouble;
use crate::serve::Closing;

/// Counting ends after so long.
const COUNTING: Duration = Duration::from_secs(3);

/// What is to be done, and to which entries.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::pages) struct Wanted {
    name: String,
    state: String,
    filter: String,
    verb: String,
    /// Of a reschedule: when.
    to: String,
    /// How many were counted.
    expect: u64,
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Page {
    frame: Frame,
    wanted: Wanted,
    action: Action,
    words: String,
    shown: String,
    matched: u64,
    /// There may be more than those that were counted.
    is_cut: bool,
    /// Counting took too long: nothing can be agreed to.
    is_endless: bool,
    needs_time: bool,
    /// What has happened meanwhile.
    remark: String,
    errors: Vec<String>,
    command: String,
    back: String,
}

/// Says how many there are, and asks.
pub(in crate::pages) async fn ask(visit: Visit, Query(wanted): Query<Wanted>) -> Result<Response, Trouble> {
    if visit.who.role != crate::access::Role::Act {
        return Err(visit.refuse("this token may only look"));
    }
    let many = read(&visit, &wanted).await?;
    let counted = count(&visit, &many).await?;
    Ok(confirm(&visit, wanted, &many, &counted, String::new()))
}

/// Does it, if there are still as many.
pub(in crate::pages) async fn bulk(
    visit: Visit,
    closing: Option<Extension<Closing>>,
    Form(wanted): Form<Wanted>,
) -> Result<Response, Trouble> {
    let many = read(&visit, &wanted).await?;
    if is_reschedule(many.action) && wanted.to.trim().is_empty() {
        return Err(visit.refuse("say when: a span, such as 15m, or a time"));
    }
    let counted = count(&visit, &many).await?;
    if counted.matched != wanted.expect || counted.end != BulkEnd::Whole {
        let (found, expected) = (show_count(counted.matched), show_count(wanted.expect));
        let remark = format!("{found} found, {expected} expected: nothing was done");
        let page = confirm(&visit, wanted, &many, &counted, remark);
        return Ok((StatusCode::CONFLICT, page).into_response());
    }
    let busy = || visit.refuse("enough such actions are under way: try again in some seconds");
    let place = Place::take(&visit.shared).ok_or_else(busy)?;
    let agreed = Many { limit: counted.matched, ..many.clone() };
    let acted = agreed.act(place, &visit.shared, visit.who.clone(), closing.map(|closing| closing.0));
    let report = acted.await.map_err(|error| visit.trouble(&error))?;
    visit.shared.samples.changed(many.topic.name()).await;
    if report.failed > 0 || report.end != BulkEnd::Whole {
        return Ok(ended_early(&visit, wanted, &many, &report));
    }
    let said = notice::fields(&report);
    let said: Vec<_> = said.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let fields = [&fields(&wanted)[..], &said].concat();
    Ok(Redirect::to(&link(&visit.shared, "/topic", &fields)).into_response())
}

/// By the same way as it is done, but for the last step.
async fn count(visit: &Visit, many: &Many) -> Result<BulkReport, Trouble> {
    many.count(COUNTING).await.map_err(|error| visit.trouble(&error))
}

async fn read(visit: &Visit, wanted: &Wanted) -> Result<Many, Trouble> {
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
    Ok(Many { topic, state, filter, action, limit: MOST, rate: 0, after: None })
}

impl Many {
    fn words(&self, matched: u64) -> String {
        let all = format!("{} of {}", counted(matched, self.state.called()), self.topic.name());
        if self.filter.is_empty() {
            all
        } else {
            format!("{all} matching {}", short(&self.filter.to_string(), 400))
        }
    }

    /// The same for a terminal.
    fn command(&self, wanted: &Wanted) -> String {
        let conditions = asking::conditions(&wanted.filter).unwrap_or_default();
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

fn fields(wanted: &Wanted) -> [(&'static str, &str); 3] {
    [("name", &wanted.name), ("state", &wanted.state), ("filter", &wanted.filter)]
}

fn confirm(visit: &Visit, wanted: Wanted, many: &Many, counted: &BulkReport, remark: String) -> Response {
    let page = Page {
        frame: visit.frame("topics").still(),
        action: many.action,
        words: many.words(counted.matched),
        shown: show_count(counted.matched),
        matched: counted.matched,
        is_cut: counted.matched >= MOST && counted.cursor.is_some(),
        is_endless: counted.end != BulkEnd::Whole,
        needs_time: is_reschedule(many.action),
        remark,
        errors: Vec::new(),
        command: many.command(&wanted),
        back: link(&visit.shared, "/topic", &fields(&wanted)),
        wanted,
    };
    answer(&page)
}

/// Not all of it was done: what was and what was not, in place of the page that follows.
fn ended_early(visit: &Visit, wanted: Wanted, many: &Many, report: &BulkReport) -> Response {
    let why = match report.end {
        BulkEnd::Stopped => "It took too long, and was ended",
        BulkEnd::Lost => "The server was lost on the way",
        _ => "Some were refused",
    };
    let remark = format!("{why}: what was done stays done. {report}");
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
