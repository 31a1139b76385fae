//! `/metrics`, for Prometheus: what the process records of itself, and how the topics are.

mod fleet;
mod text;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::api::Fault;
use crate::guard::Who;
use crate::health;
use crate::recent::Recent;
use crate::web::Shared;

/// Text that somebody else renders.
pub(crate) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// How the topics are, as it was rendered last.
pub(crate) type Metrics = Recent<Arc<str>>;

/// Prometheus waits for 10 s: it is to read in time that Redis does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Router<Shared> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
) -> Result<impl IntoResponse, Fault> {
    who.check_all()?;
    let fleet = shared.metrics.get(async {
        // A server that is away is not waited for as long as one with many topics.
        let is_there = health::of_server(&shared).await.ready;
        fleet::render(&shared.console, if is_there { PATIENCE } else { Duration::ZERO }).await
    });
    let fleet = fleet.await;
    let mut text = shared.recorded.as_ref().map(|render| render()).unwrap_or_default();
    text.push_str(&fleet);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
