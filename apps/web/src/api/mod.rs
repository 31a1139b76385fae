//! The HTTP API, version 1: the console's actions as JSON.
//!
//! All paths begin with `/api/v1`. A topic is named as it is registered. A key is escaped ([`keylapse_console::text`]) and
//! then percent-encoded as one part of the path: the key `a/b` is `a%2Fb`, and a `\n` in a key is `%5Cn`. Clients remove `.`
//! and `..` from paths, encoded or not: write these keys as `%5Cx2e` and `%5Cx2e%5Cx2e`.
//!
//! `docs/http-api.md` and `docs/openapi.json` have the routes, their bodies and answers.
//!
//! `topic` and `filter` may be repeated. Answers have the fields of the command line's JSON. Unknown parameters and fields
//! are refused, and so are values beyond a bound. A refusal is `{"error": {"kind": …, "message": …}}`. Actions can be
//! repeated: they answer 404 or 409 with their outcome if there was nothing to do.
//!
//! Only the command line can export, destroy or repartition a topic.

mod ask;
mod bulk;
#[cfg(test)]
mod documented;
mod entries;
mod fault;
mod tail;
mod timers;
mod topics;

pub(crate) use self::fault::{ApiError, as_json};

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post, put};

use crate::web::SharedState;

/// The purpose of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteKind {
    /// Reads.
    Looking,
    /// Acts on existing timers, dead letters and topics.
    Acting,
    /// Arms and cancels timers.
    Arming,
}

/// Returns the routes with these purposes.
pub(crate) fn routes(wanted: &[RouteKind]) -> Router<SharedState> {
    let wanted = table().into_iter().filter(|(is_for, ..)| wanted.contains(is_for));
    wanted.fold(Router::new(), |routes, (_, path, method)| routes.route(&format!("/api/v1{path}"), method))
}

fn table() -> Vec<(RouteKind, &'static str, MethodRouter<SharedState>)> {
    use RouteKind::{Acting, Arming, Looking};
    vec![
        (Looking, "/status", get(topics::status)),
        (Looking, "/topics", get(topics::list)),
        (Looking, "/topics/{topic}", get(topics::one)),
        (Looking, "/topics/{topic}/entries", get(entries::page)),
        (Looking, "/topics/{topic}/journal", get(entries::journal)),
        (Looking, "/topics/{topic}/timers/{key}", get(timers::show)),
        (Looking, "/topics/{topic}/timers/{key}/why", get(timers::why)),
        (Arming, "/topics/{topic}/timers/{key}", put(timers::arm).delete(timers::cancel)),
        (Acting, "/topics/{topic}/timers/{key}/reschedule", post(timers::reschedule)),
        (Acting, "/topics/{topic}/timers/{key}/run-now", post(timers::run_now)),
        (Acting, "/topics/{topic}/dead-letters/{key}/{letter}", delete(timers::drop_letter)),
        (Acting, "/topics/{topic}/dead-letters/{key}/{letter}/replay", post(timers::replay)),
        (Acting, "/topics/{topic}/bulk", post(bulk::run)),
        (Acting, "/topics/{topic}/pause", post(topics::pause)),
        (Acting, "/topics/{topic}/resume", post(topics::resume)),
        (Looking, "/topics/{topic}/destinations", get(topics::destinations)),
        (Acting, "/topics/{topic}/destinations/try", post(topics::try_now)),
        (Looking, "/listeners", get(topics::listeners)),
        (Looking, "/doctor", get(topics::doctor)),
        (Looking, "/check", get(topics::check)),
        (Looking, "/tail", get(tail::tail)),
    ]
}
