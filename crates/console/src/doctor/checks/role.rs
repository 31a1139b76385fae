//! Whether the URL names a primary.

use crate::connection::Endpoint;
use crate::escape::plain;

use super::super::case::Case;
use super::super::codes;
use super::super::patient::as_word;

/// Returns whether it is worth asking further. Of replicas that were found by themselves nothing else is expected.
pub(super) fn check(case: &mut Case) -> bool {
    if !case.info.is_replica() || case.patient.is_known_replica() {
        return true;
    }
    let scheme = if case.patient.address().is_over_tls() { "rediss" } else { "redis" };
    let asked = case.patient.address().endpoint();
    let port = case.info.number("master_port").and_then(|port| u16::try_from(port).ok());
    let primary =
        case.info.get("master_host").zip(port).and_then(|(host, port)| Endpoint::of(host, port, &asked));
    let url = |primary| as_word(&format!("{scheme}://{primary}/{}", case.patient.path()));
    let url = primary.map_or_else(|| "URL".to_owned(), url);
    let link = plain(case.info.get("master_link_status").unwrap_or("unknown"), 20);
    case.say_with(&codes::REPLICA_GIVEN, format!("its link to the primary is {link}"), &[("primary", &url)]);
    false
}
