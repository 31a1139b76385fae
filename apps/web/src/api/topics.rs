//! Topics, how they are, who serves them, whether that is as it should be, and what is done to one as a whole.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use keylapse::destinations::Destination;
use keylapse::fleet::ListenerReport;
use keylapse_console::doctor::Diagnosis;
use keylapse_console::{
    Alarm, Checked, Console, KnownTopic, Limits, Registry, Status, TopicStatus, UnreadableTopic, parse_span,
};
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::api::Fault;
use crate::api::ask::{self, Body, From, MOST, Path, Query, bad};
use crate::api::timers::{Answer, answer};
use crate::asking::{check_destination, check_reason};
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
    /// Those that have not reported for seven seconds.
    silent: Vec<ListenerReport>,
}

/// With what somebody has to look at.
#[derive(Debug, Serialize)]
pub(super) struct Alarming<T> {
    #[serde(flatten)]
    of: T,
    alarms: Vec<Alarm>,
}

/// The places that a topic's handlers call.
#[derive(Debug, Serialize)]
pub(super) struct Called {
    topic: String,
    /// The worst first.
    destinations: Vec<Destination>,
}

/// Which of them is to be called now.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Try {
    destination: String,
}

/// Why it is paused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    reason: String,
}

pub(super) async fn status(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Query(Which { topic, count }): Query<Which>,
) -> Result<Json<Alarming<Status>>, Fault> {
    let count = ask::count(count, MOST)?;
    let of = look(&shared, &who, &topic, count).await?;
    Ok(Json(Alarming { alarms: of.alarms(), of }))
}

/// How the topics with these names are; or else so many of all that somebody may look at.
pub(super) async fn look(
    shared: &Shared,
    who: &Who,
    named: &[String],
    count: usize,
) -> Result<Status, Fault> {
    if named.len() > MOST {
        return Err(bad(format!("at most {MOST} topics can be named")));
    }
    for topic in named {
        shared.check(who, topic)?;
    }
    let console = &shared.console;
    let mut status = match (named.is_empty(), who.may_all()) {
        (true, true) => console.status(count).await?,
        (true, false) => some(console, registry(shared, who).await?, count).await?,
        (false, _) => console.status_named(named).await.map_err(|error| Fault::absent(&error))?,
    };
    only(who, &mut status);
    Ok(status)
}

/// Listeners name no topics that somebody may not look at, and those that serve no others are left out.
fn only(who: &Who, status: &mut Status) {
    if who.may_all() {
        return;
    }
    for reports in [&mut status.listeners, &mut status.silent] {
        reports.iter_mut().for_each(|report| report.topics.retain(|name, _| who.may(name)));
        reports.retain(|report| !report.topics.is_empty());
    }
}

async fn some(console: &Console, registry: Registry, count: usize) -> Result<Status, Fault> {
    let Registry { mut topics, mut unreadable, .. } = registry;
    let mut status = console.status(0).await?;
    status.more_topics = (topics.len().saturating_sub(count) + unreadable.len().saturating_sub(count)) as u64;
    topics.truncate(count);
    unreadable.truncate(count);
    status.topics = console.status_of(&topics, &status.listeners).await;
    status.unreadable = unreadable;
    Ok(status)
}

/// The registered topics, as far as somebody may look at them.
pub(super) async fn registry(shared: &Shared, who: &Who) -> Result<Registry, Fault> {
    let mut registry = shared.console.registry().await?;
    registry.topics.retain(|topic| who.may(topic.name()));
    registry.unreadable.retain(|topic| who.may(&topic.name));
    Ok(registry)
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Query(From { after, count }): Query<From>,
) -> Result<Json<Topics>, Fault> {
    let count = ask::count(count, MOST)?;
    let Registry { mut topics, mut unreadable, .. } = registry(&shared, &who).await?;
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
) -> Result<Json<Alarming<TopicStatus>>, Fault> {
    let (_, of) = status_of(&shared, &name).await?;
    Ok(Json(Alarming { alarms: of.alarms(), of }))
}

async fn status_of(shared: &Shared, name: &str) -> Result<(KnownTopic, TopicStatus), Fault> {
    let topic = ask::topic(shared, name).await?;
    let listeners = shared.console.listeners().await?;
    let status = shared.console.status_of(std::slice::from_ref(&topic), &listeners).await.pop();
    Ok((topic, status.ok_or_else(|| bad("the topic is gone"))?))
}

pub(super) async fn destinations(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<Called>, Fault> {
    let (topic, TopicStatus { destinations, .. }) = status_of(&shared, &name).await?;
    Ok(Json(Called { topic: topic.name().to_owned(), destinations }))
}

pub(super) async fn listeners(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
) -> Result<Json<Listeners>, Fault> {
    let mut fleet = shared.console.fleet().await?;
    only(&who, &mut fleet);
    let Status { listeners, silent, .. } = fleet;
    Ok(Json(Listeners { listeners, silent }))
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
    Ok(answer(act.take(&shared, who, async move { topic.pause(&reason).await }).await?))
}

pub(super) async fn try_now(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(name): Path<String>,
    Body(Try { destination }): Body<Try>,
) -> Result<Answer, Fault> {
    let (topic, status) = status_of(&shared, &name).await?;
    check_destination(&status, &destination).map_err(|why| Fault::new(StatusCode::NOT_FOUND, why))?;
    let (act, console) = (Act::try_now(&topic, &destination), shared.console.clone());
    let deed = async move { console.try_now(topic.name(), &destination).await };
    Ok(answer(act.take(&shared, who, deed).await?))
}

pub(super) async fn resume(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(name): Path<String>,
) -> Result<Answer, Fault> {
    let topic = ask::topic(&shared, &name).await?;
    let act = Act { verb: "resume", topic: topic.clone(), what: String::new() };
    Ok(answer(act.take(&shared, who, async move { topic.resume().await }).await?))
}

/// What the doctor has found, and how many of each.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    errors: usize,
    warnings: usize,
    #[serde(flatten)]
    diagnosis: Diagnosis,
}

/// Which topics, and what is tolerated of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tolerated {
    #[serde(default)]
    topic: Vec<String>,
    #[serde(default)]
    allow: Vec<String>,
    max_overdue: Option<String>,
    max_undelivered: Option<String>,
    max_dead: Option<u64>,
    max_quarantined: Option<u64>,
    min_listeners: Option<usize>,
}

/// What is not tolerated.
#[derive(Debug, Serialize)]
pub(super) struct Fitness {
    topics: usize,
    /// Topics that were not looked at.
    more_topics: u64,
    #[serde(flatten)]
    checked: Checked,
}

pub(super) async fn doctor(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
) -> Result<Json<Found>, Fault> {
    who.check_all()?;
    let diagnosis = Diagnosis::clone(&shared.doctor.look(&shared.console).await.0);
    Ok(Json(Found { errors: diagnosis.errors(), warnings: diagnosis.warnings(), diagnosis }))
}

pub(super) async fn check(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Query(tolerated): Query<Tolerated>,
) -> Result<Json<Fitness>, Fault> {
    let limits = tolerated.limits()?;
    let status = look(&shared, &who, &tolerated.topic, MOST).await?;
    let topics = status.topics.len() + status.unreadable.len();
    Ok(Json(Fitness { topics, more_topics: status.more_topics, checked: limits.check(&status) }))
}

impl Tolerated {
    fn limits(&self) -> Result<Limits, Fault> {
        let allowed = self.allow.iter().flat_map(|kinds| kinds.split(','));
        Ok(Limits::default()
            .allow(allowed.map(str::parse).collect::<Result<_, _>>()?)
            .overdue(self.max_overdue.as_deref().map(parse_span).transpose()?)
            .undelivered(self.max_undelivered.as_deref().map(str::parse).transpose()?)
            .dead(self.max_dead)
            .quarantined(self.max_quarantined)
            .listeners(self.min_listeners))
    }
}
