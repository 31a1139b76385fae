//! Whether this program lives, and whether it can do its work: for probes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::time::timeout;

use crate::web::Shared;

/// Many probes wait for a second, and are to read why it is not ready.
const PATIENCE: Duration = Duration::from_millis(700);

/// Whether a program can do its work.
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    /// Whether it can.
    pub ready: bool,
    /// Why not; and what else a person may want to know.
    pub notes: Vec<String>,
}

/// Asks the program that has this server.
pub(crate) type Ready = Arc<dyn Fn() -> Readiness + Send + Sync>;

pub(crate) fn routes() -> Router<Shared> {
    Router::new().route("/livez", get(live)).route("/readyz", get(ready))
}

/// It answers.
async fn live() -> &'static str {
    "ok\n"
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, Json<Readiness>) {
    let readiness = match &shared.ready {
        Some(ready) => ready(),
        None => of_server(&shared).await,
    };
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Returns whether the server answers: within a second, and at hardly any cost for it, as no token is needed.
pub(crate) async fn of_server(shared: &Shared) -> Readiness {
    shared.readiness.get(server_answers(shared)).await
}

async fn server_answers(shared: &Shared) -> Readiness {
    // Details are for those with a token.
    let why = match timeout(PATIENCE, shared.console.listeners()).await {
        Ok(Ok(_)) => return Readiness { ready: true, notes: Vec::new() },
        Ok(Err(error)) => format!("Redis: {:?}", error.kind()),
        Err(_) => format!("Redis: no answer within {} ms", PATIENCE.as_millis()),
    };
    Readiness { ready: false, notes: vec![why] }
}
