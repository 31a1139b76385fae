//! Compares the URL with what answers there. Where they differ, nothing else is worth a look.

use crate::connection::password::{OF_SENTINELS, OF_SERVERS};
use crate::error::Error;
use crate::escape::plain;

use super::super::case::Case;
use super::super::codes;
use super::super::patient::Asked;

/// Returns whether they agree. INFO has the kind of a server; a service may leave that out.
pub(super) async fn check(case: &mut Case) -> bool {
    if case.info.is_sentinel() {
        sentinel(case).await;
        return false;
    }
    let of_cluster = case.info.number("cluster_enabled") == Some(1);
    let (kind, what) = match (case.patient.asked, of_cluster) {
        (Asked::Sentinel, false) | (Asked::Seed, false) if !case.info.is_empty() => {
            ("", "it is a server by itself")
        }
        (Asked::Sentinel, true) => ("+cluster", "it is a node of a cluster"),
        _ => return true,
    };
    say(case, kind, case.patient.address().is_over_tls(), &case.patient.path(), what);
    false
}

/// A node that was taken for a server by itself.
pub(super) fn node(case: &mut Case, nodes: u64) {
    let said = format!("it is one of {nodes} primaries of a cluster");
    say(case, "+cluster", case.patient.address().is_over_tls(), &case.patient.path(), said);
}

/// Sentinels that were asked for a primary which they do not watch say the same.
async fn sentinel(case: &mut Case) {
    let watched = case.patient.server.seat().watched().await.unwrap_or_default();
    if case.patient.primary.as_ref().is_some_and(|primary| watched.contains(primary)) {
        return;
    }
    let name = plain(watched.first().map_or("NAME", |name| name), 100);
    let path = [&*name, &case.patient.path()].join("/");
    let said = format!("it is a sentinel, which watches {}", plain(&watched.join(", "), 200));
    say(case, "+sentinel", case.patient.address().is_over_tls(), path.trim_end_matches('/'), said);
}

/// The port speaks TLS, or does not.
pub(super) fn transport(case: &mut Case, tls: bool, error: &Error) {
    say(case, case.patient.kind(), tls, &case.patient.path_there(), error.to_string());
}

/// There is no such database.
pub(super) fn database(case: &mut Case, error: &Error) {
    say(case, case.patient.kind(), case.patient.address().is_over_tls(), "0", error.to_string());
}

fn say(case: &mut Case, kind: &str, tls: bool, path: &str, observed: impl Into<String>) {
    let url = case.patient.url(kind, tls, path);
    case.say_with(&codes::WRONG_URL, observed, &[("url", &url)]);
}

/// The login is refused, or there is none.
pub(super) fn login(case: &mut Case, error: &Error) {
    let said = error.to_string();
    if case.patient.address().has_password() {
        return case.say(&codes::LOGIN_REFUSED, said);
    }
    let variable = if case.patient.asked == Asked::Sentinel { OF_SENTINELS } else { OF_SERVERS };
    let patient = &case.patient;
    let url = patient.url(patient.kind(), patient.address().is_over_tls(), &patient.path_there());
    case.say_with(&codes::NO_PASSWORD, said, &[("variable", variable), ("url", &url)]);
}
