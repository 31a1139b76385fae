//! Everything that the doctor can say: one table. Codes are kept for ever; docs/findings.md has a section for each.

use serde::Serialize;

use super::report::Severity;

/// One thing that the doctor can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Code {
    /// `K` and three digits. The first is the group: 1 the server, 2 rights, 3 events, 4 memory and disk, 5 lateness,
    /// 6 topics. What ends in `00` says that a group is well.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// In a few words.
    pub title: &'static str,
    /// What follows from it.
    pub meaning: &'static str,
    /// The line that mends it, with `{names}` for what differs; empty where nothing has to be done.
    pub fix: &'static str,
}

macro_rules! codes {
    ($($name:ident = $code:literal $severity:ident, $title:literal, $meaning:literal, $fix:literal;)*) => {
        $(
            pub(super) const $name: Code = Code {
                code: $code,
                severity: Severity::$severity,
                title: $title,
                meaning: $meaning,
                fix: $fix,
            };
        )*
        const ALL: &[Code] = &[$($name),*];
    };
}

/// Everything that the doctor can say, in the order of the codes.
pub fn codes() -> &'static [Code] {
    ALL
}

codes! {
    ANSWERS = "K100" Info, "the server answers",
        "Its kind, version and role.", "";
    UNREACHABLE = "K101" Error, "the server cannot be reached",
        "Nothing runs before it can be: producers fail, listeners wait.",
        "{cli} PING";
    LOGIN_REFUSED = "K102" Error, "the server refuses the login",
        "User or password are wrong, or the user is off.",
        "{cli} ACL SETUSER {user} on '>PASSWORD'";
    TOO_OLD = "K103" Error, "the server is too old, or another program",
        "keylapse needs scripts with flags, sharded pub/sub and PEXPIRETIME, which came with Redis 7.0; Valkey has them all.",
        "install Redis 7.0 or later, or Valkey, {there}";
    REPLICA_GIVEN = "K104" Error, "the URL names a replica",
        "A replica takes no writes and announces no expired keys: arms fail, and listeners hear nothing.",
        "keylapse -u {primary} doctor";
    LOST = "K105" Error, "the server went away while it was looked at",
        "What was not looked at is unknown. A server that comes and goes delays timers for as long as it is away.",
        "{cli} INFO server";
    REPLICA_UNSEEN = "K106" Info, "a replica cannot be looked at from here",
        "Its primary names it by an address to which there is no way from this machine, so its settings are unknown. \
         After a failover they count.",
        "{cli} CONFIG GET notify-keyspace-events";
    CLOCKS_DIFFER = "K107" Warning, "the server's clock is not this machine's",
        "Deadlines are times of the server's clock. A time of day that a program gives is off by the difference; delays \
         are not.",
        "{where}timedatectl set-ntp true";
    CLOCK_STEPS = "K108" Warning, "the server's clock has jumped",
        "Timers fire early or late by a jump of the clock, and so do leases end.",
        "{where}timedatectl set-ntp true";
    NO_TLS = "K109" Warning, "no TLS on the way to another machine",
        "Whoever is on the way reads passwords and payloads, and can forge expiries.",
        "keylapse -u {url} doctor";
    NO_LUA = "K110" Error, "scripts do not run",
        "Each call of keylapse is a script.",
        "take rename-command EVAL out of the server's configuration, and restart it";
    NO_SHARDED = "K111" Warning, "no sharded pub/sub",
        "Listeners are not told of new timers, and find them by looking: up to five seconds late.",
        "{cli} SPUBLISH {namespace}:doctor ''";
    NO_WRITES = "K112" Error, "the server takes no writes",
        "It is full, cannot write to its disk, or lacks replicas. Arms are refused.",
        "{cli} {line}";
    ANSWERS_CUT = "K113" Warning, "large answers are cut off",
        "The server closes the connection rather than answer: claims, and pages of what an operator looks at, are asked \
         for again, in smaller shares.",
        "{cli} CONFIG SET client-output-buffer-limit 'normal 0 0 0'";
    CLIENTS_EVICTED = "K114" Warning, "the server closes connections for their memory",
        "All clients together have little of it, and those with the largest requests and answers lose their connections.",
        "{cli} CONFIG SET maxmemory-clients 0";
    REQUESTS_CUT = "K115" Warning, "large requests are refused",
        "The server refuses them, or closes the connection: a large payload cannot be armed.",
        "{cli} CONFIG SET {setting} {bytes}";
    IDLE_CLOSED = "K116" Info, "idle connections are closed",
        "A call that finds its connection closed is made once more, on a new one: some milliseconds late.",
        "{cli} CONFIG SET timeout 0";
    SERVICE = "K117" Info, "a service runs the server",
        "Settings, users and versions are changed by its means there, which the findings name.", "";
    LOADING = "K118" Error, "the server loads its data",
        "It answers nobody before it is done. Nothing else can be looked at.",
        "{cli} INFO persistence";
    SLOTS_UNSERVED = "K119" Error, "the cluster does not serve all slots",
        "Calls about keys of those slots are refused, and all calls while the cluster is down.",
        "{cli} CLUSTER {line}";
    WRONG_URL = "K120" Error, "the URL does not fit what answers there",
        "Its scheme, its database or the name of its primary is another's. Nothing else can be looked at.",
        "keylapse -u {url} doctor";
    NO_PASSWORD = "K121" Error, "the server asks for a password",
        "Nobody has said one: neither the URL nor the environment.",
        "{variable}=PASSWORD keylapse -u {url} doctor";

    RIGHTS_FINE = "K200" Info, "the user may do all that keylapse does",
        "Each command was tried, or asked for by ACL DRYRUN.", "";
    COMMANDS_REFUSED = "K201" Error, "the user may not run commands that timers need",
        "Calls fail half-way: scripts are checked by the same rules.",
        "{cli} ACL SETUSER {user} {rules}";
    KEYS_REFUSED = "K202" Error, "the user may not use our names",
        "All that keylapse keeps has names that begin so.",
        "{cli} ACL SETUSER {user} '~{namespace}:*'";
    EVENTS_REFUSED = "K203" Error, "the user may not hear expired keys",
        "Timers still fire in time, but keys that other programs write expire unseen.",
        "{cli} ACL SETUSER {user} {rules}";
    WAKE_UPS_REFUSED = "K204" Warning, "the user may not tell or hear of new timers",
        "Listeners find them by looking: up to five seconds late.",
        "{cli} ACL SETUSER {user} {rules}";
    ATTACHED_REFUSED = "K205" Info, "the user may not attach to keys of other programs",
        "Only attached topics need it: commands that find and read such keys.",
        "{cli} ACL SETUSER {user} {rules}";
    LOOKS_REFUSED = "K206" Info, "the user may not look at settings",
        "What they say is unknown here, and was found out by trying or left out. No timer needs it.",
        "{cli} ACL SETUSER {user} {rules}";
    FORWARDING_REFUSED = "K207" Info, "the user may not hand on what is due",
        "Only `forward` needs it: commands that put something into a list or a stream.",
        "{cli} ACL SETUSER {user} {rules}";
    DATABASE_REFUSED = "K208" Error, "the user may not use the database",
        "The URL selects a database that the user's ACL does not have, and each command is refused there.",
        "{cli} ACL SETUSER {user} db={db}";

    EVENTS_RECEIVED = "K300" Info, "expired keys are announced",
        "A key of 1 ms was heard to expire: flags, rights, channel and network are well.", "";
    FLAGS_MISSING = "K301" Error, "expired keys are not announced",
        "Without the flags Ex the server says nothing. Timers still fire in time, but keys that other programs write \
         expire unseen.",
        "{cli} CONFIG SET notify-keyspace-events {flags}";
    CANARY_NOT_RECEIVED = "K302" Error, "an expired key was not heard",
        "A key of 1 ms has expired, and no event came. What may be the cause: the flags, a proxy, expiry that is paused.",
        "{cli} {line}";
    REPLICA_FLAGS = "K303" Warning, "a replica would not announce expired keys",
        "The setting is each server's own: when this one becomes the primary, events end.",
        "{cli} CONFIG SET notify-keyspace-events {flags}";
    BUFFER_SMALL = "K304" Warning, "subscribers have little room",
        "Where many keys expire at once the server cuts listeners off, and what it announces meanwhile is missed.",
        "{cli} CONFIG SET client-output-buffer-limit 'pubsub 33554432 8388608 60'";

    KEPT = "K400" Info, "memory and disk keep timers",
        "Nothing is evicted, and a restart brings timers back.", "";
    EVICTS_ALL = "K401" Error, "the server may evict timers",
        "When memory is full, this policy removes keylapse's index and records: timers are lost without a word.",
        "{cli} CONFIG SET maxmemory-policy noeviction";
    EVICTS_VOLATILE = "K402" Warning, "the server may evict keys that wait to expire",
        "An evicted key never expires, so nobody is told. Timers fire all the same; keys of attached topics do not.",
        "{cli} CONFIG SET maxmemory-policy noeviction";
    NOT_PERSISTENT = "K403" Warning, "nothing is kept on disk",
        "After a restart all timers are gone.",
        "{cli} CONFIG SET appendonly yes";
    SNAPSHOTS_ONLY = "K404" Warning, "only snapshots are kept on disk",
        "A crash loses what was armed since the last one, and brings back what was cancelled since.",
        "{cli} CONFIG SET appendonly yes";
    SYNCED_EACH_SECOND = "K405" Info, "the disk is up to a second behind",
        "A crash of the machine loses the last second of answered writes, or two. `always` closes that window, at the \
         price of a flush for each batch of writes.",
        "{cli} CONFIG SET appendfsync always";
    DISK_FAILS = "K406" Error, "the server cannot write to its disk",
        "It soon refuses writes, and a restart goes back to what was written last. Make room on the disk first.",
        "{cli} BGSAVE";
    REPLICA_LAGS = "K407" Warning, "a replica is behind",
        "A failover to it loses what it does not have.",
        "{cli} INFO replication";
    REPLICAS_UNASKED = "K408" Info, "writes do not wait for replicas",
        "A primary that has lost its replicas takes writes that a failover loses.",
        "{cli} CONFIG SET min-replicas-to-write 1";
    NEARLY_FULL = "K409" Warning, "memory is nearly full",
        "At the limit arms are refused; what is armed still runs.",
        "{cli} CONFIG SET maxmemory {bytes}";

    PLAIN_PREDICTED = "K500" Info, "plain expired events come soon",
        "The worst that is predicted for keys that nobody reads, from how many have a time to live.", "";
    PLAIN_LATE = "K501" Warning, "plain expired events come late",
        "The server announces a key when it happens to find it, after all others with a time to live in the worst case. \
         keylapse reads keys when they are due, and so does not wait for that; programs that only subscribe do.",
        "{cli} CONFIG SET {faster}";
    MEASURED = "K502" Info, "lateness was measured",
        "Keys that nobody reads, beside keys that were read just after their deadlines, as keylapse does.", "";
    PLAIN_NOT_RECEIVED = "K503" Warning, "plain expired events were not heard in time",
        "Keys that nobody read had expired, and the server had not found them when the time was over. Programs that only \
         subscribe hear of them later.",
        "{cli} CONFIG SET {faster}";
    CHECKED_NOT_RECEIVED = "K504" Error, "keys that were read were not heard",
        "Reading a key after its deadline has the server announce it at once. Here it did not, or the events got lost.",
        "{cli} INFO clients";

    TOPICS_FINE = "K600" Info, "topics are served",
        "Each topic that has timers has a listener, and none is late.", "";
    OVERDUE_UNSERVED = "K601" Error, "timers are overdue and nobody listens",
        "They run when a listener of the topic starts, and not before.",
        "keylapse listeners";
    UNSERVED = "K602" Warning, "a topic has timers and no listener",
        "Nobody will run them. Mostly a program was stopped, or its pattern was changed and the topic's name with it.",
        "keylapse listeners";
    OVERDUE = "K603" Warning, "timers are overdue",
        "The topic has listeners, and they do not keep up: places are taken, a partition is parked, or the server is slow.",
        "keylapse status {topic}";
    ORPHANS = "K604" Warning, "an index names timers without records",
        "Records were lost: evicted, deleted by somebody, or not written. Listeners remove such entries and count them.",
        "keylapse verify {topic}";
    FEW_PARTITIONS = "K605" Warning, "a topic has few partitions for this cluster",
        "It lies on some primaries only. Twice as many partitions as primaries spread it.",
        "keylapse partitions {topic} --to {partitions}";
    OVERLAP = "K606" Warning, "keys of a topic that nobody serves are another's, too",
        "Both patterns match some keys, and only the other has a listener. Mostly a topic was renamed and its timers were \
         left behind.",
        "keylapse ls {topic}";
    UNREADABLE = "K607" Error, "what is kept of a topic cannot be read",
        "Another program writes to our names, or another version of keylapse made it.",
        "keylapse {line}";
    PAUSED = "K608" Info, "a topic is paused",
        "Timers are kept and can be armed, and none is given out.",
        "keylapse resume {topic}";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The sections of docs/findings.md, and whether they say how bad it is.
    fn sections() -> Vec<(&'static str, &'static str)> {
        let page = include_str!("../../../../docs/findings.md");
        page.split("\n### ").skip(1).filter_map(|section| section.split_once('\n')).collect()
    }

    #[test]
    fn each_code_has_a_section_and_each_section_a_code() {
        let headings: Vec<_> = sections().iter().map(|(heading, _)| *heading).collect();
        let codes: Vec<_> = codes().iter().map(|code| format!("{}: {}", code.code, code.title)).collect();
        assert_eq!(headings, codes, "the headings of docs/findings.md, and the table, in the same order");
    }

    #[test]
    fn each_section_says_how_bad_it_is_and_what_to_do() {
        for (code, (_, text)) in codes().iter().zip(sections()) {
            let severity = format!("*{}.*", code.severity);
            assert!(text.trim_start().starts_with(&severity), "{} is {severity}", code.code);
            assert!(
                text.contains(&format!("`{}`", code.fix)) || code.fix.is_empty(),
                "{}: {}",
                code.code,
                code.fix
            );
        }
    }

    /// A name that no test has is a finding that nobody has seen.
    #[test]
    fn each_code_stands_in_a_test_of_real_servers() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
        let folder =
            std::fs::read_dir(root.join("server/doctor")).unwrap().map(|entry| entry.unwrap().path());
        let advice =
            ["cases.rs", "first.rs"].map(|file| root.join("../apps/cli/tests/commands/advice").join(file));
        let files = folder.chain([root.join("clusters/doctor.rs")]).chain(advice);
        let tests: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let unseen: Vec<_> = codes().iter().filter(|code| !tests.contains(code.code)).collect();
        assert!(unseen.is_empty(), "{unseen:?}");
    }

    #[test]
    fn codes_are_in_order_and_only_good_news_has_no_fix() {
        assert!(codes().is_sorted_by(|one, other| one.code < other.code));
        let titles: BTreeSet<_> = codes().iter().map(|code| code.title).collect();
        assert_eq!(titles.len(), codes().len());
        for code in codes() {
            assert!(!code.fix.is_empty() || code.severity == Severity::Info, "{} needs a fix", code.code);
        }
    }
}
