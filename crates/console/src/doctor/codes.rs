//! The table of all findings. Codes never change; docs/findings.md has a section for each.

use serde::Serialize;

use super::report::Severity;

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Code {
    /// `K` and three digits. The first digit is the group: 1 servers, 2 permissions, 3 events, 4 memory and disk, 5
    /// lateness, 6 topics. A code that ends in `00` means that the group has no fault.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// A short title.
    pub title: &'static str,
    /// The consequences.
    pub meaning: &'static str,
    /// The command line that corrects the fault, with `{names}` as placeholders. It is empty if no action is needed.
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

/// Returns all kinds of findings, sorted by code.
pub fn codes() -> &'static [Code] {
    ALL
}

codes! {
    ANSWERS = "K100" Info, "the server answers",
        "This is its kind, version and role.", "";
    UNREACHABLE = "K101" Error, "the server cannot be reached",
        "Producers fail and listeners wait until the server can be reached.",
        "{cli} PING";
    LOGIN_REFUSED = "K102" Error, "the server refuses the login",
        "The user or the password is wrong, or the user is off.",
        "{cli} ACL SETUSER {user} on '>PASSWORD'";
    TOO_OLD = "K103" Error, "the server is too old, or another program",
        "keylapse needs scripts with flags, sharded pub/sub and PEXPIRETIME, which Redis has since 7.0. All versions \
         of Valkey have them.",
        "install Redis 7.0 or later, or Valkey, {there}";
    REPLICA_GIVEN = "K104" Error, "the URL names a replica",
        "A replica accepts no writes and announces no expired keys: arms fail, and listeners receive no events.",
        "keylapse -u {primary} doctor";
    LOST = "K105" Error, "the server became unavailable during the examination",
        "The remaining checks are missing. A server that is unavailable again and again delays timers each time.",
        "{cli} INFO server";
    REPLICA_UNSEEN = "K106" Info, "a replica cannot be examined from here",
        "This machine cannot reach the address that the primary has for it, so its settings are unknown. They apply \
         after a failover.",
        "{cli} CONFIG GET notify-keyspace-events";
    CLOCKS_DIFFER = "K107" Warning, "the clocks of the server and this machine differ",
        "Deadlines are times of the server's clock. If a program sets a time of day, its timer is off by the \
         difference. Delays are not affected.",
        "{where}timedatectl set-ntp true";
    CLOCK_STEPS = "K108" Warning, "the server's clock has jumped",
        "After a jump, timers fire and leases end early or late.",
        "{where}timedatectl set-ntp true";
    NO_TLS = "K109" Warning, "the connection to another machine has no TLS",
        "Anyone on the network path can read passwords and payloads, and forge expiries.",
        "keylapse -u {url} doctor";
    NO_LUA = "K110" Error, "scripts do not run",
        "Each call of keylapse runs a script, so no call works.",
        "take rename-command EVAL out of the server's configuration, and restart it";
    NO_SHARDED = "K111" Warning, "the server has no sharded pub/sub",
        "Listeners receive no notice of new timers. A sweep finds them, up to five seconds late.",
        "{cli} SPUBLISH {namespace}:doctor ''";
    NO_WRITES = "K112" Error, "the server refuses writes",
        "Its memory is full, it cannot write to its disk, or it lacks replicas. Arms are refused.",
        "{cli} {line}";
    ANSWERS_CUT = "K113" Warning, "large answers are cut off",
        "The server closes the connection instead of sending a large answer. keylapse repeats claims and pages for \
         operators in smaller parts.",
        "{cli} CONFIG SET client-output-buffer-limit 'normal 0 0 0'";
    CLIENTS_EVICTED = "K114" Warning, "the server closes connections to save memory",
        "All clients together have little memory. The server closes the connections with the largest requests and \
         answers.",
        "{cli} CONFIG SET maxmemory-clients 0";
    REQUESTS_CUT = "K115" Warning, "large requests are refused",
        "The server refuses them or closes the connection, so timers with a large payload cannot be armed.",
        "{cli} CONFIG SET {setting} {bytes}";
    IDLE_CLOSED = "K116" Info, "idle connections are closed",
        "A call that finds its connection closed is repeated on a new one, some milliseconds later.",
        "{cli} CONFIG SET timeout 0";
    SERVICE = "K117" Info, "a service runs the server",
        "Settings, users and versions are changed with the tools of the service, which the findings name.", "";
    LOADING = "K118" Error, "the server loads its data",
        "It refuses all calls until its data is loaded, so no other check is possible.",
        "{cli} INFO persistence";
    SLOTS_UNSERVED = "K119" Error, "the cluster does not serve all slots",
        "Calls for keys in those slots are refused. While the cluster is down, all calls are refused.",
        "{cli} CLUSTER {line}";
    WRONG_URL = "K120" Error, "the URL does not match the server",
        "Its scheme, its database or the name of its primary is wrong for this server. No other check is possible.",
        "keylapse -u {url} doctor";
    NO_PASSWORD = "K121" Error, "the server requires a password",
        "Neither the URL nor the environment has one.",
        "{variable}=PASSWORD keylapse -u {url} doctor";

    RIGHTS_FINE = "K200" Info, "the user has the permissions that timers need",
        "Each command was tried, or checked with ACL DRYRUN.", "";
    COMMANDS_REFUSED = "K201" Error, "the user lacks commands that timers need",
        "Calls fail, some of them in the middle of a script, because scripts are subject to the same rules.",
        "{cli} ACL SETUSER {user} {rules}";
    KEYS_REFUSED = "K202" Error, "the user may not use keylapse's keys",
        "The names of all keys of keylapse begin with the namespace.",
        "{cli} ACL SETUSER {user} '~{namespace}:*'";
    EVENTS_REFUSED = "K203" Error, "the user may not subscribe to expired keys",
        "Timers still fire on time. Expiries of keys that other programs write are missed.",
        "{cli} ACL SETUSER {user} {rules}";
    WAKE_UPS_REFUSED = "K204" Warning, "the user may not publish or receive notices of new timers",
        "A sweep finds new timers, up to five seconds late.",
        "{cli} ACL SETUSER {user} {rules}";
    ATTACHED_REFUSED = "K205" Info, "the user may not attach to keys of other programs",
        "Only attached topics need these commands, which find and read such keys.",
        "{cli} ACL SETUSER {user} {rules}";
    LOOKS_REFUSED = "K206" Info, "the user may not read settings",
        "Checks of settings were left out, or replaced by a trial. No timer needs this permission.",
        "{cli} ACL SETUSER {user} {rules}";
    FORWARDING_REFUSED = "K207" Info, "the user may not forward due timers",
        "Only `forward` needs these commands, which write to a list or a stream.",
        "{cli} ACL SETUSER {user} {rules}";
    DATABASE_REFUSED = "K208" Error, "the user may not use the database",
        "The URL selects a database that the user's ACL does not include, so the server refuses each command.",
        "{cli} ACL SETUSER {user} db={db}";

    EVENTS_RECEIVED = "K300" Info, "expired keys are announced",
        "The event of a key of 1 ms arrived: flags, permissions, channel and network work.", "";
    FLAGS_MISSING = "K301" Error, "expired keys are not announced",
        "Without the flags Ex the server publishes no expired events. Timers still fire on time. Expiries of keys \
         that other programs write are missed.",
        "{cli} CONFIG SET notify-keyspace-events {flags}";
    CANARY_NOT_RECEIVED = "K302" Error, "no event of an expired key arrived",
        "A key of 1 ms has expired, and no event arrived. Possible causes are the flags, a proxy and a paused expiry.",
        "{cli} {line}";
    REPLICA_FLAGS = "K303" Warning, "a replica would not announce expired keys",
        "Each server has its own setting. When this replica becomes the primary, events end.",
        "{cli} CONFIG SET notify-keyspace-events {flags}";
    BUFFER_SMALL = "K304" Warning, "subscribers have a small output buffer",
        "When many keys expire at the same time, the server disconnects listeners, and they miss events.",
        "{cli} CONFIG SET client-output-buffer-limit 'pubsub 33554432 8388608 60'";

    KEPT = "K400" Info, "memory and disk keep timers",
        "No timer is evicted, and timers survive a restart.", "";
    EVICTS_ALL = "K401" Error, "the server may evict timers",
        "When memory is full, this policy deletes keylapse's indexes and records. Timers are lost without an error.",
        "{cli} CONFIG SET maxmemory-policy noeviction";
    EVICTS_VOLATILE = "K402" Warning, "the server may evict keys with a TTL",
        "An evicted key never expires, so its expiry is missed. Timers of managed topics still fire; keys of attached \
         topics do not.",
        "{cli} CONFIG SET maxmemory-policy noeviction";
    NOT_PERSISTENT = "K403" Warning, "the server writes nothing to disk",
        "A restart loses all timers.",
        "{cli} CONFIG SET appendonly yes";
    SNAPSHOTS_ONLY = "K404" Warning, "the server writes only snapshots to disk",
        "A crash loses timers that were armed since the last snapshot, and restores timers that were cancelled since.",
        "{cli} CONFIG SET appendonly yes";
    SYNCED_EACH_SECOND = "K405" Info, "the disk is up to a second behind",
        "A crash of the machine loses the last one or two seconds of acknowledged writes. `always` avoids that, but \
         each batch of writes costs a flush.",
        "{cli} CONFIG SET appendfsync always";
    DISK_FAILS = "K406" Error, "the server cannot write to its disk",
        "It will soon refuse writes, and a restart restores the last state on disk. Free disk space first.",
        "{cli} BGSAVE";
    REPLICA_LAGS = "K407" Warning, "a replica is behind",
        "A failover to it loses the writes that it lacks.",
        "{cli} INFO replication";
    REPLICAS_UNASKED = "K408" Info, "writes do not wait for replicas",
        "A primary that has lost its replicas accepts writes that a failover loses.",
        "{cli} CONFIG SET min-replicas-to-write 1";
    NEARLY_FULL = "K409" Warning, "memory is nearly full",
        "At the limit, arms are refused. Armed timers still run.",
        "{cli} CONFIG SET maxmemory {bytes}";

    PLAIN_PREDICTED = "K500" Info, "plain expired events arrive soon",
        "This is the predicted worst case for keys that no program reads. It depends on the number of keys with a \
         TTL.", "";
    PLAIN_LATE = "K501" Warning, "plain expired events arrive late",
        "The server announces a key when its expiry cycle finds it, in the worst case after all other keys with a \
         TTL. keylapse reads keys when they are due, and does not depend on that. Programs that only subscribe do.",
        "{cli} CONFIG SET {faster}";
    MEASURED = "K502" Info, "lateness was measured",
        "Some keys were not read at all. Others were read just after their deadlines, as keylapse does.", "";
    PLAIN_NOT_RECEIVED = "K503" Warning, "plain expired events did not arrive in time",
        "Keys that no program read had expired, but the server had not found them by the end of the measurement. \
         Programs that only subscribe receive their events later.",
        "{cli} CONFIG SET {faster}";
    CHECKED_NOT_RECEIVED = "K504" Error, "events of keys that were read did not arrive",
        "When an expired key is read, the server announces it immediately. Here it did not, or the events were lost.",
        "{cli} INFO clients";

    TOPICS_FINE = "K600" Info, "topics are served",
        "Each topic with timers has a listener, and no timer is late.", "";
    OVERDUE_UNSERVED = "K601" Error, "timers are overdue and no listener serves them",
        "They run when a listener of the topic starts.",
        "keylapse listeners";
    UNSERVED = "K602" Warning, "a topic has timers and no listener",
        "No listener runs them. Usually a program was stopped, or a changed pattern has changed the name of the \
         topic.",
        "keylapse listeners";
    OVERDUE = "K603" Warning, "timers are overdue",
        "The listeners of the topic are too slow: all concurrency slots are in use, a partition is parked, or the \
         server is slow.",
        "keylapse status {topic}";
    ORPHANS = "K604" Warning, "an index has timers without records",
        "Records were evicted, deleted by another program, or not written. Listeners delete such entries and count \
         them.",
        "keylapse verify {topic}";
    FEW_PARTITIONS = "K605" Warning, "a topic has few partitions for this cluster",
        "Only some of the primaries hold its timers. Use twice as many partitions as primaries.",
        "keylapse partitions {topic} --to {partitions}";
    OVERLAP = "K606" Warning, "an unserved topic overlaps with a served one",
        "Both patterns match some keys, and only the other topic has a listener. Usually the topic was renamed, and \
         its timers were left behind.",
        "keylapse ls {topic}";
    UNREADABLE = "K607" Error, "the data of a topic cannot be read",
        "Another program has written to keylapse's keys, or another version of keylapse has created the topic.",
        "keylapse {line}";
    PAUSED = "K608" Info, "a topic is paused",
        "Its timers are kept and can be armed, but listeners claim none.",
        "keylapse resume {topic}";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns heading and text of each section of docs/findings.md.
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

    /// Each kind of finding must occur on a real server.
    #[test]
    fn each_code_is_in_a_test_of_real_servers() {
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
