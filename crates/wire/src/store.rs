//! The [`Store`], whose methods run scripts and commands on the servers.
//!
//! A call that names a partition can be repeated after its reply was lost. The caller marks it as a repeat, and mostly
//! receives the result of the first execution, or of this one if there was none. docs/internals/wire.md lists the calls
//! whose repeats differ.
//!
//! This module also reads the keys of other programs and the settings of the servers. The settings are checked at the start
//! and once a minute, because an operator or a failover may change them. Most managed services forbid CONFIG. Then nothing
//! is logged here, and heartbeat keys prove whether events arrive.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use keylapse_connection::{cmd, from_redis_value};

use crate::connection::{Address, ConnectionRuntime, Endpoint, Server, Target, Topology};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::log::{LogThrottle, debug, error, info, warn};
use crate::scripts::Script;
use crate::{JournalBounds, PartitionNames, Reply, TopicEntry};

/// The default limit of the time until a call is answered. The 0.5 s of the `redis` crate would give up on calls that the
/// server still executes.
pub const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A client of the Redis or Valkey servers that hold the timers.
///
/// It connects at the first call, and again whenever a connection is lost. Clones share the connections.
#[derive(Clone)]
pub struct Store(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) topology: Topology,
    target: Target,
    /// Limits the warning that wake-ups are refused.
    pub(super) refused_wake_ups: LogThrottle,
    /// The registered topics, to list them again when another program has destroyed them.
    pub(super) registered: Mutex<HashMap<String, TopicEntry>>,
    /// The partitions of served topics that were seen to exist.
    pub(super) seen_partitions: Mutex<HashMap<String, KnownPartitions>>,
    /// The journal limits of topics.
    pub(super) journals: Mutex<HashMap<String, JournalBounds>>,
    /// The settings of the servers at the last check.
    pub(super) settings: Mutex<HashMap<Endpoint, Settings>>,
    /// The scripts with the clock replaced by a key, for tests on a real server.
    pub(super) clocked: HashMap<&'static str, Script>,
}

/// The partitions of a topic that were seen to exist.
#[derive(Default)]
pub(super) struct KnownPartitions {
    partitions: HashSet<u32>,
    /// Limits the warning that a partition has vanished.
    vanished: LogThrottle,
}

impl Inner {
    fn new(target: Target, answer_within: Duration) -> Self {
        Self {
            topology: Topology::new(&target, answer_within),
            target,
            refused_wake_ups: LogThrottle::default(),
            registered: Mutex::default(),
            seen_partitions: Mutex::default(),
            journals: Mutex::default(),
            settings: Mutex::default(),
            clocked: HashMap::new(),
        }
    }
}

impl Store {
    /// Creates a store for the servers that a URL or a program names.
    pub fn new(target: &Target, answer_within: Duration) -> Self {
        Self(Arc::new(Inner::new(target.clone(), answer_within)))
    }

    /// Creates a store for a URL, for tests of the scripts.
    pub fn at(url: &str) -> Result<Self> {
        Ok(Self::new(&Target::parse(url)?, DEFAULT_ANSWER_WITHIN))
    }

    /// Makes the scripts read the time, in microseconds, from this key. Tests run a real server through hours that way.
    #[must_use]
    pub fn with_clock_key(self, key: &str) -> Self {
        let read = format!(
            "(function() local t = tonumber(redis.call('GET', '{key}')) return {{ math.floor(t / 1e6), t % 1e6 }} end)()"
        );
        let clocked = crate::scripts::all()
            .map(|script| (script.name, script.replace("redis.call('TIME')", &read)))
            .collect();
        Self(Arc::new(Inner { clocked, ..Inner::new(self.target().clone(), DEFAULT_ANSWER_WITHIN) }))
    }

    /// Returns the number of requests that this store has sent. A pipeline counts once. Subscriptions do not count, because
    /// they have their own connection.
    pub fn requests(&self) -> u64 {
        self.0.topology.requests()
    }

    /// Reads why a script could not publish its wake-up, and logs it. The call has succeeded, but timers may run late.
    pub(super) fn read_wake_up_error(&self, at: &PartitionNames, reply: &mut Reply) -> Result<Option<Error>> {
        Ok(reply.maybe_text()?.map(|reason| self.wake_up_error(at, &reason)))
    }

    pub(super) fn wake_up_error(&self, at: &PartitionNames, reason: &str) -> Error {
        // The server's text is "unknown command", or in a script "Unknown Redis command called".
        let (kind, advice) = if reason.to_ascii_lowercase().contains("unknown") {
            (ErrorKind::Unsupported, "the server has no sharded pub/sub".to_owned())
        } else {
            let channels = format!("grant this user +spublish and the channels &{}:*", at.namespace);
            (ErrorKind::Permission, channels)
        };
        let message = format!(
            "listeners received no wake-up, and notice the call up to five seconds late: {reason}; {advice}"
        );
        let error = Error::new(kind, message);
        if self.0.refused_wake_ups.should_log(&error) {
            warn!(topic = %at.topic, %error, "wake-ups are refused");
        }
        error
    }

    /// Marks a topic as served. From now on a warning is logged if a partition of it vanishes.
    pub fn serve(&self, topic: &str) {
        lock(&self.0.seen_partitions).entry(topic.to_owned()).or_default();
    }

    /// Records that a partition of a served topic exists.
    pub(super) fn mark_partition_seen(&self, at: &PartitionNames) {
        if let Some(known) = lock(&self.0.seen_partitions).get_mut(&at.topic) {
            known.partitions.insert(at.index);
        }
    }

    /// Returns whether a partition of a served topic was seen to exist.
    pub(super) fn was_partition_seen(&self, at: &PartitionNames) -> bool {
        lock(&self.0.seen_partitions).get(&at.topic).is_some_and(|known| known.partitions.contains(&at.index))
    }

    /// Logs that a partition had vanished and was created again.
    pub(super) fn warn_partition_recreated(&self, at: &PartitionNames, error: &Error) {
        let should_log =
            lock(&self.0.seen_partitions).get(&at.topic).is_some_and(|known| known.vanished.is_new(error));
        if should_log {
            warn!(
                topic = %at.topic, partition = at.index, name = at.key("meta"),
                "a partition had vanished from Redis, and was created again: was something deleted, or the database emptied \
                 or swapped (DEL, FLUSHDB, FLUSHALL, SWAPDB), or has an empty server taken over?"
            );
        }
    }

    /// Returns the target, which names the servers.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// Returns the runtime that the connections use.
    pub fn home(&self) -> ConnectionRuntime {
        self.target().options.runtime
    }

    /// Returns the servers and the slots that they hold.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }
}

impl fmt::Debug for Store {
    /// Leaves out the user and the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.target().endpoints)
    }
}

/// Settings by name, as CONFIG GET returns them.
pub(super) type Settings = HashMap<String, String>;

const FLAGS: &str = "notify-keyspace-events";

impl Store {
    /// Logs settings that can lose timers or events, once for each change. Adds missing notification flags only if
    /// `manage_notifications` is set, because these settings belong to the operator.
    pub async fn check_settings(&self, manage_notifications: bool) -> Result<()> {
        // Replicas are checked, too, because each may become the primary. An unavailable server does not stop the others.
        let all = self.0.topology.servers().await?;
        let checks = all.iter().map(|(server, _)| self.check_settings_of(server, manage_notifications));
        join_all(checks).await.into_iter().collect()
    }

    async fn check_settings_of(&self, server: &Server, manage_notifications: bool) -> Result<()> {
        let Some(settings) = read_settings(server).await? else { return Ok(()) };
        let address = server.last_address();
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
                "expired events are off: set notify-keyspace-events to at least Ex. Timers fire without them"
            ),
            _ => {}
        }
        Ok(())
    }
}

/// Returns `None` if the server refuses CONFIG.
async fn read_settings(server: &Server) -> Result<Option<Settings>> {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg(FLAGS).arg("maxmemory").arg("maxmemory-policy");
    match server.call("reading settings", &get).await {
        Ok(value) => Ok(Some(from_redis_value(value).unwrap_or_default())),
        Err(error) if error.code().is_some() => {
            debug!(%error, "cannot read the settings; heartbeat keys show whether events arrive");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn add_flags(server: &Server, flags: &str, missing: &str) -> Result<()> {
    let set = cmd("CONFIG").arg("SET").arg(FLAGS).arg(format!("{flags}{missing}")).clone();
    server.call("switching expired events on", &set).await?;
    info!(server = %server.last_address(), flags, added = missing, "expired events switched on, as asked");
    Ok(())
}

/// Returns which of `E` and `x` a flag string lacks. `A` includes `x`.
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
        warn!(%server, policy, "the server may evict marker keys (timers fire without them): noeviction is safer");
    }
}

/// The type, deadline and size of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedKey {
    /// The type as TYPE returns it; `none` if the key is gone.
    pub kind: String,
    /// When the key expires, in ms since 1970; `None` if it has no TTL.
    pub deadline: Option<u64>,
    /// The bytes that the key takes, as MEMORY USAGE estimates; `None` if this was not requested or is not permitted.
    pub bytes: Option<u64>,
}

impl Store {
    /// Runs one SCAN of a server's database. Returns the next cursor (0: the end) and the keys that match the pattern.
    pub async fn scan(
        &self,
        server: &Server,
        cursor: u64,
        pattern: &[u8],
        count: usize,
    ) -> Result<(u64, Vec<Bytes>)> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
        let mut reply = Reply::new("scan", server.call("scanning for keys", &scan).await?)?;
        Ok((reply.int()?, reply.list()?.each(Reply::bytes)?))
    }

    /// Reads the type and the deadline of each key, and its size `with_bytes`. The user needs only the right to read.
    pub async fn survey(&self, keys: &[Bytes], with_bytes: bool) -> Result<Vec<SurveyedKey>> {
        const DOING: &str = "reading types and deadlines of keys";
        let command =
            |key: &Bytes, name: &str| (self.0.topology.slot_of(key), cmd(name).arg(&key[..]).clone());
        let mut commands: Vec<_> =
            keys.iter().flat_map(|key| [command(key, "TYPE"), command(key, "PEXPIRETIME")]).collect();
        if with_bytes {
            let size = |key: &Bytes| {
                (self.0.topology.slot_of(key), cmd("MEMORY").arg("USAGE").arg(&key[..]).clone())
            };
            commands.extend(keys.iter().map(size));
        }
        let mut answers = self.0.topology.each(DOING, commands).await.into_iter();
        let mut found = Vec::with_capacity(keys.len());
        for (kind, deadline) in keys.iter().filter_map(|_| Some((answers.next()?, answers.next()?))) {
            let kind: String = from_redis_value(kind?).unwrap_or_default();
            let deadline: i64 = from_redis_value(deadline?).unwrap_or(-1);
            found.push(SurveyedKey { kind, deadline: u64::try_from(deadline).ok(), bytes: None });
        }
        for (key, bytes) in found.iter_mut().zip(answers) {
            key.bytes = match bytes {
                Err(error) if error.kind() == ErrorKind::Permission => None,
                bytes => Some(bytes.ok().and_then(|bytes| from_redis_value(bytes).ok()).unwrap_or(0)),
            };
        }
        Ok(found)
    }

    /// Returns how many keys a server's database has; `None` if the user may call neither DBSIZE nor INFO.
    pub async fn database_size(&self, server: &Server) -> Result<Option<u64>> {
        const DOING: &str = "counting keys";
        match server.call(DOING, &cmd("DBSIZE")).await {
            Err(error) if error.kind() == ErrorKind::Permission => {}
            size => return Ok(Some(from_redis_value(size?).unwrap_or_default())),
        }
        // The user in `redis.conf`, at the root of the repository, may call INFO.
        match server.call(DOING, cmd("INFO").arg("keyspace")).await {
            Err(error) if error.kind() == ErrorKind::Permission => Ok(None),
            info => {
                let info: String = from_redis_value(info?).unwrap_or_default();
                Ok(Some(keys_of(&info, server.last_address().db())))
            }
        }
    }
}

/// Returns the number of keys of a database. INFO leaves out empty databases.
fn keys_of(info: &str, db: i64) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("db{db}:keys=")));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_ever_added() {
        for (flags, missing) in
            [("", "Ex"), ("xE", ""), ("AKE", ""), ("AK", "E"), ("KE", "x"), ("Kg$", "Ex"), ("E", "x")]
        {
            assert_eq!(missing_flags(flags), missing, "{flags}");
        }
    }

    #[test]
    fn the_keys_of_a_database_are_read() {
        let info = "# Keyspace\r\ndb0:keys=9,expires=7,avg_ttl=1\r\ndb10:keys=3,expires=0,avg_ttl=0\r\n";
        assert_eq!([keys_of(info, 0), keys_of(info, 1), keys_of(info, 10)], [9, 0, 3]);
    }
}
