//! Checks whether the server can be reached, fits the URL and answers calls for keys. If it does not, no other check
//! follows.

use keylapse_connection::{Value, cmd};

use crate::connection::{Endpoint, is_retryable};
use crate::connection::{NO_DATABASE, is_of_no_database};
use crate::connection::{NO_TLS_AT_PORT, TLS_AT_PORT};
use crate::connection::{SENTINEL_PASSWORD_VARIABLE, SERVER_PASSWORD_VARIABLE};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::escape_line;
use crate::wire::scripts::PEEK;
use crate::{counted, show_count};

use super::codes;
use super::examination::{ServerExamination, ServerKind, as_word};
use super::service::{Site, is_here};
use super::settings::Info;

/// Reads INFO, which servers also answer while they load data. Returns whether other checks follow.
pub(super) async fn answers(case: &mut ServerExamination) -> bool {
    let answer = case.server.call("reading INFO", &cmd("INFO")).await;
    match answer {
        Ok(answer) => {
            case.info =
                Info::read(&keylapse_connection::from_redis_value::<String>(answer).unwrap_or_default());
            true
        }
        Err(error) => explain_refusal(case, &error),
    }
}

/// Adds the finding for a refused INFO. Returns whether other checks follow.
fn explain_refusal(case: &mut ServerExamination, error: &Error) -> bool {
    let observed = error.to_string();
    match error.kind() {
        ErrorKind::Auth => login(case, error),
        ErrorKind::Tls if observed.contains(NO_TLS_AT_PORT) => {
            wrong_url(case, case.url_scheme_suffix(), false, &case.path_there(), observed);
        }
        ErrorKind::Tls if observed.contains(TLS_AT_PORT) => {
            wrong_url(case, case.url_scheme_suffix(), true, &case.path_there(), observed);
        }
        _ if is_of_no_database(error) => {
            wrong_url(case, case.url_scheme_suffix(), case.is_over_tls(), "0", observed);
        }
        // The primary was reached, because it has named this replica.
        _ if case.is_known_replica() && is_retryable(error) && case.asked == ServerKind::Server => {
            case.add_finding(&codes::REPLICA_UNSEEN, observed);
        }
        _ if is_refused_database(error) => database_refused(case, error),
        // A user without INFO, or a server without it, can still serve all other calls. The check of permissions reports it.
        ErrorKind::Permission | ErrorKind::Unsupported if matches!(error.code(), Some("NOPERM" | "ERR")) => {
            return true;
        }
        _ => case.add_finding(&codes::UNREACHABLE, observed),
    }
    false
}

/// Adds the finding for a refused or missing login.
fn login(case: &mut ServerExamination, error: &Error) {
    let observed = error.to_string();
    if case.address().options().login.password.is_some() {
        return case.add_finding(&codes::LOGIN_REFUSED, observed);
    }
    let variable = if case.asked == ServerKind::Sentinel {
        SENTINEL_PASSWORD_VARIABLE
    } else {
        SERVER_PASSWORD_VARIABLE
    };
    let url = case.url(case.url_scheme_suffix(), case.is_over_tls(), &case.path_there());
    case.add_finding_with(&codes::NO_PASSWORD, observed, &[("variable", variable), ("url", &url)]);
}

/// Checks whether the server can serve calls, up to the first fault. Returns whether other checks follow.
pub(super) async fn serves(case: &mut ServerExamination) -> Result<bool> {
    if !fits_url(case).await {
        return Ok(false);
    }
    if case.info.number("loading") == Some(1) {
        let left = case.info.get("loading_eta_seconds").unwrap_or("some").to_owned();
        case.add_finding(&codes::LOADING, format!("the server estimates {left} s until the end"));
        return Ok(false);
    }
    Ok(slots(case).await? && version(case) && role(case) && database(case).await?)
}

/// Returns whether the server fits the URL. INFO shows the kind of server, unless a service leaves that out.
async fn fits_url(case: &mut ServerExamination) -> bool {
    if case.info.is_sentinel() {
        sentinel(case).await;
        return false;
    }
    let of_cluster = case.info.number("cluster_enabled") == Some(1);
    let (kind, observed) = match (case.asked, of_cluster) {
        (ServerKind::Sentinel, false) | (ServerKind::Seed, false) if !case.info.is_empty() => {
            ("", "the server is neither a sentinel nor a node of a cluster")
        }
        (ServerKind::Sentinel, true) => ("+cluster", "the server is a node of a cluster"),
        _ => return true,
    };
    wrong_url(case, kind, case.is_over_tls(), &case.path(), observed);
    false
}

/// Adds a finding if the server is a sentinel that does not watch the URL's primary.
async fn sentinel(case: &mut ServerExamination) {
    let watched = case.server.watched().await.unwrap_or_default();
    if case.primary.as_ref().is_some_and(|primary| watched.contains(primary)) {
        return;
    }
    let name = escape_line(watched.first().map_or("NAME", |name| name), 100);
    let path = [&*name, &case.path()].join("/");
    let observed = format!("the server is a sentinel that watches {}", escape_line(&watched.join(", "), 200));
    wrong_url(case, "+sentinel", case.is_over_tls(), path.trim_end_matches('/'), observed);
}

/// Adds a finding with the URL that fits the server.
fn wrong_url(case: &mut ServerExamination, kind: &str, tls: bool, path: &str, observed: impl Into<String>) {
    let url = case.url(kind, tls, path);
    case.add_finding_with(&codes::WRONG_URL, observed, &[("url", &url)]);
}

const SLOTS: u64 = 16_384;

/// Checks whether the cluster serves all slots. Returns whether other checks follow, which is not so while the cluster is
/// down.
async fn slots(case: &mut ServerExamination) -> Result<bool> {
    if case.info.number("cluster_enabled") != Some(1) {
        return Ok(true);
    }
    // Without the permission for CLUSTER INFO, the other checks show which calls are refused.
    let Ok(answer) = case.ask("reading CLUSTER INFO", cmd("CLUSTER").arg("INFO")).await? else {
        return Ok(true);
    };
    let cluster = Info::read(&keylapse_connection::from_redis_value::<String>(answer).unwrap_or_default());
    let number = |name| cluster.number(name).unwrap_or_default();
    let (owned, failed) = (number("cluster_slots_assigned"), number("cluster_slots_fail"));
    let is_down = cluster.get("cluster_state") == Some("fail");
    if is_down || owned < SLOTS || failed > 0 {
        unserved(case, is_down, owned, failed).await?;
        return Ok(!is_down);
    }
    let is_alone = number("cluster_size") < 2 || case.asked != ServerKind::Server;
    if !is_alone {
        let observed = format!("the server is one of {} primaries of a cluster", number("cluster_size"));
        wrong_url(case, "+cluster", case.is_over_tls(), &case.path(), observed);
    }
    Ok(is_alone)
}

async fn unserved(case: &mut ServerExamination, is_down: bool, owned: u64, failed: u64) -> Result<()> {
    let observed = format!(
        "{} of {} have an owner, {} of these have failed; the cluster {}",
        counted(owned, "slot"),
        show_count(SLOTS),
        show_count(failed),
        if is_down { "is down" } else { "serves the others" }
    );
    let line = line(case, owned).await?;
    case.add_finding_with(&codes::SLOTS_UNSERVED, observed, &[("line", &line)]);
    Ok(())
}

/// Returns the arguments of the CLUSTER command that gives slots without an owner to this node. Slots of failed nodes only
/// need these nodes, so the command lists the nodes then.
async fn line(case: &ServerExamination, owned: u64) -> Result<String> {
    if owned == SLOTS {
        return Ok("NODES".to_owned());
    }
    let answer = case.ask("reading CLUSTER SLOTS", cmd("CLUSTER").arg("SLOTS")).await?.ok();
    let free = answer.map(|answer| unowned(&answer)).unwrap_or_default();
    let words: Vec<_> = free.iter().map(|(first, last)| format!(" {first} {last}")).collect();
    Ok(if words.is_empty() { "NODES".to_owned() } else { format!("ADDSLOTSRANGE{}", words.concat()) })
}

/// Returns the ranges of slots that are missing from an answer to CLUSTER SLOTS.
fn unowned(answer: &Value) -> Vec<(u64, u64)> {
    let ranges = keylapse_connection::from_redis_value_ref::<Vec<Vec<Value>>>(answer).unwrap_or_default();
    let mut owned: Vec<_> = ranges.iter().filter_map(|range| bounds(range)).collect();
    owned.sort_unstable();
    let (mut free, mut next) = (Vec::new(), 0);
    for (first, last) in owned.into_iter().chain([(SLOTS, SLOTS)]) {
        if first > next {
            free.push((next, first - 1));
        }
        next = next.max(last + 1);
    }
    free
}

fn bounds(range: &[Value]) -> Option<(u64, u64)> {
    match range {
        [Value::Int(first), Value::Int(last), ..] => {
            Some((u64::try_from(*first).ok()?, u64::try_from(*last).ok()?))
        }
        _ => None,
    }
}

/// Checks the version. Returns whether other checks follow. They follow for another program than Redis, too, because it may
/// work.
fn version(case: &mut ServerExamination) -> bool {
    // Without INFO, later checks show unsupported commands.
    if case.info.is_empty() {
        return true;
    }
    let (kind, fits) = (case.info.kind(), case.info.is_new_enough());
    if fits == Some(true) {
        let role = if case.info.is_replica() { "a replica" } else { "a primary" };
        case.add_finding(&codes::ANSWERS, format!("{kind}, {role}"));
    } else {
        let there = Site::of(&case.address().endpoint(), &case.info).there();
        case.add_finding_with(&codes::TOO_OLD, kind, &[("there", &there)]);
    }
    fits != Some(false)
}

/// Adds a finding if the URL names a replica. Returns whether other checks follow.
fn role(case: &mut ServerExamination) -> bool {
    if !case.info.is_replica() || case.is_known_replica() {
        return true;
    }
    let scheme = if case.is_over_tls() { "rediss" } else { "redis" };
    let asked = case.address().endpoint();
    let port = case.info.number("master_port").and_then(|port| u16::try_from(port).ok());
    let primary =
        case.info.get("master_host").zip(port).and_then(|(host, port)| Endpoint::of(host, port, &asked));
    let url = |primary| as_word(&format!("{scheme}://{primary}/{}", case.path()));
    let url = primary.map_or_else(|| "URL".to_owned(), url);
    let link = escape_line(case.info.get("master_link_status").unwrap_or("unknown"), 20);
    case.add_finding_with(
        &codes::REPLICA_GIVEN,
        format!("the link to the primary is {link}"),
        &[("primary", &url)],
    );
    false
}

/// Checks whether the user may use the database. INFO does not show that, because it needs no database. Returns whether
/// other checks follow.
async fn database(case: &mut ServerExamination) -> Result<bool> {
    let look = cmd("EXISTS").arg(case.key("none")).clone();
    let refused = case.ask("looking for a key", &look).await?.err().filter(is_refused_database);
    if let Some(error) = &refused {
        database_refused(case, error);
    }
    Ok(refused.is_none())
}

/// Returns whether an error means that the user may not use the database.
fn is_refused_database(error: &Error) -> bool {
    error.kind() == ErrorKind::Permission && error.to_string().contains(NO_DATABASE)
}

fn database_refused(case: &mut ServerExamination, error: &Error) {
    let db = case.db.to_string();
    case.add_finding_with(&codes::DATABASE_REFUSED, error.to_string(), &[("db", &db)]);
}

/// Runs one of keylapse's scripts on a key that does not exist. It writes nothing, but old servers do not support its flags.
/// Replicas are left out, because scripts run only on primaries.
pub(super) async fn scripts(case: &mut ServerExamination) -> Result<()> {
    if !case.takes_writes() {
        return Ok(());
    }
    let run = cmd("EVAL").arg(&PEEK.text).arg(1).arg(case.key("none")).clone();
    match case.ask("running a script", &run).await? {
        // The check of permissions reports refusals, and a temporary error is no fault of scripts.
        Err(error) if matches!(error.kind(), ErrorKind::Permission | ErrorKind::Unavailable) => {}
        Err(error) => case.add_finding(&codes::NO_LUA, error.to_string()),
        Ok(_) => {}
    }
    Ok(())
}

pub(super) fn transport(case: &mut ServerExamination) {
    let address = case.address();
    if !address.is_over_tls() && address.options().streams.is_none() && !is_here(&address.endpoint()) {
        let url = case.url(case.url_scheme_suffix(), true, &case.path());
        case.add_finding_with(&codes::NO_TLS, "plain TCP to an address of another machine", &[("url", &url)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ranges: &[(i64, i64)]) -> Value {
        let range = |(first, last): &(i64, i64)| Value::Array(vec![Value::Int(*first), Value::Int(*last)]);
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn slots_without_an_owner_are_in_no_range() {
        assert_eq!(unowned(&answer(&[])), [(0, 16_383)]);
        assert_eq!(unowned(&answer(&[(0, 16_383)])), []);
        assert_eq!(unowned(&answer(&[(9, 16_382), (1, 4), (5, 6)])), [(0, 0), (7, 8), (16_383, 16_383)]);
    }
}
