//! The places that a topic's handlers call, such as hosts, and whether they hold work back.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse::destinations::{Destination, DestinationState};
use keylapse_console::show_count;
use keylapse_console::words::{brief, short};
use serde::Deserialize;

use super::frame::{Frame, Visit, answer};
use super::notice::{Notice, Said};
use super::trouble::Trouble;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    topic: String,
}

#[derive(Template)]
#[template(path = "hosts.html")]
struct Page {
    frame: Frame,
    topic: String,
    link: String,
    rows: Vec<Row>,
}

struct Row {
    /// As it is reported, for a form.
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
    visit: Visit,
    Query(asked): Query<Asked>,
    Query(said): Query<Said>,
) -> Result<Response, Trouble> {
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
        DestinationState::Ok => "it answers",
        DestinationState::Failing => "the last call failed",
        DestinationState::Busy => "it asked to be called later: work is held back",
        _ => "too many calls in a row have failed: work is held back",
    }
}
