//! Checks of INFO and of settings: expired events, limits for clients, memory, disk and replicas.

use std::collections::HashMap;

use keylapse_connection::cmd;

use crate::connection::is_of_unknown_command;
use crate::counted;
use crate::error::Result;
use crate::escape::escape_line;
use crate::text::quoted;
use crate::wire::missing_flags;

use super::codes::{self, Code};
use super::examination::ServerExamination;
use super::rights::{MissingRight, Need};

/// The fields of INFO by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

/// The line of INFO in which a primary describes a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicaLine {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) state: String,
    /// The offset up to which the replica has acknowledged all writes.
    pub(super) offset: u64,
    /// The seconds since that acknowledgement.
    pub(super) lag: u64,
}

impl Info {
    pub(super) fn read(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(super) fn is_sentinel(&self) -> bool {
        // Redis uses the first name, Valkey the second.
        ["redis_mode", "server_mode"].iter().any(|name| self.get(name) == Some("sentinel"))
    }

    pub(super) fn is_replica(&self) -> bool {
        self.get("role") == Some("slave")
    }

    /// Returns kind and version of the server, for people.
    pub(super) fn kind(&self) -> String {
        match (self.get("valkey_version"), self.get("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "neither Redis nor Valkey".to_owned(),
        }
    }

    /// Returns whether the version is sufficient: Redis 7.0 or later, or Valkey, which reports a Redis version of 7.2.
    /// Returns `None` for another program.
    pub(super) fn is_new_enough(&self) -> Option<bool> {
        let major =
            self.get("redis_version").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.map(|major| major >= 7)
    }

    /// Returns the number of keys with a TTL in a database.
    pub(super) fn volatile_keys(&self, db: i64) -> u64 {
        let line = self.get(&format!("db{db}")).unwrap_or_default();
        field(line, "expires").and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    pub(super) fn replicas(&self) -> Vec<ReplicaLine> {
        let lines = (0_u32..).map_while(|place| self.get(&format!("slave{place}")));
        lines.filter_map(ReplicaLine::read).collect()
    }
}

impl ReplicaLine {
    fn read(line: &str) -> Option<Self> {
        let number = |name| field(line, name).and_then(|value| value.parse().ok());
        Some(Self {
            host: field(line, "ip")?.to_owned(),
            port: field(line, "port")?.parse().ok()?,
            state: field(line, "state")?.to_owned(),
            offset: number("offset").unwrap_or_default(),
            lag: number("lag").unwrap_or_default(),
        })
    }
}

/// Returns a field of a line such as `a=1,b=2`.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

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

/// Reads settings. Most managed services refuse CONFIG; then a heartbeat key shows whether events arrive, and INFO has the
/// other facts.
pub(super) async fn read(case: &mut ServerExamination) -> Result<()> {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg(&NAMES[..]);
    match case.ask("reading settings", &get).await? {
        Ok(settings) => case.settings = keylapse_connection::from_redis_value(settings).ok(),
        // The server has no CONFIG, so no permission is missing.
        Err(error) if is_of_unknown_command(&error) => case.has_no_config = true,
        Err(error) => {
            case.refusals.push(MissingRight::new(Need::Settings, "+'config|get'", &error.to_string()));
        }
    }
    if let Some(service) = case.service() {
        case.add_finding(&codes::SERVICE, service.name);
    }
    Ok(())
}

/// Checks the flags of expired events, if the setting can be read. Otherwise the heartbeat key shows whether events arrive.
pub(super) fn flags(case: &mut ServerExamination) {
    let Some(flags) = case.setting("notify-keyspace-events").map(str::to_owned) else { return };
    let missing = missing_flags(&flags);
    if missing.is_empty() {
        return;
    }
    let code = if case.takes_writes() { codes::FLAGS_MISSING } else { codes::REPLICA_FLAGS };
    // The flags can contain a dollar sign, and the text comes from a server.
    let all = quoted(&escape_line(&format!("{flags}{missing}"), 100));
    case.add_finding_with(&code, format!("notify-keyspace-events is '{flags}'"), &[("flags", &all)]);
}

/// A quarter of the server's default. It has room for about 80,000 expiries at the same time.
const MIN_PUBSUB_HARD_LIMIT: u64 = 8 << 20;
/// A quarter of the server's default.
const MIN_PUBSUB_SOFT_LIMIT: u64 = 2 << 20;
/// Enough for several answers of 1 MiB, or for one timer with the largest payload. It is also the minimum for all clients
/// together.
const MIN_OUTPUT_BUFFER_BYTES: u64 = 16 << 20;
/// Enough for a request with the largest payload.
const MIN_REQUEST_LIMIT_BYTES: u64 = 16 << 20;
/// An idle listener sends a command every few seconds, because it sweeps.
const MIN_IDLE_TIMEOUT_SECS: u64 = 10;

pub(super) fn buffers(case: &mut ServerExamination) {
    let is_small = |limit: u64, least| limit > 0 && limit < least;
    for (class, code, least) in [
        ("pubsub", &codes::BUFFER_SMALL, (MIN_PUBSUB_HARD_LIMIT, MIN_PUBSUB_SOFT_LIMIT)),
        ("normal", &codes::ANSWERS_CUT, (MIN_OUTPUT_BUFFER_BYTES, MIN_OUTPUT_BUFFER_BYTES)),
    ] {
        let limits = case.setting("client-output-buffer-limit").and_then(|setting| of_class(setting, class));
        if let Some((hard, soft)) =
            limits.filter(|(hard, soft)| is_small(*hard, least.0) || is_small(*soft, least.1))
        {
            case.add_finding(code, format!("client-output-buffer-limit {class} {hard} {soft}"));
        }
    }
    let memory = case.info.number("maxmemory").unwrap_or_default();
    if let Some(setting) = case.setting("maxmemory-clients")
        && of_clients(setting, memory).is_some_and(|limit| is_small(limit, MIN_OUTPUT_BUFFER_BYTES))
    {
        case.add_finding(&codes::CLIENTS_EVICTED, format!("maxmemory-clients {setting}"));
    }
    for name in ["proto-max-bulk-len", "client-query-buffer-limit"] {
        if let Some(limit) = case.number(name).filter(|limit| is_small(*limit, MIN_REQUEST_LIMIT_BYTES)) {
            let fields = [("setting", name), ("bytes", &MIN_REQUEST_LIMIT_BYTES.to_string())];
            case.add_finding_with(&codes::REQUESTS_CUT, format!("{name} {limit}"), &fields);
        }
    }
    if let Some(seconds) = case.number("timeout").filter(|seconds| is_small(*seconds, MIN_IDLE_TIMEOUT_SECS))
    {
        case.add_finding(&codes::IDLE_CLOSED, format!("timeout {seconds}"));
    }
}

/// Returns the hard and the soft limit of a class in bytes. 0 means no limit.
fn of_class(setting: &str, class: &str) -> Option<(u64, u64)> {
    let mut words = setting.split_whitespace().skip_while(|word| *word != class).skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Returns a limit in bytes, given as bytes or as a percentage of `memory`. 0 means no limit.
fn of_clients(setting: &str, memory: u64) -> Option<u64> {
    match setting.strip_suffix('%') {
        None => setting.parse().ok(),
        Some(percent) => Some(memory / 100 * percent.parse::<u64>().ok()?),
    }
}

/// The percentage of used memory from which memory is nearly full.
const NEARLY_FULL_PERCENT: u64 = 90;

/// Checks memory and its policy. It reads INFO, which more users may read than CONFIG.
pub(super) fn eviction(case: &mut ServerExamination) {
    let limit = case.info.number("maxmemory").unwrap_or_default();
    if limit == 0 {
        return;
    }
    let policy = case.info.get("maxmemory_policy").unwrap_or("noeviction").to_owned();
    let observed = format!("maxmemory {limit}, maxmemory-policy {policy}");
    if policy.starts_with("allkeys") {
        case.add_finding(&codes::EVICTS_ALL, observed);
    } else if policy != "noeviction" {
        case.add_finding(&codes::EVICTS_VOLATILE, observed);
    }
    let used = case.info.number("used_memory").unwrap_or_default();
    if u128::from(used) * 100 >= u128::from(limit) * u128::from(NEARLY_FULL_PERCENT) {
        let enough = enough(case);
        case.add_finding_with(
            &codes::NEARLY_FULL,
            format!("{used} of {limit} bytes of memory are used"),
            &[("bytes", &enough)],
        );
    }
}

/// Returns twice the memory limit or the used memory in bytes, whichever is larger.
pub(super) fn enough(case: &ServerExamination) -> String {
    let bytes = |name| case.info.number(name).unwrap_or_default();
    bytes("maxmemory").max(bytes("used_memory")).saturating_mul(2).to_string()
}

pub(super) fn persistence(case: &mut ServerExamination) {
    let Some(log) = case.info.number("aof_enabled") else { return };
    disk(case, log != 0);
    if log == 0 {
        let (code, observed) = without_log(case.setting("save"));
        return case.add_finding(&code, observed);
    }
    match case.setting("appendfsync").unwrap_or("unknown").to_owned() {
        always if always == "always" => {}
        when => case.add_finding(&codes::SYNCED_EACH_SECOND, format!("appendonly yes, appendfsync {when}")),
    }
    if !case.has_finding(&[codes::EVICTS_ALL, codes::EVICTS_VOLATILE, codes::DISK_FAILS]) {
        let policy = case.info.get("maxmemory_policy").unwrap_or("unknown").to_owned();
        case.add_finding(&codes::KEPT, format!("appendonly yes, maxmemory-policy {policy}"));
    }
}

/// Returns the finding for a server without a log of writes. Only CONFIG shows whether it writes snapshots.
fn without_log(save: Option<&str>) -> (Code, String) {
    match save {
        None => (codes::SNAPSHOTS_ONLY, "appendonly no; the setting of snapshots cannot be read".to_owned()),
        Some("") => (codes::NOT_PERSISTENT, "appendonly no, save ''".to_owned()),
        Some(save) => (codes::SNAPSHOTS_ONLY, format!("appendonly no, save '{save}'")),
    }
}

fn disk(case: &mut ServerExamination, log: bool) {
    let mut states = vec!["rdb_last_bgsave_status"];
    if log {
        states.extend(["aof_last_write_status", "aof_last_bgrewrite_status"]);
    }
    let fails = |name: &&str| case.info.get(name).is_some_and(|state| state != "ok");
    let failing: Vec<_> = states.into_iter().filter(fails).collect();
    if !failing.is_empty() {
        case.add_finding(&codes::DISK_FAILS, format!("{} is not ok", failing.join(", ")));
    }
}

/// How many bytes a replica may be behind. It acknowledges writes once a second, so a busy primary is always some bytes
/// ahead.
const MAX_BYTES_BEHIND: u64 = 1 << 20;
const MAX_SILENCE_SECS: u64 = 5;

pub(super) fn replication(case: &mut ServerExamination) {
    if case.info.is_replica() {
        let link = case.info.get("master_link_status").unwrap_or("unknown").to_owned();
        if link != "up" {
            case.add_finding(
                &codes::REPLICA_LAGS,
                format!("the link to the primary is {}", escape_line(&link, 20)),
            );
        }
        return;
    }
    let ahead = case.info.number("master_repl_offset").unwrap_or_default();
    let replicas = case.info.replicas();
    for replica in &replicas {
        if let Some(observed) = lag(replica, ahead) {
            case.add_finding(&codes::REPLICA_LAGS, observed);
        }
    }
    if !replicas.is_empty() && case.setting("min-replicas-to-write") == Some("0") {
        case.add_finding(
            &codes::REPLICAS_UNASKED,
            format!("{}, min-replicas-to-write 0", counted(replicas.len() as u64, "replica")),
        );
    }
}

/// Describes a replica that is behind. Returns `None` for one that is up to date.
fn lag(replica: &ReplicaLine, ahead: u64) -> Option<String> {
    let ReplicaLine { host, port, state, offset, lag } = replica;
    let behind = ahead.saturating_sub(*offset);
    let (host, state) = (escape_line(host, 100), escape_line(state, 20));
    (state != "online" || behind > MAX_BYTES_BEHIND || *lag > MAX_SILENCE_SECS).then(|| {
        format!(
            "{host}:{port} is {state}, {} behind, without acknowledgement for {lag} s",
            counted(behind, "byte")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_recognized() {
        for (text, kind, enough) in [
            ("redis_version:7.0.15\r\n", "Redis 7.0.15", Some(true)),
            ("redis_version:6.2.5\r\n", "Redis 6.2.5", Some(false)),
            ("redis_version:8.2.3\r\n", "Redis 8.2.3", Some(true)),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n",
                "Valkey 9.1.2",
                Some(true),
            ),
            ("redis_version:255.255.255\r\n", "Redis 255.255.255", Some(true)),
            ("dragonfly_version:df\r\n", "neither Redis nor Valkey", None),
            ("redis_version:seven\r\n", "Redis seven", None),
        ] {
            let info = Info::read(text);
            assert_eq!((&*info.kind(), info.is_new_enough()), (kind, enough), "{text}");
        }
    }

    #[test]
    fn databases_and_replicas_are_read() {
        let info = Info::read(
            "# Replication\r\nrole:master\r\n\
             slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=1\r\n\
             slave1:ip=::1,port=6381,state=wait_bgsave,offset=0,lag=0\r\n\
             db0:keys=9,expires=7,avg_ttl=100,subexpiry=0\r\n",
        );
        assert_eq!((info.volatile_keys(0), info.volatile_keys(1)), (7, 0));
        let replicas = info.replicas();
        assert_eq!((replicas.len(), replicas[0].port, &*replicas[1].host), (2, 6380, "::1"));
        assert_eq!((replicas[0].offset, replicas[0].lag, &*replicas[1].state), (14, 1, "wait_bgsave"));
    }

    #[test]
    fn the_limits_of_a_class_are_found_among_the_others() {
        let all = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(of_class(all, "pubsub"), Some((33_554_432, 8_388_608)));
        assert_eq!(of_class(all, "normal"), Some((0, 0)));
        assert_eq!(of_class("normal 0 0 0", "pubsub"), None);
        assert_eq!(of_class("pubsub 32mb 8mb 60", "pubsub"), None);
    }

    #[test]
    fn the_limit_of_all_clients_is_bytes_or_a_share_of_the_memory() {
        assert_eq!(of_clients("1048576", 0), Some(1 << 20));
        assert_eq!(of_clients("5%", 1000), Some(50));
        assert_eq!(of_clients("5%", 0), Some(0));
        assert_eq!(of_clients("all", 1000), None);
    }

    #[test]
    fn a_replica_may_be_a_second_behind() {
        let replica = |state: &str, offset, lag| ReplicaLine {
            host: "h".to_owned(),
            port: 1,
            state: state.to_owned(),
            offset,
            lag,
        };
        let ahead = 10 << 20;
        for (one, well) in [
            (replica("online", ahead, 0), true),
            (replica("online", ahead - 1000, 1), true),
            (replica("online", ahead - (2 << 20), 0), false),
            (replica("online", ahead, 6), false),
            (replica("wait_bgsave", ahead, 0), false),
        ] {
            assert_eq!(lag(&one, ahead).is_none(), well, "{one:?}");
        }
    }
}
