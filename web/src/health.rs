//! Whether this program lives, and whether it can do its work: for probes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::web::Shared;

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
        // Whoever asks needs no token, and is to cost the server nothing.
        None => shared.readiness.get(server_answers(&shared)).await,
    };
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Of a program that only looks.
async fn server_answers(shared: &Shared) -> Readiness {
    match shared.console.listeners().await {
        Ok(_) => Readiness { ready: true, notes: Vec::new() },
        // What exactly is amiss is for those with a token.
        Err(error) => Readiness { ready: false, notes: vec![format!("Redis: {:?}", error.kind())] },
    }
}
