//! Whether the server is reached, is what the URL takes it for, and answers calls about keys. Where it does not, nothing else
//! is worth a look.

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

/// Whether it is worth asking further. One call of INFO, which is answered while data are loaded, too.
pub(super) async fn answers(case: &mut ServerExamination) -> bool {
    let said = case.server.call("asking a server about itself", &cmd("INFO")).await;
    match said {
        Ok(said) => {
            case.info =
                Info::read(&keylapse_connection::from_redis_value::<String>(said).unwrap_or_default());
            true
        }
        Err(error) => is_no_matter(case, &error),
    }
}

fn is_no_matter(case: &mut ServerExamination, error: &Error) -> bool {
    let said = error.to_string();
    match error.kind() {
        ErrorKind::Auth => login(case, error),
        ErrorKind::Tls if said.contains(NO_TLS_AT_PORT) => {
            wrong_url(case, case.url_scheme_suffix(), false, &case.path_there(), said);
        }
        ErrorKind::Tls if said.contains(TLS_AT_PORT) => {
            wrong_url(case, case.url_scheme_suffix(), true, &case.path_there(), said)
        }
        _ if is_of_no_database(error) => {
            wrong_url(case, case.url_scheme_suffix(), case.is_over_tls(), "0", said)
        }
        // A replica that the primary has named: the primary itself was reached.
        _ if case.is_known_replica() && is_retryable(error) && case.asked == ServerKind::Server => {
            case.add_finding(&codes::REPLICA_UNSEEN, said);
        }
        _ if is_refused_database(error) => database_refused(case, error),
        // Who may not ask for INFO, or not there, may do all the rest. The rights say so.
        ErrorKind::Permission | ErrorKind::Unsupported if matches!(error.code(), Some("NOPERM" | "ERR")) => {
            return true;
        }
        _ => case.add_finding(&codes::UNREACHABLE, said),
    }
    false
}

/// The login is refused, or there is none.
fn login(case: &mut ServerExamination, error: &Error) {
    let said = error.to_string();
    if case.address().options().login.password.is_some() {
        return case.add_finding(&codes::LOGIN_REFUSED, said);
    }
    let variable = if case.asked == ServerKind::Sentinel {
        SENTINEL_PASSWORD_VARIABLE
    } else {
        SERVER_PASSWORD_VARIABLE
    };
    let url = case.url(case.url_scheme_suffix(), case.is_over_tls(), &case.path_there());
    case.add_finding_with(&codes::NO_PASSWORD, said, &[("variable", variable), ("url", &url)]);
}

/// Returns whether it is worth asking further: the first reason why not is all that is said.
pub(super) async fn serves(case: &mut ServerExamination) -> Result<bool> {
    if !fits_url(case).await {
        return Ok(false);
    }
    if case.info.number("loading") == Some(1) {
        let left = case.info.get("loading_eta_seconds").unwrap_or("some").to_owned();
        case.add_finding(&codes::LOADING, format!("about {left} s are left, as it reckons"));
        return Ok(false);
    }
    Ok(slots(case).await? && version(case) && role(case) && database(case).await?)
}

/// Returns whether the URL and what answers there agree. INFO has the kind of a server; a service may leave that out.
async fn fits_url(case: &mut ServerExamination) -> bool {
    if case.info.is_sentinel() {
        sentinel(case).await;
        return false;
    }
    let of_cluster = case.info.number("cluster_enabled") == Some(1);
    let (kind, what) = match (case.asked, of_cluster) {
        (ServerKind::Sentinel, false) | (ServerKind::Seed, false) if !case.info.is_empty() => {
            ("", "it is a server by itself")
        }
        (ServerKind::Sentinel, true) => ("+cluster", "it is a node of a cluster"),
        _ => return true,
    };
    wrong_url(case, kind, case.is_over_tls(), &case.path(), what);
    false
}

/// Sentinels that were asked for a primary which they do not watch say the same.
async fn sentinel(case: &mut ServerExamination) {
    let watched = case.server.watched().await.unwrap_or_default();
    if case.primary.as_ref().is_some_and(|primary| watched.contains(primary)) {
        return;
    }
    let name = escape_line(watched.first().map_or("NAME", |name| name), 100);
    let path = [&*name, &case.path()].join("/");
    let said = format!("it is a sentinel, which watches {}", escape_line(&watched.join(", "), 200));
    wrong_url(case, "+sentinel", case.is_over_tls(), path.trim_end_matches('/'), said);
}

/// With the URL that fits.
fn wrong_url(case: &mut ServerExamination, kind: &str, tls: bool, path: &str, observed: impl Into<String>) {
    let url = case.url(kind, tls, path);
    case.add_finding_with(&codes::WRONG_URL, observed, &[("url", &url)]);
}

const SLOTS: u64 = 16_384;

/// Returns whether it is worth asking further: while the cluster is down, no call about a key is answered.
async fn slots(case: &mut ServerExamination) -> Result<bool> {
    if case.info.number("cluster_enabled") != Some(1) {
        return Ok(true);
    }
    // A user without that right goes on: calls are refused one by one then.
    let Ok(said) = case.ask("asking a node about its cluster", cmd("CLUSTER").arg("INFO")).await? else {
        return Ok(true);
    };
    let cluster = Info::read(&keylapse_connection::from_redis_value::<String>(said).unwrap_or_default());
    let number = |name| cluster.number(name).unwrap_or_default();
    let (owned, failed) = (number("cluster_slots_assigned"), number("cluster_slots_fail"));
    let is_down = cluster.get("cluster_state") == Some("fail");
    if is_down || owned < SLOTS || failed > 0 {
        unserved(case, is_down, owned, failed).await?;
        return Ok(!is_down);
    }
    let is_alone = number("cluster_size") < 2 || case.asked != ServerKind::Server;
    if !is_alone {
        let said = format!("it is one of {} primaries of a cluster", number("cluster_size"));
        wrong_url(case, "+cluster", case.is_over_tls(), &case.path(), said);
    }
    Ok(is_alone)
}

async fn unserved(case: &mut ServerExamination, is_down: bool, owned: u64, failed: u64) -> Result<()> {
    let observed = format!(
        "{} of {} have an owner, {} of these have failed; {}",
        counted(owned, "slot"),
        show_count(SLOTS),
        show_count(failed),
        if is_down { "it is down" } else { "it serves the others" }
    );
    let line = line(case, owned).await?;
    case.add_finding_with(&codes::SLOTS_UNSERVED, observed, &[("line", &line)]);
    Ok(())
}

/// Gives away the slots that nobody owns. Those of failed nodes are served when these are back.
async fn line(case: &ServerExamination, owned: u64) -> Result<String> {
    if owned == SLOTS {
        return Ok("NODES".to_owned());
    }
    let said = case.ask("asking for the slots", cmd("CLUSTER").arg("SLOTS")).await?.ok();
    let free = said.map(|said| unowned(&said)).unwrap_or_default();
    let words: Vec<_> = free.iter().map(|(first, last)| format!(" {first} {last}")).collect();
    Ok(if words.is_empty() { "NODES".to_owned() } else { format!("ADDSLOTSRANGE{}", words.concat()) })
}

/// The slots that are in no range of an answer to CLUSTER SLOTS.
fn unowned(said: &Value) -> Vec<(u64, u64)> {
    let ranges = keylapse_connection::from_redis_value_ref::<Vec<Vec<Value>>>(said).unwrap_or_default();
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

/// Returns whether it is worth asking further. Another program may work.
fn version(case: &mut ServerExamination) -> bool {
    // Who may not ask for INFO learns it by what is refused.
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

/// Returns whether it is worth asking further. Of replicas that were found by themselves nothing else is expected.
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
        format!("its link to the primary is {link}"),
        &[("primary", &url)],
    );
    false
}

/// Returns whether it is worth asking further: INFO is answered anywhere, and no command about a key is.
async fn database(case: &mut ServerExamination) -> Result<bool> {
    let look = cmd("EXISTS").arg(case.key("none")).clone();
    let refused = case.ask("looking for a key", &look).await?.err().filter(is_refused_database);
    if let Some(error) = &refused {
        database_refused(case, error);
    }
    Ok(refused.is_none())
}

/// Returns whether an error says that.
fn is_refused_database(error: &Error) -> bool {
    error.kind() == ErrorKind::Permission && error.to_string().contains(NO_DATABASE)
}

fn database_refused(case: &mut ServerExamination, error: &Error) {
    let db = case.db.to_string();
    case.add_finding_with(&codes::DATABASE_REFUSED, error.to_string(), &[("db", &db)]);
}

/// Runs one of our own, over a key that does not exist: it writes nothing, and its flags are what older servers do not know. A replica's
/// scripts are its primary's.
pub(super) async fn scripts(case: &mut ServerExamination) -> Result<()> {
    if !case.takes_writes() {
        return Ok(());
    }
    let run = cmd("EVAL").arg(&PEEK.text).arg(1).arg(case.key("none")).clone();
    match case.ask("running a script", &run).await? {
        // Refusals are found one by one, and what passes is none of the scripts'.
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
        case.add_finding_with(
            &codes::NO_TLS,
            "plain TCP to an address that is not this machine's",
            &[("url", &url)],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ranges: &[(i64, i64)]) -> Value {
        let range = |(first, last): &(i64, i64)| Value::Array(vec![Value::Int(*first), Value::Int(*last)]);
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn slots_without_an_owner_are_what_no_range_holds() {
        assert_eq!(unowned(&said(&[])), [(0, 16_383)]);
        assert_eq!(unowned(&said(&[(0, 16_383)])), []);
        assert_eq!(unowned(&said(&[(9, 16_382), (1, 4), (5, 6)])), [(0, 0), (7, 8), (16_383, 16_383)]);
    }
}
