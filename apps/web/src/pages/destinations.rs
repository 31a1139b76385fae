//! The page of the destinations that a topic's handlers call, such as hosts.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse::destinations::{Destination, DestinationState};
use keylapse_console::format::{brief, short};
use keylapse_console::show_count;
use serde::Deserialize;

use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, answer};
use super::notice::{Notice, NoticeQuery};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DestinationsQuery {
    topic: String,
}

#[derive(Template)]
#[template(path = "destinations.html")]
struct Page {
    frame: Frame,
    topic: String,
    link: String,
    rows: Vec<Row>,
}

struct Row {
    /// The reported name, for a form.
    name: String,
    shown: String,
    state: &'static str,
    says: &'static str,
    is_held: bool,
    failures: String,
    error: String,
    answer: String,
    again: String,
}

pub(super) async fn show(
    visit: PageRequest,
    Query(asked): Query<DestinationsQuery>,
    Query(said): Query<NoticeQuery>,
) -> Result<Response, ErrorPage> {
    visit.may(&asked.topic)?;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&asked.topic).await?;
        shared.samples.topic(&shared.console, &topic).await
    };
    let standing = visit.ask(look).await?;
    let frame = visit.frame("topics").aged(standing.age).saying(Notice::of(&said));
    let rows = standing.status.destinations.iter().map(row).collect();
    let topic = standing.status.topic.name().to_owned();
    Ok(answer(&Page { link: frame.topic(&topic), topic, rows, frame }))
}

fn row(one: &Destination) -> Row {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    Row {
        name: one.name.clone(),
        shown: short(&one.name, 255),
        state: one.state.as_str(),
        says: says(one.state),
        is_held: one.state.holds_back(),
        failures: show_count(one.failures.into()),
        error: or_none(one.last_error.as_deref().map(|text| short(text, 200))),
        answer: or_none(one.last_answer.as_deref().map(|text| short(text, 100))),
        again: or_none(one.retry_in_ms.map(|ms| format!("in {}", brief(ms)))),
    }
}

fn says(state: DestinationState) -> &'static str {
    match state {
        DestinationState::Ok => "answers",
        DestinationState::Failing => "the last call failed",
        DestinationState::Busy => "asked to be called later; timers wait",
        _ => "too many calls in a row failed; timers wait",
    }
}
