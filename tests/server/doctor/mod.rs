//! What the doctor finds: for each code a server, or a topic, that shows it, and one that does not.

mod advice;
mod impostor;
mod measured;
mod servers;
mod topics;
mod traces;
mod users;

use std::collections::BTreeSet;

use keylapse::Client;
use keylapse_console::Console;
use keylapse_console::doctor::{Diagnosis, Finding};
use keylapse_support::{Builder, Fsync, Server};

/// The doctor's answer at a URL.
async fn diagnose(url: &str) -> Diagnosis {
    Console::new(Client::new(url).unwrap()).doctor().await
}

/// The codes of what was found.
fn codes(diagnosis: &Diagnosis) -> BTreeSet<&'static str> {
    diagnosis.findings.iter().map(|finding| finding.code).collect()
}

fn find<'a>(diagnosis: &'a Diagnosis, code: &str) -> &'a Finding {
    let found = diagnosis.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("{code} is not among {:#?}", diagnosis.findings))
}

/// A server as `redis.conf` makes it, which keeps a log of writes.
fn well() -> Builder {
    Server::builder().aof(Fsync::EverySecond)
}

/// What is found of it, and nothing else.
const WELL: [&str; 7] = ["K100", "K200", "K300", "K400", "K405", "K500", "K600"];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_well_has_no_warning() {
    let server = well().start().await;
    for url in [server.app_url(), server.url()] {
        let diagnosis = diagnose(&url).await;
        assert_eq!(codes(&diagnosis), WELL.into(), "{:#?}", diagnosis.findings);
        assert_eq!((diagnosis.errors(), diagnosis.warnings()), (0, 0));
        assert!(diagnosis.lateness.heartbeat_ms.is_some_and(|ms| ms > 0.0));
        let summary = diagnosis.summary().to_string();
        assert!(summary.starts_with("errors=0 warnings=0 heartbeat_ms="), "{summary}");
        assert!(summary.ends_with("plain_late_p50_s=- plain_received=- checked_late_p99_ms=-"), "{summary}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diagnosis_is_json_for_programs() {
    let server = well().config("notify-keyspace-events", "Kg").start().await;
    let json = serde_json::to_value(diagnose(&server.url()).await).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let missing = findings.iter().find(|finding| finding["code"] == "K301").unwrap();
    assert_eq!(missing["severity"], "error");
    assert_eq!(missing["node"], server.door().to_string());
    assert!(
        missing["fix"].as_str().unwrap().ends_with("CONFIG SET notify-keyspace-events gKEx"),
        "{missing}"
    );
    assert!(json["lateness"]["heartbeat_ms"].is_null());
}
