//! Configuration files that are accepted, and errors of those that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Creates a folder with a secret.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    secret(&folder, 0o600);
    folder
}

fn secret(folder: &tempfile::TempDir, mode: u32) {
    let path = folder.path().join("secret");
    fs::write(&path, SECRET).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn webhook(topic: &str, more: &str) -> String {
    format!(
        "[topics.a]\n{topic}\n[topics.a.webhook]\nurl = \"https://shop.example/a\"\nsecret = {{ file = \"secret\" }}\n{more}\n"
    )
}

fn refused(text: &str) -> String {
    Config::parse(text, folder().path()).expect_err(text).to_string()
}

#[test]
fn ten_lines_are_enough() {
    let text = webhook("attach = \"order:unpaid:{id}\"", "");
    assert!(text.lines().count() <= 10);
    let config = Config::parse(&text, folder().path()).unwrap();
    assert_eq!(config.topics.len(), 1);
    assert!(matches!(config.topics[0].source, TopicSource::Attached(_)));
}

#[test]
fn unknown_settings_are_refused_with_line_and_suggestion() {
    let attach = "attach = \"a:{id}\"";
    for (text, said) in [
        (
            webhook("attach = \"a:{id}\"\nkeep-value = 5", ""),
            "line 3: unknown setting keep-value; do you mean keep-values?",
        ),
        (
            webhook("attach = \"a:{id}\"\nkeep_values = 5", ""),
            "line 3: unknown setting keep_values; do you mean keep-values?",
        ),
        (webhook(attach, "time-out = \"5s\""), "line 6: unknown setting time-out; do you mean timeout?"),
        (
            format!("grcae = \"5s\"\n{}", webhook(attach, "")),
            "line 1: unknown setting grcae; do you mean grace?",
        ),
    ] {
        assert_eq!(refused(&text), said, "{text}");
    }
}

#[test]
fn values_of_another_kind_are_refused_with_their_line() {
    let attach = "attach = \"a:{id}\"";
    for (text, line, said) in [
        (webhook(attach, "timeout = 5"), 6, "a length of time in quotes"),
        (webhook(attach, "timeout = \"5 parsecs\""), 6, "invalid length of time"),
        (webhook("attach = \"a:{id}\"\nkeep-values = \"4 furlongs\"", ""), 3, "invalid size"),
        (webhook("attach = \"a:{id}\"\nkeep-values = -1", ""), 3, "negative"),
        (webhook("attach = \"a:{id}\"\nvalue-format = \"xml\"", ""), 3, "`json`, `text`, `base64`"),
        (webhook("attach = \"a:{id\"", ""), 2, "a:{id"),
        (webhook("attach = 5", ""), 2, "string"),
        ("[topics.a\n".to_owned(), 1, ""),
    ] {
        let error = Config::parse(&text, folder().path()).expect_err(&text);
        assert_eq!(error.line(), Some(line), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_value_instead_of_a_table_is_refused_with_the_settings_of_the_table() {
    let topic = "pattern = \"a:{id}\"";
    for (text, expected) in [
        ("topics.a = 5".to_owned(), "[topics.NAME]"),
        (format!("[topics.a]\n{topic}\nretry = 5"), "{ every = \"…\" }"),
        (format!("[topics.a]\n{topic}\ndead-letters = 5"), "{ count = …, age = \"…\" }"),
        (format!("[topics.a]\n{topic}\nwebhook = 5"), "[topics.NAME.webhook]"),
        (format!("[topics.a]\n{topic}\nforward = 5"), "[topics.NAME.forward]"),
        (format!("[topics.a]\n{topic}\nexec = 5"), "[topics.NAME.exec]"),
        (webhook(topic, "previous-secret = 5"), "{ file = \"…\" } or { env = \"…\" }"),
        (webhook(topic, "circuit = 5"), "{ failures = …, open-for = \"…\" }"),
    ] {
        let error = refused(&text);
        assert!(error.contains("expected a table") && error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_can_never_work_is_refused() {
    let attach = "attach = \"a:{id}\"";
    let url = |url: &str| webhook(attach, "").replace("https://shop.example/a", url);
    for (text, said) in [
        (String::new(), "topics"),
        ("[topics]\n".to_owned(), "no topic"),
        ("[topics.a]\nattach = \"a:{id}\"\n".to_owned(), "[topics.a.webhook], .forward or .exec"),
        (webhook("", ""), "either `attach`"),
        (webhook("attach = \"a:{id}\"\npattern = \"a:{id}\"", ""), "either `attach`"),
        (
            webhook("pattern = \"a:{id}\"\nkeep-values = 5", ""),
            "keep-values is a setting of topics with `attach`",
        ),
        (
            webhook("attach = \"a:{id}\"\nmarker-keys = true", ""),
            "marker-keys is a setting of topics with `pattern`",
        ),
        (webhook("attach = \"a:{id}\"\nretry = { every = \"1s\", to = \"2s\" }", ""), "retry is"),
        (url("https:///a"), "URL"),
        (url("shop.example/a"), "invalid URL"),
        (url("ftp://shop.example/a"), "only http: and https:"),
        (url("https://user:hunter2@shop.example/"), "name or password"),
        (url("https://shop.example/{id}"), "needs `hosts`"),
        (url("https://shop.example/{id"), "not closed"),
        (url("https://shop.example/{nr}\"\nhosts = [\"shop.example\"]\n#"), "the pattern's captures are: id"),
        (url("https://evil.example/{id}\"\nhosts = [\"shop.example\"]\n#"), "not among `hosts`"),
        (url("https://shop.example/{id}\"\nhosts = [\"*.example\"]\n#"), "invalid host"),
        (url("http://127.0.0.1/"), "private to this machine"),
        (url("http://127.0.0.1/{id}\"\nhosts = [\"127.0.0.1\"]\n#"), "private to this machine"),
        (url("{payload.url}\"\nhosts = [\"shop.example\", \"0x7f.1:8080\"]\n#"), "private to this machine"),
        (
            url("{payload.url}\"\nhosts = [\"168.63.129.16\"]\nallow-addresses = [\"168.0.0.0/8\"]\n#"),
            "168.63.129.16",
        ),
        (
            url("{payload.url}\"\nhosts = [\"[::1]\"]\nallow-addresses = [\"127.0.0.1\"]\n#"),
            "private to this machine",
        ),
        (url("http://[::ffff:169.254.169.254]/"), "list the address by itself in `allow-addresses`"),
        (webhook(attach, "hosts = [\"shop.example\"]"), "with {…} in it"),
        (webhook(attach, "allow-addresses = [\"localhost\"]"), "invalid address"),
        (webhook(attach, "headers = { host = \"a\" }"), "keylapse sets the header"),
        (webhook(attach, "headers = { Transfer-Encoding = \"chunked\" }"), "keylapse sets the header"),
        (webhook(attach, "headers = { \"a b\" = \"a\" }"), "invalid header name"),
        (webhook(attach, "headers = { a = \"a\\nb\" }"), "invalid value of the header"),
        (webhook(attach, "headers = { a = { } }"), "{ file"),
        (webhook(attach, "headers = { a = { file = \"secret\", env = \"A\" } }"), "{ file"),
        (webhook(attach, "headers = { a = { fiel = \"secret\" } }"), "{ file"),
        (webhook(attach, "headers = { a = 5 }"), "{ file"),
        (webhook(attach, "headers = { a = { file = \"nowhere\" } }"), "nowhere"),
        (webhook(attach, "headers = { a = { env = \"KEYLAPSE_NO_SUCH\" } }"), "KEYLAPSE_NO_SUCH"),
        (webhook(attach, "headers = { host = { file = \"secret\" } }"), "keylapse sets the header"),
        (webhook(attach, "previous-secret = { }"), "{ file"),
        (webhook(attach, "previous-secret = { file = \"nowhere\" }"), "nowhere"),
        (webhook(attach, "previous-secret = { env = \"KEYLAPSE_NO_SUCH\" }"), "KEYLAPSE_NO_SUCH"),
        (webhook(attach, "ca-file = \"secret\""), "no certificate"),
    ] {
        let error = refused(&text);
        assert!(error.contains(said), "{said}: {error}");
        assert!(!error.contains("hunter2") && !error.contains(SECRET), "{error}");
    }
}

#[test]
fn a_secret_that_everybody_reads_is_refused() {
    let folder = folder();
    secret(&folder, 0o644);
    let error = Config::parse(&webhook("attach = \"a:{id}\"", ""), folder.path()).unwrap_err();
    assert!(error.to_string().contains("chmod o="), "{error}");
}

#[test]
fn what_stands_in_a_header_comes_from_a_file_that_not_everybody_reads() {
    let text = webhook(
        "attach = \"a:{id}\"",
        "headers = { authorization = { file = \"token\" }, x-path = { env = \"PATH\" }, x-shop = \"1\" }",
    );
    let (folder, path) = (folder(), |folder: &tempfile::TempDir| folder.path().join("token"));
    let parse = |token: &str, mode: u32| {
        fs::write(path(&folder), token).unwrap();
        fs::set_permissions(path(&folder), fs::Permissions::from_mode(mode)).unwrap();
        Config::parse(&text, folder.path()).map_err(|error| error.to_string())
    };
    let config = parse("Bearer hunter2\n", 0o640).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    for (token, mode, said) in [
        ("Bearer hunter2\n", 0o644, "chmod o="),
        ("Bearer\nhunter2\n", 0o640, "invalid value of the header authorization"),
        ("\n", 0o640, "token is empty"),
    ] {
        let error = parse(token, mode).unwrap_err();
        assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
    }
    let long = parse(&"a".repeat(9000), 0o640).unwrap_err();
    assert!(long.contains("8 KiB"), "{long}");
}

/// Every user can read most configuration files, which then must not hold secrets.
#[test]
fn headers_that_hold_secrets_are_named_where_everybody_reads_the_file() {
    let headers = "headers = { Authorization = \"Bearer hunter2\", x-shop = \"1\", X-Api-Key = \"hunter2\", cookie = { env = \"PATH\" } }";
    let (folder, text) = (folder(), webhook("attach = \"a:{id}\"", headers));
    let path = folder.path().join("keylapse.toml");
    fs::write(&path, text).unwrap();
    for (mode, named) in [(0o600, &[][..]), (0o640, &[]), (0o644, &["a: Authorization", "a: X-Api-Key"])] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Config::read(&path).unwrap().exposed_headers(), named, "{mode:o}");
    }
}

#[test]
fn what_is_out_of_proportion_is_refused() {
    let attach = "attach = \"a:{id}\"";
    let topic = |setting: &str| webhook(&format!("{attach}\n{setting}"), "");
    let other = |table: &str| format!("[topics.a]\n{attach}\n{table}");
    for (text, said) in [
        (format!("concurrency = 0\n{}", webhook(attach, "")), "concurrency = 0: write 1 to 100000"),
        (format!("grace = \"2h\"\n{}", webhook(attach, "")), "grace = 7200s: write 0ns to 3600s"),
        (topic("concurrency = 0"), "concurrency = 0"),
        (topic("partitions = 0"), "partitions = 0"),
        (topic("partitions = 5000"), "partitions = 5000"),
        (topic("max-attempts = 0"), "max-attempts = 0"),
        (topic("max-age = \"0s\""), "max-age = 0ns"),
        (topic("lease = \"0s\""), "lease = 0ns"),
        (topic("retry = { every = \"0s\" }"), "retry = 0ns: write 10ms"),
        (topic("retry = { after = [\"1s\", \"0s\"] }"), "retry = 0ns"),
        (topic("retry = { from = \"2s\", to = \"1s\" }"), "retry is"),
        (topic("retry = { every = \"9000d\" }"), "retry = "),
        (topic("dead-letters = { count = 1, age = \"0s\" }"), "dead-letters.age = 0ns"),
        (
            topic("journal = { count = 1, age = \"1h\", pause-when-full = true }"),
            "pause-when-full is a setting of dead-letters",
        ),
        (webhook(attach, "timeout = \"0s\""), "timeout = 0ns: write 10ms to 600s"),
        (webhook(attach, "timeout = \"1h\""), "timeout = 3600s"),
        (webhook(attach, "per-host = 0"), "per-host = 0"),
        (webhook(attach, "circuit = { failures = 0, open-for = \"1s\" }"), "circuit.failures = 0"),
        (webhook(attach, "circuit = { failures = 1, open-for = \"0s\" }"), "circuit.open-for = 0ns"),
        (other("forward = { list = \"\" }"), "either `list` or `stream`"),
        (other("forward = { list = \"a\", stream = \"b\" }"), "either `list` or `stream`"),
        (other("forward = { list = \"a\", max-length = 0 }"), "max-length = 0: write 1"),
        (other("forward = { list = \"a\", deduplicate-for = \"1s\" }"), "deduplicate-for = 1s: write 60s"),
        (
            other("value-format = \"text\"\nexec = { argv = [\"a\"] }"),
            "value-format is a setting of topics with .webhook or .forward",
        ),
        (other("exec = { argv = [] }"), "a program and its arguments"),
        (other("exec = { argv = [\"\"] }"), "a program and its arguments"),
        (other("exec = { argv = [\"a\\u0000\"] }"), "a program and its arguments"),
        (other("exec = { argv = [\"a\"], env = { \"a=b\" = \"c\" } }"), "invalid environment variable"),
        (other("exec = { argv = [\"a\"], timeout = \"0s\" }"), "timeout = 0ns"),
        (other("exec = { argv = [\"a\"], max-output = \"1GiB\" }"), "invalid size"),
        (other("exec = { argv = [\"a\"], max-output = \"2MiB\" }"), "max-output = 2097152"),
        (other("exec = { argv = [\"a\"], shell = true }"), "unknown setting `shell`"),
    ] {
        let error = refused(&text);
        assert!(error.contains(said), "{said}: {error}");
    }
}

/// Further deliveries to a URL would only wait for a slot of its host.
#[test]
fn of_one_url_no_more_run_than_its_host_has_places() {
    let most = |settings: &str, webhook_settings: &str| {
        let text = webhook(&format!("attach = \"a:{{id}}\"\n{settings}"), webhook_settings);
        let config = Config::parse(&text, folder().path()).unwrap();
        config.topics[0].delivery.most_at_once()
    };
    assert_eq!(most("", ""), Some(100));
    assert_eq!(most("concurrency = 300", ""), Some(300));
    assert_eq!(most("concurrency = 300", "per-host = 7"), Some(7));
}

/// The listener that would be built detects that both patterns match the same keys.
#[test]
fn two_topics_with_one_pattern_are_refused() {
    let text = "[topics.a]\nattach = \"a:{id}\"\nexec = { argv = [\"a\"] }\n[topics.b]\npattern = \"a:{nr}\"\nexec = { argv = [\"a\"] }\n";
    let config = Config::parse(text, folder().path()).unwrap();
    let error = crate::Relay::new(keylapse::Client::new("redis://127.0.0.1/").unwrap())
        .check(config)
        .unwrap_err()
        .to_string();
    assert!(error.contains("a:{id}") && error.contains("a:{nr}"), "{error}");
}

const WHOLE: &str = r#"
concurrency = 500
grace = "20s"
manage-notifications = true
[topics.orders]
attach = "order:{id}"
keep-values = "4KiB"
retry = { from = "1s", to = "10m" }
max-attempts = 9
dead-letters = { count = 10, age = "7d", pause-when-full = true }
[topics.orders.webhook]
url = "https://shop.example/{id}?a={payload.a}"
hosts = ["shop.example"]
secret = { file = "secret" }
headers = { authorization = "Bearer x" }
allow-addresses = ["10.0.0.0/8"]
circuit = { failures = 3, open-for = "1m" }
[topics.jobs]
pattern = "job:{id}"
value-format = "text"
marker-keys = false
forward = { list = "jobs", max-length = 10, deduplicate-for = "1h" }
[topics.ends]
pattern = "end:{id}"
exec = { argv = ["/bin/true", "x"], env = { A = "b" }, timeout = "5s", max-output = 512 }
"#;

proptest::proptest! {
    /// No change of the file causes a panic.
    #[test]
    fn no_file_makes_it_panic(at in 0..WHOLE.len(), length in 0..40usize, text in r#"\PC{0,12}|[\[\]{}="'\n0-9a-z.:-]{0,12}"#) {
        let end = (at + length).min(WHOLE.len());
        let text = format!("{}{text}{}", &WHOLE[..at], &WHOLE[end..]);
        let folder = std::env::temp_dir();
        let _ = Config::parse(&text, &folder).map_err(|error| error.to_string());
    }
}

#[test]
fn all_settings_together_are_taken() {
    let config = Config::parse(WHOLE, folder().path()).unwrap();
    assert_eq!(config.topics.len(), 3);
    crate::Relay::new(keylapse::Client::new("redis://127.0.0.1/").unwrap()).check(config).unwrap();
}
