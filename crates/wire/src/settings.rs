//! Looks at the settings that matter, where the server lets us: at the start, and
//! once a minute, since an operator or a failover may change them.
//!
//! CONFIG is forbidden on most managed services; then nothing is said here, and
//! the canary decides whether events flow.

use std::collections::HashMap;

use futures::future::join_all;
use keylapse_connection::cmd;

use crate::connection::{Address, Server};
use crate::error::Result;
use crate::lock::lock;
use crate::log::{debug, error, info, warn};
use crate::store::Store;

/// Settings by name, as CONFIG GET answers.
pub(super) type Settings = HashMap<String, String>;

const FLAGS: &str = "notify-keyspace-events";

impl Store {
    /// Reports settings that weaken a promise, once for each change. Adds the
    /// missing notification flags only when asked to: they are the operator's.
    pub async fn check_settings(&self, manage_notifications: bool) -> Result<()> {
        // Replicas too: one may be the primary next. One that is away keeps nobody from being looked at.
        let all = self.0.topology.servers().await?;
        let checks = all.iter().map(|(server, _)| self.check_settings_of(server, manage_notifications));
        join_all(checks).await.into_iter().collect()
    }

    async fn check_settings_of(&self, server: &Server, manage_notifications: bool) -> Result<()> {
        let Some(settings) = read_settings(server).await? else { return Ok(()) };
        let address = server.present();
        let seen = lock(&self.0.settings).insert(address.endpoint(), settings.clone());
        let should_log = seen.as_ref() != Some(&settings);
        if should_log {
            warn_of_eviction(&address, &settings);
        }
        let Some(flags) = settings.get(FLAGS) else { return Ok(()) };
        match missing_flags(flags) {
            "" => {}
            missing if manage_notifications => add_flags(server, flags, missing).await?,
            missing if should_log => warn!(
                server = %address,
                flags,
                missing,
                "expired events are off: set notify-keyspace-events to at least Ex. Timers fire all the same"
            ),
            _ => {}
        }
        Ok(())
    }
}

/// None where the server does not let us.
async fn read_settings(server: &Server) -> Result<Option<Settings>> {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg(FLAGS).arg("maxmemory").arg("maxmemory-policy");
    match server.call("reading settings", &get).await {
        Ok(value) => Ok(Some(keylapse_connection::from_redis_value(value).unwrap_or_default())),
        Err(error) if error.code().is_some() => {
            debug!(%error, "settings cannot be read; the canary will tell whether events flow");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn add_flags(server: &Server, flags: &str, missing: &str) -> Result<()> {
    let set = cmd("CONFIG").arg("SET").arg(FLAGS).arg(format!("{flags}{missing}")).clone();
    server.call("switching expired events on", &set).await?;
    info!(server = %server.present(), flags, added = missing, "expired events switched on, as asked");
    Ok(())
}

/// Which of `E` and `x` a flag string lacks. `A` stands for all classes.
pub fn missing_flags(flags: &str) -> &'static str {
    match (flags.contains('E'), flags.contains(['x', 'A'])) {
        (true, true) => "",
        (true, false) => "x",
        (false, true) => "E",
        (false, false) => "Ex",
    }
}

fn warn_of_eviction(server: &Address, settings: &Settings) {
    let limited = settings.get("maxmemory").is_some_and(|limit| limit != "0");
    let policy = settings.get("maxmemory-policy").map_or("noeviction", String::as_str);
    if limited && policy.starts_with("allkeys") {
        error!(
            %server, policy,
            "the server may evict keylapse's index and lose timers: set maxmemory-policy to noeviction"
        );
    } else if limited && policy != "noeviction" {
        warn!(%server, policy, "the server may evict trigger keys (timers fire all the same): noeviction is safer");
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::missing_flags;

    #[test]
    fn only_what_is_missing_is_ever_added() {
        for (flags, missing) in
            [("", "Ex"), ("xE", ""), ("AKE", ""), ("AK", "E"), ("KE", "x"), ("Kg$", "Ex"), ("E", "x")]
        {
            assert_eq!(missing_flags(flags), missing, "{flags}");
        }
    }
}
