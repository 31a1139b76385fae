//! The one way to the timers in Redis: scripts and commands on a server, as methods.
//!
//! Every call that names a partition can be repeated after its answer was lost: the caller says that it
//! repeats, and gets the answer of the first execution, or of this one if there was none. First tries pay
//! nothing for that.
//!
//! What its servers have that is not ours stands here, too: the keys of others, and the settings. Those that matter are
//! looked at where the server lets us: at the start, and once a minute, since an operator or a failover may change them.
//! CONFIG is forbidden on most managed services; then nothing is said here, and the canary decides whether events flow.

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

/// The longest a call may take to be answered, unless set otherwise. `redis`' own
/// default of 0.5 s would give up on calls that the server still executes.
pub const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Timers kept in Redis or Valkey.
///
/// Connects when it is first used, and again whenever a connection is lost.
/// Each clone shares the connection.
#[derive(Clone)]
pub struct Store(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) topology: Topology,
    target: Target,
    /// Whether it was said lately that listeners cannot be told.
    pub(super) untold: LogThrottle,
    /// The topics that were registered, to list them anew when they were destroyed.
    pub(super) registered: Mutex<HashMap<String, TopicEntry>>,
    /// The partitions of a listener's topics that are known to be there.
    pub(super) made: Mutex<HashMap<String, KnownPartitions>>,
    /// Which of them keep a journal.
    pub(super) journals: Mutex<HashMap<String, JournalBounds>>,
    /// The servers' settings, as they were seen last.
    pub(super) settings: Mutex<HashMap<Endpoint, Settings>>,
    /// The scripts, made to read the time from a key: for tests on a real server.
    pub(super) clocked: HashMap<&'static str, Script>,
}

/// The partitions of a topic that are known to be there.
#[derive(Default)]
pub(super) struct KnownPartitions {
    partitions: HashSet<u32>,
    /// Limits the warning that one was gone.
    gone: LogThrottle,
}

impl Inner {
    fn new(target: Target, answer_within: Duration) -> Self {
        Self {
            topology: Topology::new(&target, answer_within),
            target,
            untold: LogThrottle::default(),
            registered: Mutex::default(),
            made: Mutex::default(),
            journals: Mutex::default(),
            settings: Mutex::default(),
            clocked: HashMap::new(),
        }
    }
}

impl Store {
    /// Of the servers that a URL or a program has named.
    pub fn new(target: &Target, answer_within: Duration) -> Self {
        Self(Arc::new(Inner::new(target.clone(), answer_within)))
    }

    /// The same at a URL, for tests of the scripts.
    pub fn at(url: &str) -> Result<Self> {
        Ok(Self::new(&Target::parse(url)?, DEFAULT_ANSWER_WITHIN))
    }

    /// The same whose scripts read the time, in microseconds, from this key, so that a real server can be
    /// driven through hours.
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

    /// How many requests this store has sent; a pipeline counts once. The subscription has its own
    /// connection and is not counted here.
    pub fn requests(&self) -> u64 {
        self.0.topology.requests()
    }

    /// Why listeners could not be told of what a script has done, if it says so. That is no error of the call: it
    /// costs lateness, and so it is said in the log as well.
    pub(super) fn read_wake_up_error(&self, at: &PartitionNames, reply: &mut Reply) -> Result<Option<Error>> {
        Ok(reply.maybe_text()?.map(|reason| self.wake_up_error(at, &reason)))
    }

    pub(super) fn wake_up_error(&self, at: &PartitionNames, reason: &str) -> Error {
        // "unknown command", and to a script "Unknown Redis command called".
        let (kind, advice) = if reason.to_ascii_lowercase().contains("unknown") {
            (ErrorKind::Unsupported, "the server has no sharded pub/sub".to_owned())
        } else {
            let channels = format!("grant this user +spublish and the channels &{}:*", at.namespace);
            (ErrorKind::Permission, channels)
        };
        let message = format!(
            "listeners could not be told, and find what was done by looking, up to five seconds late: {reason}; {advice}"
        );
        let error = Error::new(kind, message);
        if self.0.untold.should_log(&error) {
            warn!(topic = %at.topic, %error, "wake-ups are refused");
        }
        error
    }

    /// From now on it is said if a partition of this topic is gone that was there: somebody serves it.
    pub fn serve(&self, topic: &str) {
        lock(&self.0.made).entry(topic.to_owned()).or_default();
    }

    /// A partition is there.
    pub(super) fn mark_partition_seen(&self, at: &PartitionNames) {
        if let Some(made) = lock(&self.0.made).get_mut(&at.topic) {
            made.partitions.insert(at.index);
        }
    }

    /// Set if it was there.
    pub(super) fn was_partition_seen(&self, at: &PartitionNames) -> bool {
        lock(&self.0.made).get(&at.topic).is_some_and(|made| made.partitions.contains(&at.index))
    }

    /// A partition had to be made again.
    pub(super) fn warn_partition_recreated(&self, at: &PartitionNames, error: &Error) {
        let is_news = lock(&self.0.made).get(&at.topic).is_some_and(|made| made.gone.is_new(error));
        if is_news {
            warn!(
                topic = %at.topic, partition = at.index, name = at.key("meta"),
                "the names of a partition were gone, and were made again: was something deleted, or the database emptied \
                 or exchanged (DEL, FLUSHDB, FLUSHALL, SWAPDB), or has an empty server taken over?"
            );
        }
    }

    /// Returns what names its servers.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// Where its connections live.
    pub fn home(&self) -> ConnectionRuntime {
        self.target().options.runtime
    }

    /// Returns its servers, and which holds which slot.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }
}

impl fmt::Debug for Store {
    /// Without what an address might hold: user, password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.target().endpoints)
    }
}

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
        Ok(value) => Ok(Some(from_redis_value(value).unwrap_or_default())),
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
    info!(server = %server.last_address(), flags, added = missing, "expired events switched on, as asked");
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

/// What a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedKey {
    /// Its type, by the server's word; `none` where it is gone.
    pub kind: String,
    /// When it expires, in ms since 1970; none where it never does.
    pub deadline: Option<u64>,
    /// Bytes that it takes, as the server reckons; none where it was not asked, or may not be.
    pub bytes: Option<u64>,
}

impl Store {
    /// One step through all keys of a server's database: where to go on (0: the end), and those that the pattern
    /// matches.
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

    /// What each of these keys is. It takes a user who may only read.
    pub async fn survey(&self, keys: &[Bytes], with_bytes: bool) -> Result<Vec<SurveyedKey>> {
        const DOING: &str = "looking at keys";
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

    /// How many keys a server's database has; none where the user may ask in neither way.
    pub async fn database_size(&self, server: &Server) -> Result<Option<u64>> {
        const DOING: &str = "counting keys";
        match server.call(DOING, &cmd("DBSIZE")).await {
            Err(error) if error.kind() == ErrorKind::Permission => {}
            size => return Ok(Some(from_redis_value(size?).unwrap_or_default())),
        }
        // Users of redis.conf have this one.
        match server.call(DOING, cmd("INFO").arg("keyspace")).await {
            Err(error) if error.kind() == ErrorKind::Permission => Ok(None),
            said => {
                let said: String = from_redis_value(said?).unwrap_or_default();
                Ok(Some(keys_of(&said, server.last_address().db())))
            }
        }
    }
}

/// The keys of a database, which is not named where it has none.
fn keys_of(said: &str, db: i64) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("db{db}:keys=")));
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
        let said = "# Keyspace\r\ndb0:keys=9,expires=7,avg_ttl=1\r\ndb10:keys=3,expires=0,avg_ttl=0\r\n";
        assert_eq!([keys_of(said, 0), keys_of(said, 1), keys_of(said, 10)], [9, 0, 3]);
    }
}
