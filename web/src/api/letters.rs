//! One dead letter, by its topic, its key, and what tells it from others of that key: `{id}-{at_ms}`.

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use keylapse_console::{Became, Entry, KnownTopic};
use serde::Deserialize;

use crate::act::Act;
use crate::api::Fault;
use crate::api::ask::{self, Body, Path};
use crate::api::done::{self, Answer};
use crate::guard::Who;
use crate::verb::Verb;
use crate::web::Shared;

/// How it is to be replayed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    /// As a new arming with an id of its own.
    #[serde(default)]
    as_new: bool,
}

/// Topic, key, and which letter.
type Named = (String, String, String);

pub(super) async fn replay(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(named): Path<Named>,
    Body(Replay { as_new }): Body<Replay>,
) -> Result<Answer, Fault> {
    let (topic, letter) = letter(&shared, &named).await?;
    let verb = if as_new { Verb::ReplayAsNew } else { Verb::Replay };
    let act = Act::upon(verb.word(), &topic, &letter.key);
    let deed = async move {
        let became = Became::of_replay(topic.replay(&letter, as_new).await?);
        Ok(done::to_key(&topic, &letter.key, became))
    };
    Ok(act.take(&shared, who, deed).await?)
}

pub(super) async fn drop_one(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(named): Path<Named>,
) -> Result<Answer, Fault> {
    let (topic, letter) = letter(&shared, &named).await?;
    let act = Act::upon(Verb::Drop.word(), &topic, &letter.key);
    let deed = async move {
        let became = Became::of_drop(topic.drop_letter(&letter).await?);
        Ok(done::to_key(&topic, &letter.key, became))
    };
    Ok(act.take(&shared, who, deed).await?)
}

async fn letter(shared: &Shared, (topic, key, letter): &Named) -> Result<(KnownTopic, Entry), Fault> {
    let key = ask::key(key)?;
    let topic = ask::topic(shared, topic).await?;
    let named = |entry: &Entry| entry.id.is_some_and(|id| format!("{id}-{}", entry.at_ms) == *letter);
    let letters = topic.letters_of(&key, None).await?;
    let why = "there is no such letter, or it is gone: {id}-{at_ms} of an entry that is dead names one";
    let found = letters.into_iter().find(named).ok_or_else(|| Fault::new(StatusCode::NOT_FOUND, why))?;
    Ok((topic, found))
}
