//! The advice is followed to the letter.

use keylapse_console::doctor::{Diagnosis, Severity};
use keylapse_support::{Server, skipped_on_a_cluster};

use super::{diagnose, find, well};

/// What a shell makes of the line behind `redis-cli -h … -p …`.
fn words(fix: &str, server: &Server) -> Vec<String> {
    let door = server.door();
    let prefix = format!("redis-cli -h {} -p {} ", door.ip(), door.port());
    let tls = format!("{prefix}--tls ");
    let rest = fix.strip_prefix(&tls).or_else(|| fix.strip_prefix(&prefix));
    let rest = rest.unwrap_or_else(|| panic!("{fix:?} is no line for this server"));
    let mut words = vec![String::new()];
    for (place, part) in rest.split('\'').enumerate() {
        if place % 2 == 1 {
            words.last_mut().unwrap().push_str(part);
            continue;
        }
        assert!(!part.contains(['~', '&', '|', '*', '>']), "a shell would not take {fix:?} as it is meant");
        let mut pieces = part.split(' ');
        words.last_mut().unwrap().push_str(pieces.next().unwrap());
        words.extend(pieces.map(str::to_owned));
    }
    words
}

/// Runs the lines of what is worth mending, until there is nothing left, or nothing helps.
async fn follow(server: &Server, url: &str, least: Severity) -> Diagnosis {
    let mut diagnosis = diagnose(url).await;
    for _ in 0..6 {
        let bad: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.severity >= least).collect();
        if bad.is_empty() {
            break;
        }
        for finding in bad {
            server.cmd(&words(finding.fix.as_ref().unwrap(), server)).await;
        }
        diagnosis = diagnose(url).await;
    }
    diagnosis
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_server_is_well_once_the_advice_was_followed() {
    // As a server without a configuration file.
    let server =
        Server::builder().config("notify-keyspace-events", "").config("save", "3600 1").start().await;
    let first = diagnose(&server.url()).await;
    assert_eq!((first.errors(), first.warnings()), (1, 1), "{:#?}", first.findings);
    let last = follow(&server, &server.url(), Severity::Warning).await;
    assert_eq!((last.errors(), last.warnings()), (0, 0), "{:#?}", last.findings);
    find(&last, "K300");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_badly_set_up_is_well_once_the_advice_was_followed() {
    let server = [
        ("notify-keyspace-events", "Kg$"),
        ("maxmemory", "2mb"),
        ("maxmemory-policy", "allkeys-lru"),
        ("client-output-buffer-limit", "pubsub 1mb 1mb 60 normal 256kb 128kb 10"),
        ("maxmemory-clients", "4mb"),
        ("proto-max-bulk-len", "1mb"),
        ("client-query-buffer-limit", "1mb"),
    ];
    let server = server.iter().fold(Server::builder(), |server, (name, value)| server.config(name, value));
    let server = server.start().await;
    let many = "for n = 1, 5000 do redis.call('SET', '{many}' .. n, '', 'PX', 3600000) end";
    server.cmd(&["CONFIG", "SET", "maxmemory", "4mb"]).await;
    server.cmd(&["EVAL", many, "0"]).await;
    assert!(diagnose(&server.url()).await.warnings() >= 3);
    let last = follow(&server, &server.url(), Severity::Warning).await;
    assert_eq!((last.errors(), last.warnings()), (0, 0), "{:#?}", last.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_has_them_once_the_advice_was_followed() {
    if skipped_on_a_cluster("nobody is told where nodes are without rights") {
        return;
    }
    let server = well().start().await;
    server.cmd(&["ACL", "SETUSER", "poor", "on", ">poor", "+@connection", "-@dangerous"]).await;
    let url = server.url_for("poor", "poor");
    assert!(diagnose(&url).await.errors() > 0);
    let last = follow(&server, &url, Severity::Warning).await;
    assert_eq!((last.errors(), last.warnings()), (0, 0), "{:#?}", last.findings);
    find(&last, "K200");
}
