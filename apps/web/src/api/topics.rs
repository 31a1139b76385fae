//! Status of topics, listeners, destinations and servers, and actions on a whole topic.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use keylapse::destinations::Destination;
use keylapse::fleet::ListenerReport;
use keylapse_console::doctor::Diagnosis;
use keylapse_console::{
    Alarm, CheckReport, Console, Limits, Registry, Status, TopicHandle, TopicStatus, UnreadableTopic,
    parse_span,
};
use serde::{Deserialize, Serialize};

use crate::act::AuditedAction;
use crate::api::ApiError;
use crate::api::ask::{self, Body, MAX_ITEMS, PageQuery, Path, Query, bad};
use crate::api::timers::{ActionResponse, answer};
use crate::guard::Caller;
use crate::parse::{check_destination, check_reason};
use crate::web::SharedState;

/// Selects topics. Without names, all are selected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    #[serde(default)]
    topic: Vec<String>,
    count: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(super) struct TopicsResponse {
    topics: Vec<TopicHandle>,
    /// Registered topics that cannot be read, at most [`MAX_ITEMS`]. Only the first page has them.
    unreadable: Vec<UnreadableTopic>,
    /// The name after which the next page begins.
    next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Listeners {
    listeners: Vec<ListenerReport>,
    /// Listeners that have not reported for seven seconds.
    silent_listeners: Vec<ListenerReport>,
}

/// A status with its alarms.
#[derive(Debug, Serialize)]
pub(super) struct WithAlarms<T> {
    #[serde(flatten)]
    of: T,
    alarms: Vec<Alarm>,
}

/// The destinations that a topic's handlers call.
#[derive(Debug, Serialize)]
pub(super) struct DestinationsResponse {
    topic: String,
    /// The worst first.
    destinations: Vec<Destination>,
}

/// The destination to call now.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Try {
    destination: String,
}

/// The body of a request that pauses a topic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    reason: String,
}

pub(super) async fn status(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Query(StatusQuery { topic, count }): Query<StatusQuery>,
) -> Result<Json<WithAlarms<Status>>, ApiError> {
    let count = ask::count(count, MAX_ITEMS)?;
    let of = look(&shared, &who, &topic, count).await?;
    Ok(Json(WithAlarms { alarms: of.alarms(), of }))
}

/// Returns the status of the named topics; without names, of the first `count` topics that the caller may read.
pub(super) async fn look(
    shared: &SharedState,
    who: &Caller,
    named: &[String],
    count: usize,
) -> Result<Status, ApiError> {
    if named.len() > MAX_ITEMS {
        return Err(bad(format!("at most {MAX_ITEMS} topics can be named")));
    }
    for topic in named {
        shared.check(who, topic)?;
    }
    let console = &shared.console;
    let mut status = match (named.is_empty(), who.may_all()) {
        (true, true) => console.status(count).await?,
        (true, false) => some(console, registry(shared, who).await?, count).await?,
        (false, _) => console.status_named(named).await.map_err(|error| ApiError::absent(&error))?,
    };
    only(who, &mut status);
    Ok(status)
}

/// Removes the topics that the caller may not read from the listeners, and then listeners without topics.
fn only(who: &Caller, status: &mut Status) {
    if who.may_all() {
        return;
    }
    for reports in [&mut status.listeners, &mut status.silent_listeners] {
        reports.iter_mut().for_each(|report| report.topics.retain(|name, _| who.may(name)));
        reports.retain(|report| !report.topics.is_empty());
    }
}

async fn some(console: &Console, registry: Registry, count: usize) -> Result<Status, ApiError> {
    let Registry { mut topics, mut unreadable, .. } = registry;
    let mut status = console.status(0).await?;
    status.more_topics = (topics.len().saturating_sub(count) + unreadable.len().saturating_sub(count)) as u64;
    topics.truncate(count);
    unreadable.truncate(count);
    status.topics = console.status_of(&topics, &status.listeners).await;
    status.unreadable = unreadable;
    Ok(status)
}

/// Returns the registered topics that the caller may read.
pub(super) async fn registry(shared: &SharedState, who: &Caller) -> Result<Registry, ApiError> {
    let mut registry = shared.console.registry().await?;
    registry.topics.retain(|topic| who.may(topic.name()));
    registry.unreadable.retain(|topic| who.may(&topic.name));
    Ok(registry)
}

pub(super) async fn list(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Query(PageQuery { after, count }): Query<PageQuery>,
) -> Result<Json<TopicsResponse>, ApiError> {
    let count = ask::count(count, MAX_ITEMS)?;
    let Registry { mut topics, mut unreadable, .. } = registry(&shared, &who).await?;
    if let Some(after) = &after {
        topics.retain(|topic| topic.name() > after.as_str());
        unreadable.clear();
    }
    let more = topics.len() > count;
    topics.truncate(count);
    unreadable.truncate(MAX_ITEMS);
    let next = topics.last().map(|topic| topic.name().to_owned()).filter(|_| more);
    Ok(Json(TopicsResponse { topics, unreadable, next }))
}

pub(super) async fn one(
    State(shared): State<SharedState>,
    Path(name): Path<String>,
) -> Result<Json<WithAlarms<TopicStatus>>, ApiError> {
    let (_, of) = status_of(&shared, &name).await?;
    Ok(Json(WithAlarms { alarms: of.alarms(), of }))
}

async fn status_of(shared: &SharedState, name: &str) -> Result<(TopicHandle, TopicStatus), ApiError> {
    let topic = ask::topic(shared, name).await?;
    let listeners = shared.console.listeners().await?;
    let status = shared.console.status_of(std::slice::from_ref(&topic), &listeners).await.pop();
    Ok((topic, status.ok_or_else(|| bad("the topic no longer exists"))?))
}

pub(super) async fn destinations(
    State(shared): State<SharedState>,
    Path(name): Path<String>,
) -> Result<Json<DestinationsResponse>, ApiError> {
    let (topic, TopicStatus { destinations, .. }) = status_of(&shared, &name).await?;
    Ok(Json(DestinationsResponse { topic: topic.name().to_owned(), destinations }))
}

pub(super) async fn listeners(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
) -> Result<Json<Listeners>, ApiError> {
    let mut fleet = shared.console.fleet().await?;
    only(&who, &mut fleet);
    let Status { listeners, silent_listeners, .. } = fleet;
    Ok(Json(Listeners { listeners, silent_listeners }))
}

pub(super) async fn pause(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(name): Path<String>,
    Body(Pause { reason }): Body<Pause>,
) -> Result<ActionResponse, ApiError> {
    check_reason(&reason).map_err(bad)?;
    let topic = ask::topic(&shared, &name).await?;
    let act = AuditedAction { verb: "pause", topic: topic.clone(), what: reason.clone() };
    Ok(answer(act.take(&shared, who, async move { topic.pause(&reason).await }).await?))
}

pub(super) async fn try_now(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(name): Path<String>,
    Body(Try { destination }): Body<Try>,
) -> Result<ActionResponse, ApiError> {
    let (topic, status) = status_of(&shared, &name).await?;
    check_destination(&status, &destination).map_err(|why| ApiError::new(StatusCode::NOT_FOUND, why))?;
    let (act, console) = (AuditedAction::try_now(&topic, &destination), shared.console.clone());
    let deed = async move { console.try_now(topic.name(), &destination).await };
    Ok(answer(act.take(&shared, who, deed).await?))
}

pub(super) async fn resume(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<ActionResponse, ApiError> {
    let topic = ask::topic(&shared, &name).await?;
    let act = AuditedAction { verb: "resume", topic: topic.clone(), what: String::new() };
    Ok(answer(act.take(&shared, who, async move { topic.resume().await }).await?))
}

/// The doctor's findings, with the numbers of errors and warnings.
#[derive(Debug, Serialize)]
pub(super) struct DoctorResponse {
    errors: usize,
    warnings: usize,
    #[serde(flatten)]
    diagnosis: Diagnosis,
}

/// Selects topics, and the alarms and figures to tolerate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckQuery {
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

/// Alarms and figures that are not tolerated.
#[derive(Debug, Serialize)]
pub(super) struct CheckResponse {
    topics: usize,
    /// Number of topics that were not checked.
    more_topics: u64,
    #[serde(flatten)]
    checked: CheckReport,
}

pub(super) async fn doctor(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
) -> Result<Json<DoctorResponse>, ApiError> {
    who.check_all()?;
    let diagnosis = Diagnosis::clone(&shared.doctor.look(&shared.console).await.0);
    Ok(Json(DoctorResponse { errors: diagnosis.errors(), warnings: diagnosis.warnings(), diagnosis }))
}

pub(super) async fn check(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    Query(tolerated): Query<CheckQuery>,
) -> Result<Json<CheckResponse>, ApiError> {
    let limits = tolerated.limits()?;
    let status = look(&shared, &who, &tolerated.topic, MAX_ITEMS).await?;
    let topics = status.topics.len() + status.unreadable.len();
    Ok(Json(CheckResponse { topics, more_topics: status.more_topics, checked: limits.check(&status) }))
}

impl CheckQuery {
    fn limits(&self) -> Result<Limits, ApiError> {
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
