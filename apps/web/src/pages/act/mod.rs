//! Actions from pages. Each is a posted form, is logged, and redirects to the page that it came from.

mod bulk;

pub(super) use self::bulk::{ask, bulk};

use axum::Form;
use axum::response::{IntoResponse, Redirect, Response};
use keylapse::Result as Answered;
use keylapse_console::{Action, ActionResult, Entry, TopicHandle, text};
use serde::Deserialize;

use super::frame::{PageRequest, link};
use crate::act::AuditedAction;
use crate::pages::error_page::ErrorPage;
use crate::parse::{check_destination, check_reason, parse_when};

/// Redirects to a page that shows the result.
async fn back(visit: &PageRequest, path: &str, fields: &[(&str, &str)], done: &ActionResult) -> Response {
    visit.shared.samples.changed(&done.topic).await;
    let fields = [fields, &[("outcome", done.outcome)]].concat();
    Redirect::to(&link(&visit.shared, path, &fields)).into_response()
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::pages) struct OfTimer {
    topic: String,
    key: String,
    verb: String,
    /// The new deadline, for a reschedule.
    #[serde(default)]
    to: String,
    /// Identifies a dead letter of the key, together with `died_ms`.
    #[serde(default)]
    id: String,
    #[serde(default)]
    died_ms: u64,
}

pub(in crate::pages) async fn timer(
    visit: PageRequest,
    Form(wanted): Form<OfTimer>,
) -> Result<Response, ErrorPage> {
    visit.may(&wanted.topic)?;
    let action = Action::try_from(wanted.verb.clone()).map_err(|error| visit.refuse(error.to_string()))?;
    let key = text::unescape(&wanted.key).map_err(|error| visit.trouble(&error))?;
    let action = match action {
        Action::Reschedule(_) => {
            Action::Reschedule(parse_when(wanted.to.trim()).map_err(|why| visit.refuse(why))?)
        }
        action => action,
    };
    let topic = visit.ask(visit.shared.console.topic(&wanted.topic)).await?;
    let (act, meant) = (AuditedAction::upon(action.as_str(), &topic, &key), wanted.clone());
    let deed = async move {
        let letter = if action.is_for_letters() { letter(&topic, &key, &meant).await? } else { None };
        topic.act(action, &key, letter.as_ref()).await
    };
    let done = visit.act(act, deed).await?;
    Ok(back(&visit, "/timer", &[("topic", &wanted.topic), ("key", &wanted.key)], &done).await)
}

/// Returns the dead letter that the page showed; `None` if it is gone.
async fn letter(topic: &TopicHandle, key: &[u8], wanted: &OfTimer) -> Answered<Option<Entry>> {
    let is_it = |entry: &Entry| {
        entry.at_ms == wanted.died_ms && entry.id.map(|id| id.to_string()).unwrap_or_default() == wanted.id
    };
    Ok(topic.dead_letters_of_key(key, None).await?.into_iter().find(is_it))
}

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct TopicForm {
    topic: String,
    verb: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    destination: String,
}

pub(in crate::pages) async fn topic(
    visit: PageRequest,
    Form(wanted): Form<TopicForm>,
) -> Result<Response, ErrorPage> {
    visit.may(&wanted.topic)?;
    let verb = match wanted.verb.as_str() {
        "pause" => "pause",
        "resume" => "resume",
        "try-now" => return try_now(&visit, wanted).await,
        _ => return Err(visit.refuse("unknown verb: write pause, resume or try-now")),
    };
    check_reason(wanted.reason.trim()).map_err(|why| visit.refuse(why))?;
    let name = wanted.topic.clone();
    let topic = visit.ask(visit.shared.console.topic(&name)).await?;
    let act = AuditedAction { verb, topic: topic.clone(), what: wanted.reason.clone() };
    let deed = async move {
        match verb {
            "pause" => topic.pause(wanted.reason.trim()).await,
            _ => topic.resume().await,
        }
    };
    let done = visit.act(act, deed).await?;
    Ok(back(&visit, "/topic", &[("name", &name)], &done).await)
}

/// Has listeners call a destination now.
async fn try_now(visit: &PageRequest, wanted: TopicForm) -> Result<Response, ErrorPage> {
    let TopicForm { topic: name, destination, .. } = wanted;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&name).await?;
        Ok((shared.samples.topic(&shared.console, &topic).await?.status, topic))
    };
    let (status, topic) = visit.ask(look).await?;
    check_destination(&status, &destination).map_err(|why| visit.refuse(why))?;
    let (act, console) = (AuditedAction::try_now(&topic, &destination), shared.console.clone());
    let deed = async move { console.try_now(topic.name(), &destination).await };
    let done = visit.act(act, deed).await?;
    Ok(back(visit, "/destinations", &[("topic", &name)], &done).await)
}
