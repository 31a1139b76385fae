//! Whether listeners could be told of new timers, and whether an expired key is heard: from the flag over the rights to the
//! network.

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

/// Before Redis 7.2 the event is there with the answer, and later soon after it. A proxy that speaks RESP2 alone may take
/// its time.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The subscription, if a key of 1 ms was heard on it. On a replica only whether there may be one.
pub(super) async fn canary(case: &mut ServerExamination) -> Result<Option<ExpirySubscription>> {
    let mut earshot = match answered(ExpirySubscription::of(&case.server, &case.namespace).await)? {
        Ok(earshot) => earshot,
        Err(error) if error.kind() == ErrorKind::Permission => {
            let rules = format!("+subscribe '&{}'", expired_channel(case.db));
            case.refusals.push(MissingRight::new(Need::Events, &rules, &error.to_string()));
            return Ok(None);
        }
        Err(error) => {
            unheard(case, error.to_string());
            return Ok(None);
        }
    };
    wake_ups(case, &earshot).await?;
    if !case.takes_writes() {
        return Ok(None);
    }
    Ok(is_heard(case, &mut earshot).await?.then_some(earshot))
}

async fn is_heard(case: &mut ServerExamination, earshot: &mut ExpirySubscription) -> Result<bool> {
    let (key, voice) = (case.key("canary"), earshot.connection());
    let began = Instant::now();
    match answered(make_and_release(&voice, &key).await)? {
        Ok(()) => {}
        Err(error) => {
            writes_refused(case, &error);
            return Ok(false);
        }
    }
    let heard = timeout(EVENT_TIMEOUT, until(earshot, key.as_bytes())).await.unwrap_or_default();
    if heard {
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        case.lateness.heartbeat_ms = Some(ms);
        case.add_finding(
            &codes::EVENTS_RECEIVED,
            format!("a key of 1 ms was heard {ms:.1} ms after it was written"),
        );
    } else {
        unheard(case, "a key of 1 ms was read when it was due, and no event came".to_owned());
    }
    Ok(heard)
}

async fn make_and_release(voice: &SubscribedConnection, key: &str) -> Result<()> {
    voice.ask("making a canary", cmd("SET").arg(key).arg("").arg("PX").arg(1)).await?;
    voice.check_key(key.to_owned()).await
}

/// Whether this key is heard before the connection ends.
async fn until(earshot: &mut ExpirySubscription, key: &[u8]) -> bool {
    while let Some(heard) = earshot.expired().await {
        if heard == key {
            return true;
        }
    }
    false
}

/// A refusal for want of rights is said with the rights; and a slot of a cluster may be on its way.
fn writes_refused(case: &mut ServerExamination, error: &Error) {
    let line = match error.code() {
        Some("NOPERM" | "MOVED" | "ASK" | "TRYAGAIN") => return,
        Some("OOM") => format!("CONFIG SET maxmemory {}", enough(case)),
        Some("NOREPLICAS") => "CONFIG SET min-replicas-to-write 0".to_owned(),
        // It takes writes again, and loses them in a crash: that is said by itself.
        Some("MISCONF") if error.to_string().contains("RDB") => {
            "CONFIG SET stop-writes-on-bgsave-error no".to_owned()
        }
        Some("READONLY") => "INFO replication".to_owned(),
        _ => "INFO persistence".to_owned(),
    };
    case.add_finding_with(&codes::NO_WRITES, error.to_string(), &[("line", &line)]);
}

/// Missing flags are the reason, and said already. Flags that are seen to be there are not the reason.
fn unheard(case: &mut ServerExamination, observed: String) {
    if case.has_finding(&[codes::FLAGS_MISSING]) {
        return;
    }
    let known = case.setting("notify-keyspace-events").is_some();
    let line = if known { "INFO clients" } else { "CONFIG SET notify-keyspace-events Ex" };
    case.add_finding_with(&codes::CANARY_NOT_RECEIVED, observed, &[("line", line)]);
}

async fn wake_ups(case: &mut ServerExamination, earshot: &ExpirySubscription) -> Result<()> {
    let (channel, voice) = (case.key("wake"), earshot.connection());
    if !earshot.is_ordered() {
        case.add_finding(&codes::NO_SHARDED, "there is no RESP3, in which alone it is used");
        return Ok(());
    }
    let subscribe = cmd("SSUBSCRIBE").arg(&channel).clone();
    if let Err(error) = answered(voice.ask("SSUBSCRIBE", &subscribe).await)? {
        wake_ups_refused(case, "+ssubscribe +sunsubscribe", &error);
    }
    if case.takes_writes() {
        let publish = cmd("SPUBLISH").arg(&channel).arg("").clone();
        if let Err(error) = answered(voice.ask("SPUBLISH", &publish).await)? {
            wake_ups_refused(case, "+spublish", &error);
        }
    }
    Ok(())
}

/// Of a cluster, the channel's slot may be on its way: that says nothing.
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
