//! The dashboard: pages made here, which work without a script.

mod act;
mod alarms;
mod assets;
mod dead;
mod entries;
mod frame;
mod hosts;
mod listeners;
mod login;
mod notice;
mod samples;
mod servers;
mod tail;
mod timer;
mod topic;
mod topics;
mod trouble;

pub(crate) use self::samples::Samples;

use axum::Router;
use axum::routing::{get, post};

use crate::web::Shared;

/// What somebody without a token sees.
pub(crate) fn open() -> Router<Shared> {
    Router::new()
        .route("/login", get(login::show).post(login::enter))
        .route("/logout", post(login::leave))
        .route("/assets/{hash}/{name}", get(assets::serve))
}

/// To look.
pub(crate) fn looking() -> Router<Shared> {
    Router::new()
        .route("/", get(topics::home))
        .route("/topics", get(topics::show))
        .route("/topic", get(topic::show))
        .route("/hosts", get(hosts::show))
        .route("/timer", get(timer::show))
        .route("/dead", get(dead::show))
        .route("/listeners", get(listeners::show))
        .route("/servers", get(servers::show))
        .route("/tail", get(tail::show))
        .fallback(trouble::no_such_page)
}

/// To act.
pub(crate) fn acting() -> Router<Shared> {
    Router::new()
        .route("/timer/act", post(act::timer))
        .route("/topic/act", post(act::topic))
        .route("/topic/bulk", get(act::ask).post(act::bulk))
}
