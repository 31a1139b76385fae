//! What the doctor has found, and whether topics are as they should be.

use axum::Json;
use axum::extract::{Extension, State};
use keylapse_console::doctor::Diagnosis;
use keylapse_console::{Checked, Limits, parse_span};
use serde::{Deserialize, Serialize};

use crate::api::Fault;
use crate::api::ask::{MOST, Query};
use crate::api::topics;
use crate::guard::Who;
use crate::web::Shared;

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
pub(super) struct Answer {
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
) -> Result<Json<Answer>, Fault> {
    let limits = tolerated.limits()?;
    let status = topics::look(&shared, &who, &tolerated.topic, MOST).await?;
    let topics = status.topics.len() + status.unreadable.len();
    Ok(Json(Answer { topics, more_topics: status.more_topics, checked: limits.check(&status) }))
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
