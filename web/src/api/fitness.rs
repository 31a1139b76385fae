//! What the doctor has found, and whether topics are as they should be.

use axum::Json;
use axum::extract::{Extension, State};
use keylapse::console::doctor::Diagnosis;
use keylapse::console::{Breach, Limits, Status, parse_span};
use serde::{Deserialize, Serialize};

use crate::api::Fault;
use crate::api::ask::{MOST, Query, bad};
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
    max_overdue: Option<String>,
    max_dead: Option<u64>,
    max_quarantined: Option<u64>,
    min_listeners: Option<usize>,
}

/// What is not tolerated.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    topics: usize,
    /// Topics that were not looked at.
    more_topics: u64,
    breaches: Vec<Breach>,
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
) -> Result<Json<Checked>, Fault> {
    let limits = tolerated.limits()?;
    let Status { topics, unreadable, more_topics, .. } =
        topics::look(&shared, &who, &tolerated.topic, MOST).await?;
    let mut breaches: Vec<Breach> = topics.iter().flat_map(|topic| limits.breaches(topic)).collect();
    breaches.extend(unreadable.iter().map(Breach::from));
    Ok(Json(Checked { topics: topics.len() + unreadable.len(), more_topics, breaches }))
}

impl Tolerated {
    fn limits(&self) -> Result<Limits, Fault> {
        let limits = Limits::default()
            .overdue(self.max_overdue.as_deref().map(parse_span).transpose()?)
            .dead(self.max_dead)
            .quarantined(self.max_quarantined)
            .listeners(self.min_listeners);
        match limits == Limits::default() {
            true => Err(bad("nothing is checked: say max_overdue=5s, max_dead=0 or min_listeners=1")),
            false => Ok(limits),
        }
    }
}
