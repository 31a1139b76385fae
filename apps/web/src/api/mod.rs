//! The HTTP API, version 1: the console's actions as JSON.
//!
//! All paths begin with `/api/v1`. A topic is named as it is registered. A key is escaped ([`keylapse_console::text`]) and
//! then percent-encoded as one part of the path: the key `a/b` is `a%2Fb`, and a `\n` in a key is `%5Cn`. Clients remove `.`
//! and `..` from paths, encoded or not: write these keys as `%5Cx2e` and `%5Cx2e%5Cx2e`.
//!
//! | route | result or action |
//! | --- | --- |
//! | `GET /status?topic=&count=` | status of topics, listeners and alarms |
//! | `GET /topics?after=&count=` | topics, by name |
//! | `GET /topics/{topic}` | status of one topic |
//! | `GET /topics/{topic}/entries?state=&filter=&after=&count=&payload=` | its entries, by time |
//! | `GET /topics/{topic}/journal?after=&count=` | its journal, newest first |
//! | `GET /topics/{topic}/timers/{key}?payload=` | everything that is stored for a key |
//! | `GET /topics/{topic}/timers/{key}/why` | why a key ran, will run, or does not run now |
//! | `PUT`, `DELETE /topics/{topic}/timers/{key}` | arm and cancel a timer |
//! | `POST /topics/{topic}/timers/{key}/reschedule` | move a waiting timer: `{"in": "15m"}`, `{"at": …}` or `{"at_ms": …}` |
//! | `POST /topics/{topic}/timers/{key}/run-now` | make a waiting timer due |
//! | `POST /topics/{topic}/dead-letters/{key}/{id}-{at_ms}/replay` | replay a dead letter: `{"as_new": false}` |
//! | `DELETE /topics/{topic}/dead-letters/{key}/{id}-{at_ms}` | drop a dead letter |
//! | `POST /topics/{topic}/bulk` | one action on all entries that match a filter |
//! | `POST /topics/{topic}/pause`, `/resume` | stop dispatching its timers, with a `reason`, and resume |
//! | `GET /topics/{topic}/destinations` | destinations that its handlers call, with their states |
//! | `POST /topics/{topic}/destinations/try` | have listeners call a destination now: `{"destination": "shop.example:443"}` |
//! | `GET /listeners` | listeners with their topics and event modes, and silent listeners |
//! | `GET /doctor` | problems of the servers, each with its fix |
//! | `GET /check?topic=&allow=&max_overdue=&max_undelivered=&max_dead=&max_quarantined=&min_listeners=` | alarms that `allow` does not name, and exceeded limits |
//! | `GET /tail?topic=` | attempts as they start and end, as Server-Sent Events |
//!
//! `topic` and `filter` may be repeated. Answers have the fields of the command line's JSON. Unknown parameters and fields
//! are refused, and so are values beyond a bound. A refusal is `{"error": {"kind": …, "message": …}}`. Actions can be
//! repeated: they answer 404 or 409 with their outcome if there was nothing to do.
//!
//! Only the command line can export, destroy or repartition a topic.

mod ask;
mod bulk;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn each_route_is_documented() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let is_missing = |path: &str| match path.rsplit_once('/') {
            _ if page.contains(&format!(" {path}`")) || page.contains(&format!(" {path}?")) => false,
            Some((_, last)) => !page.contains(&format!("`/{last}`")),
            None => true,
        };
        let missing: Vec<_> =
            super::table().into_iter().map(|(_, path, _)| path).filter(|path| is_missing(path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_description_has_the_same_routes() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let text = std::fs::read_to_string(file).expect("the description");
        let description: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let paths = description["paths"].as_object().expect("paths").keys();
        let described: BTreeSet<_> = paths.filter_map(|path| path.strip_prefix("/api/v1")).collect();
        let routes: BTreeSet<_> = super::table().into_iter().map(|(_, path, _)| path).collect();
        assert_eq!(described, routes);
    }
}
