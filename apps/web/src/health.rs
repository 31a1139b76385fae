//! Probes: `/livez` answers while the process runs, `/readyz` while it can do its work.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::time::timeout;

use crate::web::SharedState;

/// Shorter than the second that many probes wait, so that they receive the reason.
const READINESS_TIMEOUT: Duration = Duration::from_millis(700);

/// The answer of `/readyz`.
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    /// `true` if the program can do its work.
    pub ready: bool,
    /// The reasons why the program is not ready, and other facts for people.
    pub notes: Vec<String>,
}

/// Returns the readiness of the program that embeds the server.
pub(crate) type Ready = Arc<dyn Fn() -> Readiness + Send + Sync>;

pub(crate) fn routes() -> Router<SharedState> {
    Router::new().route("/livez", get(live)).route("/readyz", get(ready))
}

async fn live() -> &'static str {
    "ok\n"
}

async fn ready(State(shared): State<SharedState>) -> (StatusCode, Json<Readiness>) {
    let readiness = match &shared.ready {
        Some(ready) => ready(),
        None => of_server(&shared).await,
    };
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Returns whether Redis answers, within a second. The result is cached: probes need no token, and must not load Redis.
pub(crate) async fn of_server(shared: &SharedState) -> Readiness {
    shared.readiness.get(server_answers(shared)).await
}

async fn server_answers(shared: &SharedState) -> Readiness {
    // Probes need no token, and the text of an error may have details that only token holders may read.
    let why = match timeout(READINESS_TIMEOUT, shared.console.listeners()).await {
        Ok(Ok(_)) => return Readiness { ready: true, notes: Vec::new() },
        Ok(Err(error)) => format!("Redis: {:?}", error.kind()),
        Err(_) => format!("Redis: no answer within {} ms", READINESS_TIMEOUT.as_millis()),
    };
    Readiness { ready: false, notes: vec![why] }
}
