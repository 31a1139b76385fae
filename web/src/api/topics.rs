//! Topics, how they are, who serves them, and what is done to one as a whole.

use axum::Json;
use axum::extract::{Extension, State};
use keylapse::ListenerReport;
use keylapse::console::{Became, KnownTopic, Registry, Status, TopicStatus, UnreadableTopic};
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::api::Fault;
use crate::api::ask::{self, Body, From, MOST, Path, Query, bad};
use crate::api::done::{self, Answer};
use crate::asking::check_reason;
use crate::guard::Who;
use crate::web::Shared;

/// Topics whose status is wanted, in place of all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    #[serde(default)]
    topic: Vec<String>,
    count: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(super) struct Topics {
    topics: Vec<KnownTopic>,
    /// What is registered and cannot be read: as many as there may be topics, and with the first page alone.
    unreadable: Vec<UnreadableTopic>,
    /// Behind which name the next page begins.
    next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Listeners {
    listeners: Vec<ListenerReport>,
}

/// Why it is paused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    reason: String,
}

pub(super) async fn status(
    State(shared): State<Shared>,
    Query(Which { topic, count }): Query<Which>,
) -> Result<Json<Status>, Fault> {
    let count = ask::count(count, MOST)?;
    Ok(Json(match topic.is_empty() {
        true => shared.console.status(count).await?,
        false => named(&shared, &topic).await?,
    }))
}

/// How the topics with these names are.
pub(super) async fn named(shared: &Shared, topics: &[String]) -> Result<Status, Fault> {
    if topics.len() > MOST {
        return Err(bad(format!("at most {MOST} topics can be named")));
    }
    shared.console.status_named(topics).await.map_err(|error| Fault::absent(&error))
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Query(From { after, count }): Query<From>,
) -> Result<Json<Topics>, Fault> {
    let count = ask::count(count, MOST)?;
    let Registry { mut topics, mut unreadable, .. } = shared.console.registry().await?;
    if let Some(after) = &after {
        topics.retain(|topic| topic.name() > after.as_str());
        unreadable.clear();
    }
    let more = topics.len() > count;
    topics.truncate(count);
    unreadable.truncate(MOST);
    let next = topics.last().map(|topic| topic.name().to_owned()).filter(|_| more);
    Ok(Json(Topics { topics, unreadable, next }))
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<TopicStatus>, Fault> {
    let topic = ask::topic(&shared, &name).await?;
    let listeners = shared.console.listeners().await?;
    let status = shared.console.status_of(&[topic], &listeners).await.pop();
    status.map(Json).ok_or_else(|| bad("the topic is gone"))
}

pub(super) async fn listeners(State(shared): State<Shared>) -> Result<Json<Listeners>, Fault> {
    Ok(Json(Listeners { listeners: shared.console.listeners().await? }))
}

pub(super) async fn pause(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(name): Path<String>,
    Body(Pause { reason }): Body<Pause>,
) -> Result<Answer, Fault> {
    check_reason(&reason).map_err(bad)?;
    let topic = ask::topic(&shared, &name).await?;
    let act = Act { verb: "pause", topic: topic.clone(), what: reason.clone() };
    let deed = async move {
        topic.pause(&reason).await?;
        Ok(done::to_topic(&topic, Became::PAUSED))
    };
    Ok(act.take(&shared, who, deed).await?)
}

pub(super) async fn resume(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(name): Path<String>,
) -> Result<Answer, Fault> {
    let topic = ask::topic(&shared, &name).await?;
    let act = Act { verb: "resume", topic: topic.clone(), what: String::new() };
    let deed = async move {
        topic.resume().await?;
        Ok(done::to_topic(&topic, Became::RESUMED))
    };
    Ok(act.take(&shared, who, deed).await?)
}
