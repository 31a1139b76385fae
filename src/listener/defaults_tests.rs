//! Tests that each default in the documentation is the one that is used.

use std::path::Path;
use std::time::Duration;

use crate::forward::ForwardTo;
use crate::policy::{FieldSelection, Policy, Treatment, WriteBackValue};
use crate::timers::Durably;
use crate::{Attached, Backoff, Client, Listener, Priority, Servers, Tls, Topic};

/// A setter, the text after "Default: " in its documentation, and whether that is the default.
type Row = (&'static str, &'static str, bool);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const DAY: Duration = secs(86_400);

fn topic() -> [Row; 17] {
    let config = Topic::<u32>::new("a:{id}").expect("a pattern").config;
    let retry = Backoff::exponential(secs(1), secs(600));
    let table = Topic::<u32>::new("a:{id}").expect("a pattern").retry(Backoff::table([secs(1); 3])).config;
    [
        (
            "retry",
            "exponential from 1 s to 10 min with full jitter",
            format!("{:?}", config.backoff) == format!("{retry:?}"),
        ),
        (
            "max_attempts",
            "as many as the backoff's table allows, or 10 without a table",
            (config.attempts(), Some(table.attempts())) == (10, table.backoff.attempts()),
        ),
        ("max_age", "30 days", config.max_age == DAY * 30),
        ("max_snoozes", "1,000", config.max_snoozes == 1000),
        ("max_delay", "10 years", config.max_delay == DAY * 3650),
        ("undecodable_retention", "1 h", config.undecodable_for == secs(3600)),
        ("timeout", "60 s", config.timeout == secs(60)),
        ("lease", "30 s", config.lease == secs(30)),
        ("lookahead", "10 ms", config.lookahead == Duration::from_millis(10)),
        ("concurrency", "100", config.concurrency == 100),
        ("priority", "`Priority::Normal`", config.priority == Priority::Normal),
        ("partitions", "1", config.partitions == 1),
        ("marker_keys", "`true`", config.marker_keys),
        ("payload_limit", "64 KiB", config.payload_limit == 64 * 1024),
        (
            "dead_letters",
            "10,000 for 90 days",
            (config.dead_letters.count, u128::from(config.dead_letters.age_ms))
                == (10_000, (DAY * 90).as_millis()),
        ),
        ("journal", "no journal", config.journal.is_none()),
        ("destinations", "none", config.destinations.is_none()),
    ]
}

fn listener() -> [Row; 3] {
    let builder = Listener::builder("redis://localhost/");
    [
        ("concurrency", "1,000", builder.settings.concurrency == 1000),
        ("grace", "10 s", builder.settings.grace == secs(10)),
        ("save_requests", "off", !builder.settings.saves_requests),
    ]
}

fn forward() -> [Row; 2] {
    let to = ForwardTo::list("jobs");
    [("max_length", "0, no limit", to.max_length == 0), ("deduplicate_for", "one day", to.remember == DAY)]
}

fn client() -> [Row; 4] {
    let client = Client::new("redis://localhost/").expect("a URL");
    let within = [Durably::replicas(1), Durably::fsync(0)].map(|durably| durably.within_ms);
    let longest = Durably::replicas(1).within(DAY).within_ms;
    [
        ("namespace", "`keylapse`", &*client.namespace == "keylapse"),
        ("answer_within", "5 s", client.answer_within == secs(5)),
        ("retry_for", "5 s", client.retry_for == secs(5)),
        ("within", "1 s, at most 4 s", within == [1000; 2] && longest == 4000),
    ]
}

fn servers() -> [Row; 9] {
    let sentinel = Servers::sentinel(["h"], "m").target.expect("sentinels");
    let tls = format!("{:?}", Tls::new());
    [
        ("user", "the server's default user", sentinel.options.login.user.is_none()),
        (
            "password",
            "the password of the environment, as for [`Client::new`], or none",
            sentinel.options.login.password.is_none(),
        ),
        ("database", "0", sentinel.options.db == 0),
        ("sentinel_user", "their default user", sentinel.sentinel_options.login.user.is_none()),
        (
            "sentinel_password",
            "the password of the environment, as for [`Client::new`], or none",
            sentinel.sentinel_options.login.password.is_none(),
        ),
        ("tls", "no TLS", sentinel.options.tls.is_none()),
        ("ca_file", "the platform's", tls.contains("ca_file: None")),
        ("client_certificate", "none", tls.contains("client: None")),
        ("server_name", "the host", tls.contains("server_name: None")),
    ]
}

fn attached() -> [Row; 12] {
    let topic = Attached::new(Topic::<u32>::new("a:{id}").expect("a pattern")).into_topic();
    let Some(policy) = topic.config.attach else { panic!("it is attached") };
    let Policy { revision, topic: treated, only_extended, cap, scan_rate, scan_every, .. } = policy;
    [
        ("keep_values", "no copies", treated.values == 0),
        ("keep_fields", "hashes are not copied", treated.fields == FieldSelection::None),
        ("untracked", "its handler runs", treated.untracked == Treatment::Fire),
        ("vanished", "it is ignored", treated.vanished == Treatment::Ignore),
        ("recovered", "its handler runs", treated.recovered == Treatment::Fire),
        (
            "write_back",
            "the key is not written, and retries exist only in keylapse's index",
            treated.write_back == WriteBackValue::Never,
        ),
        ("revision", "1", revision == 1),
        ("assume_ttl_only_extended", "each change is read", !only_extended),
        ("cap", "1,000,000", cap == 1_000_000),
        ("scan_rate", "50,000", scan_rate == 50_000),
        ("scan_every", "5 min", scan_every == secs(300)),
        ("destinations", "none", topic.config.destinations.is_none()),
    ]
}

#[test]
fn each_documented_default_is_so() {
    let rows: Vec<Row> = [&topic()[..], &listener(), &forward(), &client(), &servers(), &attached()].concat();
    for (setter, text, is_so) in &rows {
        assert!(is_so, "{setter}: the documentation has {text}");
    }
    let mut known: Vec<_> = rows.iter().map(|(setter, text, _)| format!("{setter}: {text}")).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "crates/connection/src", "crates/wire/src"];
    let mut documented: Vec<_> = folders.iter().flat_map(|folder| documented(&root.join(folder))).collect();
    known.sort();
    documented.sort();
    assert_eq!(documented, known, "the defaults of the documentation, and of this table");
}

/// Returns each "Default: …" in the documentation of a folder's public functions, with the function's name.
fn documented(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        // The servers of the test kit document their defaults where these are set.
        if path.is_dir() && !path.ends_with("testing") {
            found.extend(documented(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(defaults_in(&std::fs::read_to_string(&path).expect("a source")));
        }
    }
    found
}

fn defaults_in(source: &str) -> Vec<String> {
    let (mut found, mut doc) = (Vec::new(), String::new());
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push_str(text);
        } else if let Some(rest) = line.strip_prefix("pub fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            let text = doc.split_once("Default: ").map(|(_, rest)| rest.split(". ").next().unwrap_or(rest));
            found.extend(text.map(|text| format!("{name}: {}", text.trim_end_matches('.'))));
            doc.clear();
        } else if !line.starts_with("#[") {
            doc.clear();
        }
    }
    found
}
