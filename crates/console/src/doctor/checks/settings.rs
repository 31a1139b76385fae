//! Reads the settings, where the server lets us.

use keylapse_connection::cmd;

use crate::connection::classify::is_of_unknown_command;
use crate::error::Result;

use super::super::case::Case;
use super::super::codes;
use super::super::refusal::{Need, Refusal};

const NAMES: [&str; 14] = [
    "notify-keyspace-events",
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "save",
    "client-output-buffer-limit",
    "maxmemory-clients",
    "proto-max-bulk-len",
    "client-query-buffer-limit",
    "timeout",
    "min-replicas-to-write",
    "hz",
    "active-expire-effort",
];

/// CONFIG is refused on most managed services. Then the canary decides whether events flow, and INFO has to do.
pub(super) async fn read(case: &mut Case) -> Result<()> {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg(&NAMES[..]);
    match case.ask("reading settings", &get).await? {
        Ok(settings) => case.settings = keylapse_connection::from_redis_value(settings).ok(),
        // Nobody may read them there, so that no right is missing.
        Err(error) if is_of_unknown_command(&error) => case.has_no_config = true,
        Err(error) => case.refusals.push(Refusal::new(Need::Looks, "+'config|get'", &error.to_string())),
    }
    if let Some(service) = case.service() {
        case.say(&codes::SERVICE, service.name);
    }
    Ok(())
}
