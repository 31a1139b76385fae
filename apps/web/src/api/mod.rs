//! The HTTP API, version 1: the console's verbs as JSON.
//!
//! All paths begin with `/api/v1`. Topics are named as they are registered. A key is written as it is shown
//! ([`keylapse_console::text`]) and then percent-encoded as one part of the path: the key `a/b` is `a%2Fb`, and `\n` within
//! a key `%5Cn`. Clients take `.` and `..` out of paths, encoded or not: such keys are `%5Cx2e` and `%5Cx2e%5Cx2e`.
//!
//! | route | what |
//! | --- | --- |
//! | `GET /status?topic=&count=` | how topics are, who listens, and what somebody has to look at |
//! | `GET /topics?after=&count=` | which there are, by name |
//! | `GET /topics/{topic}` | how one is |
//! | `GET /topics/{topic}/entries?state=&filter=&after=&count=&payload=` | what it holds, by time |
//! | `GET /topics/{topic}/journal?after=&count=` | what has ended, the newest first |
//! | `GET /topics/{topic}/timers/{key}?payload=` | all that is kept of a key |
//! | `GET /topics/{topic}/timers/{key}/why` | why it has run, will run, or does not run now |
//! | `PUT`, `DELETE /topics/{topic}/timers/{key}` | arm, and cancel |
//! | `POST /topics/{topic}/timers/{key}/reschedule` | move a waiting timer: `{"in": "15m"}`, `{"at": …}` or `{"at_ms": …}` |
//! | `POST /topics/{topic}/timers/{key}/run-now` | make a waiting timer due |
//! | `POST /topics/{topic}/letters/{key}/{id}-{at_ms}/replay` | replay one dead letter: `{"as_new": false}` |
//! | `DELETE /topics/{topic}/letters/{key}/{id}-{at_ms}` | drop one |
//! | `POST /topics/{topic}/bulk` | one action on all that a filter lets pass |
//! | `POST /topics/{topic}/pause`, `/resume` | stop giving out its timers, for a `reason`, and go on |
//! | `GET /topics/{topic}/destinations` | what its handlers call, and whether that holds work back |
//! | `POST /topics/{topic}/destinations/try` | call one of them now: `{"destination": "shop.example:443"}` |
//! | `GET /listeners` | who listens, to what, and how well it hears; and who is silent |
//! | `GET /doctor` | what is amiss with the servers, and the line that mends it |
//! | `GET /check?topic=&allow=&max_overdue=&max_undelivered=&max_dead=&max_quarantined=&min_listeners=` | alarms that `allow` does not name, and figures beyond limits |
//! | `GET /tail?topic=` | starts and ends of attempts as they happen, as Server-Sent Events |
//!
//! `topic` and `filter` may be repeated. Answers have the fields of the command line's lines of JSON. Unknown parameters and
//! fields are refused, and so is what is beyond a bound. What was refused is said as
//! `{"error": {"kind": …, "message": …}}`. Who acts twice finds it done: actions answer 404 or 409 with their outcome where
//! there was nothing to do.
//!
//! What reads a topic as a whole, ends it, or moves it elsewhere is left to the command line.

mod ask;
mod bulk;
mod entries;
mod fault;
mod tail;
mod timers;
mod topics;

pub(crate) use self::fault::{Fault, as_json};

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post, put};

use crate::web::Shared;

/// What a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Whoever looks.
    Looking,
    /// Whoever acts on what there is.
    Acting,
    /// Whoever arms and cancels timers.
    Arming,
}

/// All routes that are for these.
pub(crate) fn routes(wanted: &[For]) -> Router<Shared> {
    let wanted = table().into_iter().filter(|(is_for, ..)| wanted.contains(is_for));
    wanted.fold(Router::new(), |routes, (_, path, method)| routes.route(&format!("/api/v1{path}"), method))
}

fn table() -> Vec<(For, &'static str, MethodRouter<Shared>)> {
    use For::{Acting, Arming, Looking};
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
        (Acting, "/topics/{topic}/letters/{key}/{letter}", delete(timers::drop_letter)),
        (Acting, "/topics/{topic}/letters/{key}/{letter}/replay", post(timers::replay)),
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
    #[test]
    fn each_route_is_documented() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dashboard.md");
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
}
