//! The imitated services. docs/providers.md has the sources.

use super::{Provider, Refusal, Scripts, Shape};

const UNKNOWN: Refusal = Refusal::Error("ERR unknown command '{}', with args beginning with: ");
/// The error for a user without the permission.
const NO_RIGHT: Refusal = Refusal::Error("NOPERM this user has no permissions to run the '{}' command");

const NO_EVENTS: &[(&str, &str)] = &[("notify-keyspace-events", "")];
const CACHE: &[(&str, &str)] = &[("maxmemory", "100mb"), ("maxmemory-policy", "volatile-lru")];

/// Proxies without pub/sub support scripts, and commands with keys.
const PROXIED: &str = "ACL, CLIENT, CLUSTER, CONFIG, DEBUG, EVALSHA_RO, EVAL_RO, EXEC, HELLO, INFO, MULTI, \
    PEXPIRETIME, PSUBSCRIBE, PUBLISH, RENAME, ROLE, SCAN, SCRIPT, SELECT, SPUBLISH, SSUBSCRIBE, \
    SUBSCRIBE, TIME, WAIT, WAITAOF";

/// The refusals of Redis Software and Redis Cloud. Azure's service is built on Redis Software.
const ENTERPRISE: &str = "ACL DELUSER, ACL GENPASS, ACL LOAD, ACL LOG, ACL SAVE, ACL SETUSER, CLIENT GETREDIR, \
    CLIENT NO-EVICT, CLIENT PAUSE, CLUSTER MYID, CONFIG RESETSTAT, DEBUG, LATENCY, \
    MEMORY STATS, MIGRATE, REPLICAOF, ROLE, SELECT, SHUTDOWN, SWAPDB";

pub(super) const ALL: &[Provider] = &[
    Provider {
        name: "elasticache-serverless",
        shape: Shape::Cluster,
        settings: NO_EVENTS,
        refuses: "ACL DELUSER, ACL LOAD, ACL LOG, ACL SAVE, ACL SETUSER, BGSAVE, CONFIG, DEBUG, MIGRATE, \
            PSUBSCRIBE, PUNSUBSCRIBE, REPLICAOF, SAVE, SHUTDOWN, SYNC",
        refusal: UNKNOWN,
        most_words: Some(3999),
        scripts: Scripts::Declared,
    },
    Provider {
        name: "elasticache-nodes",
        shape: Shape::One,
        settings: &[],
        refuses: "ACL DELUSER, ACL LOAD, ACL SAVE, ACL SETUSER, BGREWRITEAOF, BGSAVE, CONFIG, DEBUG, MIGRATE, \
            PSYNC, REPLICAOF, SAVE, SHUTDOWN, SLAVEOF, SYNC",
        refusal: UNKNOWN,
        most_words: None,
        scripts: Scripts::Free,
    },
    Provider {
        name: "memorydb",
        shape: Shape::Cluster,
        settings: NO_EVENTS,
        refuses: "ACL DELUSER, ACL LOAD, ACL SAVE, ACL SETUSER, BGREWRITEAOF, BGSAVE, CONFIG, DEBUG, MIGRATE, \
            MODULE, PSYNC, REPLICAOF, SAVE, SHUTDOWN, SLAVEOF, SYNC",
        refusal: UNKNOWN,
        most_words: None,
        scripts: Scripts::Free,
    },
    Provider {
        name: "memorystore",
        shape: Shape::One,
        settings: CACHE,
        refuses: "ACL, BGREWRITEAOF, BGSAVE, CLIENT NO-EVICT, CONFIG GET, CONFIG SET, DEBUG, MIGRATE, \
            REPLICAOF, SAVE, SHUTDOWN, SYNC",
        refusal: NO_RIGHT,
        most_words: None,
        scripts: Scripts::Free,
    },
    Provider {
        name: "redis-enterprise",
        shape: Shape::Shards,
        settings: &[],
        refuses: "ACL DELUSER, ACL GENPASS, ACL LOAD, ACL LOG, ACL SAVE, ACL SETUSER, CLIENT GETREDIR, \
            CLIENT NO-EVICT, CLIENT PAUSE, CLUSTER, CONFIG RESETSTAT, DEBUG, LATENCY, MEMORY STATS, \
            MIGRATE, REPLICAOF, ROLE, SELECT, SHUTDOWN, SWAPDB",
        refusal: UNKNOWN,
        most_words: None,
        scripts: Scripts::Free,
    },
    Provider {
        name: "azure-managed-redis",
        shape: Shape::Cluster,
        settings: &[],
        refuses: ENTERPRISE,
        refusal: UNKNOWN,
        most_words: None,
        scripts: Scripts::Free,
    },
    Provider {
        name: "upstash",
        shape: Shape::One,
        settings: &[],
        refuses: "ACL DRYRUN, ACL LOG, CLIENT NO-EVICT, CLIENT TRACKING, CLUSTER, DEBUG, MIGRATE, REPLICAOF, \
            ROLE, SHUTDOWN, SPUBLISH, SSUBSCRIBE, SUNSUBSCRIBE, WAITAOF",
        refusal: UNKNOWN,
        most_words: None,
        scripts: Scripts::Free,
    },
    Provider {
        name: "envoy",
        shape: Shape::One,
        settings: &[],
        refuses: PROXIED,
        refusal: UNKNOWN,
        most_words: None,
        scripts: Scripts::Unseen,
    },
    Provider {
        name: "twemproxy",
        shape: Shape::One,
        settings: &[],
        refuses: PROXIED,
        refusal: Refusal::Close,
        most_words: None,
        scripts: Scripts::Unseen,
    },
];
