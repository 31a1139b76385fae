//! Looks at the settings that matter, where the server lets us.
//!
//! CONFIG is forbidden on most managed services; then nothing is said here, and
//! the canary decides whether events flow.

use std::collections::HashMap;

use redis::cmd;
use tracing::{debug, error, info, warn};

use super::RedisStore;
use crate::error::Result;

const FLAGS: &str = "notify-keyspace-events";

impl RedisStore {
    /// Reports settings that weaken a promise. Adds the missing notification
    /// flags only when asked to: they are the operator's.
    pub(super) async fn check_settings(&self, manage_notifications: bool) -> Result<()> {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg(FLAGS).arg("maxmemory").arg("maxmemory-policy");
        let settings = match self.0.node.call("reading settings", &get).await {
            Ok(value) => redis::from_redis_value::<HashMap<String, String>>(value).unwrap_or_default(),
            Err(failed) if failed.code.is_some() => {
                debug!(error = %failed.error, "settings cannot be read; the canary will tell whether events flow");
                return Ok(());
            }
            Err(failed) => return Err(failed.error),
        };
        warn_of_eviction(&settings);
        let flags = settings.get(FLAGS).map_or("", String::as_str);
        let missing = missing_flags(flags);
        if missing.is_empty() || !settings.contains_key(FLAGS) {
            return Ok(());
        }
        if !manage_notifications {
            warn!(
                flags,
                missing,
                "expired events are off: set notify-keyspace-events to at least Ex. Timers fire all the same"
            );
            return Ok(());
        }
        let mut set = cmd("CONFIG");
        set.arg("SET").arg(FLAGS).arg(format!("{flags}{missing}"));
        self.0.node.call("switching expired events on", &set).await?;
        info!(flags, added = missing, "expired events switched on, as asked");
        Ok(())
    }
}

/// Which of `E` and `x` a flag string lacks. `A` stands for all classes.
fn missing_flags(flags: &str) -> &'static str {
    let (channel, class) = (flags.contains('E'), flags.contains(['x', 'A']));
    match (channel, class) {
        (true, true) => "",
        (true, false) => "x",
        (false, true) => "E",
        (false, false) => "Ex",
    }
}

fn warn_of_eviction(settings: &HashMap<String, String>) {
    let limited = settings.get("maxmemory").is_some_and(|limit| limit != "0");
    let policy = settings.get("maxmemory-policy").map_or("noeviction", String::as_str);
    if limited && policy.starts_with("allkeys") {
        error!(
            policy,
            "the server may evict keylapse's index and lose timers: set maxmemory-policy to noeviction"
        );
    } else if limited && policy != "noeviction" {
        warn!(policy, "the server may evict trigger keys (timers fire all the same): noeviction is safer");
    }
}

#[cfg(test)]
mod tests {
    use super::missing_flags;

    #[test]
    fn only_what_is_missing_is_ever_added() {
        for (flags, missing) in
            [("", "Ex"), ("xE", ""), ("AKE", ""), ("AK", "E"), ("KE", "x"), ("Kg$", "Ex"), ("E", "x")]
        {
            assert_eq!(missing_flags(flags), missing, "{flags}");
        }
    }
}
