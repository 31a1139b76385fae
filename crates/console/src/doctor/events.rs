//! Checks notices of new timers and expired events, from the flags over the permissions to the network.

use std::time::Duration;

use keylapse_connection::cmd;
use tokio::time::{Instant, timeout};

use crate::error::{Error, ErrorKind, Result};
use crate::inside::receiving::{ExpirySubscription, SubscribedConnection};
use crate::wire::expired_channel;

use super::codes;
use super::examination::{ServerExamination, answered};
use super::rights::{MissingRight, Need};
use super::settings::enough;

/// How long the check waits for an expired event. Before Redis 7.2 the event arrives with the answer, and since then soon
/// after it. A proxy that supports only RESP2 can be slower.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks that the event of a key of 1 ms arrives. Returns the subscription in that case. On a replica, it only checks the
/// permission to subscribe.
pub(super) async fn canary(case: &mut ServerExamination) -> Result<Option<ExpirySubscription>> {
    let mut subscription = match answered(ExpirySubscription::of(&case.server, &case.namespace).await)? {
        Ok(subscription) => subscription,
        Err(error) if error.kind() == ErrorKind::Permission => {
            let rules = format!("+subscribe '&{}'", expired_channel(case.db));
            case.refusals.push(MissingRight::new(Need::Events, &rules, &error.to_string()));
            return Ok(None);
        }
        Err(error) => {
            add_not_received(case, error.to_string());
            return Ok(None);
        }
    };
    wake_ups(case, &subscription).await?;
    if !case.takes_writes() {
        return Ok(None);
    }
    Ok(is_received(case, &mut subscription).await?.then_some(subscription))
}

async fn is_received(case: &mut ServerExamination, subscription: &mut ExpirySubscription) -> Result<bool> {
    let (key, connection) = (case.key("canary"), subscription.connection());
    let began = Instant::now();
    match answered(write_and_read(&connection, &key).await)? {
        Ok(()) => {}
        Err(error) => {
            writes_refused(case, &error);
            return Ok(false);
        }
    }
    let received =
        timeout(EVENT_TIMEOUT, wait_for_key(subscription, key.as_bytes())).await.unwrap_or_default();
    if received {
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        case.lateness.heartbeat_ms = Some(ms);
        case.add_finding(
            &codes::EVENTS_RECEIVED,
            format!("the event of a key of 1 ms arrived {ms:.1} ms after its write"),
        );
    } else {
        add_not_received(case, "a key of 1 ms was read when it was due, and no event arrived".to_owned());
    }
    Ok(received)
}

async fn write_and_read(connection: &SubscribedConnection, key: &str) -> Result<()> {
    connection.ask("writing a heartbeat key", cmd("SET").arg(key).arg("").arg("PX").arg(1)).await?;
    connection.check_key(key.to_owned()).await
}

/// Returns whether the event of this key arrives before the connection ends.
async fn wait_for_key(subscription: &mut ExpirySubscription, key: &[u8]) -> bool {
    while let Some(expired) = subscription.expired().await {
        if expired == key {
            return true;
        }
    }
    false
}

fn writes_refused(case: &mut ServerExamination, error: &Error) {
    let line = match error.code() {
        // The check of permissions reports missing ones. The other codes mean that a slot is moving.
        Some("NOPERM" | "MOVED" | "ASK" | "TRYAGAIN") => return,
        Some("OOM") => format!("CONFIG SET maxmemory {}", enough(case)),
        Some("NOREPLICAS") => "CONFIG SET min-replicas-to-write 0".to_owned(),
        // The server accepts writes again, but loses them in a crash. The check of the disk reports that.
        Some("MISCONF") if error.to_string().contains("RDB") => {
            "CONFIG SET stop-writes-on-bgsave-error no".to_owned()
        }
        Some("READONLY") => "INFO replication".to_owned(),
        _ => "INFO persistence".to_owned(),
    };
    case.add_finding_with(&codes::NO_WRITES, error.to_string(), &[("line", &line)]);
}

/// Adds a finding unless the flags are known to be missing. It suggests to set them only if they cannot be read.
fn add_not_received(case: &mut ServerExamination, observed: String) {
    if case.has_finding(&[codes::FLAGS_MISSING]) {
        return;
    }
    let known = case.setting("notify-keyspace-events").is_some();
    let line = if known { "INFO clients" } else { "CONFIG SET notify-keyspace-events Ex" };
    case.add_finding_with(&codes::CANARY_NOT_RECEIVED, observed, &[("line", line)]);
}

async fn wake_ups(case: &mut ServerExamination, subscription: &ExpirySubscription) -> Result<()> {
    let (channel, connection) = (case.key("wake"), subscription.connection());
    if !subscription.is_ordered() {
        case.add_finding(
            &codes::NO_SHARDED,
            "keylapse uses it only with RESP3, which the server or a proxy does not support",
        );
        return Ok(());
    }
    let subscribe = cmd("SSUBSCRIBE").arg(&channel).clone();
    if let Err(error) = answered(connection.ask("SSUBSCRIBE", &subscribe).await)? {
        wake_ups_refused(case, "+ssubscribe +sunsubscribe", &error);
    }
    if case.takes_writes() {
        let publish = cmd("SPUBLISH").arg(&channel).arg("").clone();
        if let Err(error) = answered(connection.ask("SPUBLISH", &publish).await)? {
            wake_ups_refused(case, "+spublish", &error);
        }
    }
    Ok(())
}

/// Adds what a refusal shows. A redirection only means that the channel's slot is moving.
fn wake_ups_refused(case: &mut ServerExamination, rule: &str, error: &Error) {
    match error.kind() {
        ErrorKind::Permission => {
            let rules = format!("{rule} '&{}:*'", case.namespace);
            case.refusals.push(MissingRight::new(Need::WakeUps, &rules, &error.to_string()));
        }
        ErrorKind::Unsupported if error.redirect().is_none() && !case.has_finding(&[codes::NO_SHARDED]) => {
            case.add_finding(&codes::NO_SHARDED, error.to_string());
        }
        _ => {}
    }
}
