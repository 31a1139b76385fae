//! One timer, or one dead letter.

use axum::Form;
use axum::response::Response;
use keylapse::Result as Answered;
use keylapse_console::{Action, Entry, KnownTopic, text};
use serde::Deserialize;

use super::back;
use crate::act::Act;
use crate::asking::parse_when;
use crate::pages::frame::Visit;
use crate::pages::trouble::Trouble;

#[derive(Clone, Debug, Deserialize)]
pub(in crate::pages) struct Wanted {
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

pub(in crate::pages) async fn timer(visit: Visit, Form(wanted): Form<Wanted>) -> Result<Response, Trouble> {
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
async fn letter(topic: &KnownTopic, key: &[u8], wanted: &Wanted) -> Answered<Option<Entry>> {
    let is_it = |entry: &Entry| {
        entry.at_ms == wanted.died_ms && entry.id.map(|id| id.to_string()).unwrap_or_default() == wanted.id
    };
    Ok(topic.letters_of(key, None).await?.into_iter().find(is_it))
}
