//! What is done: each is a form that is posted, is written into the log, and leads back to where it came from.

mod bulk;

pub(super) use self::bulk::{ask, bulk};

use axum::Form;
use axum::response::{IntoResponse, Redirect, Response};
use keylapse::Result as Answered;
use keylapse_console::{Action, Done, Entry, KnownTopic, text};
use serde::Deserialize;

use super::frame::{Visit, link};
use crate::act::Act;
use crate::asking::{check_destination, check_reason, parse_when};
use crate::pages::trouble::Trouble;

/// To a page that says what became of it.
async fn back(visit: &Visit, path: &str, fields: &[(&str, &str)], done: &Done) -> Response {
    visit.shared.samples.changed(&done.topic).await;
    let fields = [fields, &[("did", done.outcome)]].concat();
    Redirect::to(&link(&visit.shared, path, &fields)).into_response()
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::pages) struct OfTimer {
    topic: String,
    key: String,
    verb: String,
    /// Of a reschedule: when.
    #[serde(default)]
    to: String,
    /// Of a letter: which one of the key's.
    #[serde(default)]
    id: String,
    #[serde(default)]
    died_ms: u64,
}

pub(in crate::pages) async fn timer(visit: Visit, Form(wanted): Form<OfTimer>) -> Result<Response, Trouble> {
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
    let (act, meant) = (Act::upon(action.as_str(), &topic, &key), wanted.clone());
    let deed = async move {
        let letter = if action.is_for_letters() { letter(&topic, &key, &meant).await? } else { None };
        topic.act(action, &key, letter.as_ref()).await
    };
    let done = visit.act(act, deed).await?;
    Ok(back(&visit, "/timer", &[("topic", &wanted.topic), ("key", &wanted.key)], &done).await)
}

/// The letter that was shown, if it is still there.
async fn letter(topic: &KnownTopic, key: &[u8], wanted: &OfTimer) -> Answered<Option<Entry>> {
    let is_it = |entry: &Entry| {
        entry.at_ms == wanted.died_ms && entry.id.map(|id| id.to_string()).unwrap_or_default() == wanted.id
    };
    Ok(topic.letters_of(key, None).await?.into_iter().find(is_it))
}

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct OfTopic {
    topic: String,
    verb: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    destination: String,
}

pub(in crate::pages) async fn topic(visit: Visit, Form(wanted): Form<OfTopic>) -> Result<Response, Trouble> {
    visit.may(&wanted.topic)?;
    let verb = match wanted.verb.as_str() {
        "pause" => "pause",
        "resume" => "resume",
        "try-now" => return try_now(&visit, wanted).await,
        _ => return Err(visit.refuse("verb is pause, resume or try-now")),
    };
    check_reason(wanted.reason.trim()).map_err(|why| visit.refuse(why))?;
    let name = wanted.topic.clone();
    let topic = visit.ask(visit.shared.console.topic(&name)).await?;
    let act = Act { verb, topic: topic.clone(), what: wanted.reason.clone() };
    let deed = async move {
        match verb {
            "pause" => topic.pause(wanted.reason.trim()).await,
            _ => topic.resume().await,
        }
    };
    let done = visit.act(act, deed).await?;
    Ok(back(&visit, "/topic", &[("name", &name)], &done).await)
}

/// A host that holds work back is called.
async fn try_now(visit: &Visit, wanted: OfTopic) -> Result<Response, Trouble> {
    let OfTopic { topic: name, destination, .. } = wanted;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&name).await?;
        Ok((shared.samples.topic(&shared.console, &topic).await?.status, topic))
    };
    let (status, topic) = visit.ask(look).await?;
    check_destination(&status, &destination).map_err(|why| visit.refuse(why))?;
    let (act, console) = (Act::try_now(&topic, &destination), shared.console.clone());
    let deed = async move { console.try_now(topic.name(), &destination).await };
    let done = visit.act(act, deed).await?;
    Ok(back(visit, "/hosts", &[("topic", &name)], &done).await)
}
