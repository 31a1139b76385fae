//! One timer, or one dead letter.

use axum::Form;
use axum::response::Response;
use keylapse::{Result as Answered, When};
use keylapse_console::{Became, Entry, KnownTopic, text};
use serde::Deserialize;

use super::back;
use crate::act::{Act, Did};
use crate::asking::parse_when;
use crate::pages::frame::Visit;
use crate::pages::trouble::Trouble;
use crate::verb::{NOW, Verb};

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
    let verb = Verb::try_from(wanted.verb.clone()).map_err(|why| visit.refuse(why))?;
    let key = text::unescape(&wanted.key).map_err(|error| visit.trouble(&error))?;
    let to = match verb {
        Verb::Reschedule => parse_when(wanted.to.trim()).map_err(|why| visit.refuse(why))?,
        _ => NOW,
    };
    let topic = visit.ask(visit.shared.console.topic(&wanted.topic)).await?;
    let (act, meant) = (Act::upon(verb.word(), &topic, &key), wanted.clone());
    let deed = async move {
        let became = see_through(&topic, &key, verb, to, &meant).await?;
        Ok(Did::one(became, became))
    };
    let became = visit.act(act, deed).await?;
    let topic = wanted.topic.as_str();
    Ok(back(&visit, topic, "/timer", &[("topic", topic), ("key", &wanted.key)], became).await)
}

async fn see_through(
    topic: &KnownTopic,
    key: &[u8],
    verb: Verb,
    to: When,
    wanted: &Wanted,
) -> Answered<Became> {
    Ok(match verb {
        Verb::RunNow => Became::of_run_now(topic.run_now(key).await?),
        Verb::Reschedule => Became::of_move(topic.reschedule(key, to).await?),
        Verb::Cancel => Became::of_cancel(topic.cancel(key).await?),
        Verb::Replay | Verb::ReplayAsNew | Verb::Drop => {
            let Some(letter) = letter(topic, key, wanted).await? else { return Ok(Became::GONE) };
            match verb {
                Verb::Drop => Became::of_drop(topic.drop_letter(&letter).await?),
                verb => Became::of_replay(topic.replay(&letter, verb == Verb::ReplayAsNew).await?),
            }
        }
    })
}

/// The letter that was shown, if it is still there.
async fn letter(topic: &KnownTopic, key: &[u8], wanted: &Wanted) -> Answered<Option<Entry>> {
    let is_it = |entry: &Entry| {
        entry.at_ms == wanted.died_ms && entry.id.map(|id| id.to_string()).unwrap_or_default() == wanted.id
    };
    Ok(topic.letters_of(key, None).await?.into_iter().find(is_it))
}
