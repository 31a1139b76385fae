//! The dashboard. Its pages are rendered here, and work without JavaScript.

mod act;
mod alarms;
mod assets;
mod dead;
mod destinations;
mod entries;
mod error_page;
mod frame;
mod listeners;
mod login;
mod notice;
mod samples;
mod servers;
mod tail;
mod timer;
mod topic;
mod topics;

pub(crate) use self::samples::Samples;

use axum::Router;
use axum::routing::{get, post};

use crate::web::SharedState;

/// Returns the routes that need no token.
pub(crate) fn open() -> Router<SharedState> {
    Router::new()
        .route("/login", get(login::show).post(login::enter))
        .route("/logout", post(login::leave))
        .route("/assets/{hash}/{name}", get(assets::serve))
}

/// Returns the routes that read.
pub(crate) fn looking() -> Router<SharedState> {
    Router::new()
        .route("/", get(topics::home))
        .route("/topics", get(topics::show))
        .route("/topic", get(topic::show))
        .route("/destinations", get(destinations::show))
        .route("/timer", get(timer::show))
        .route("/dead", get(dead::show))
        .route("/listeners", get(listeners::show))
        .route("/servers", get(servers::show))
        .route("/tail", get(tail::show))
        .fallback(error_page::no_such_page)
}

/// Returns the routes that act.
pub(crate) fn acting() -> Router<SharedState> {
    Router::new()
        .route("/timer/act", post(act::timer))
        .route("/topic/act", post(act::topic))
        .route("/topic/bulk", get(act::ask).post(act::bulk))
}
