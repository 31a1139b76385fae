//! How late plain events are, measured.

use std::time::Duration;

use keylapse::Client;
use keylapse_console::Console;
use keylapse_console::doctor::Diagnosis;
use keylapse_support::Server;

use super::impostor::{Impostor, bulk};
use super::{codes, find, well};

const WINDOW: Duration = Duration::from_secs(4);

async fn measure(url: &str) -> Diagnosis {
    Console::new(Client::new(url).unwrap()).doctor().measure(WINDOW).await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_read_are_heard_whatever_the_server_finds_by_itself() {
    let server = well().start().await;
    let all = measure(&server.app_url()).await;
    let lateness = &all.lateness;
    assert_eq!((lateness.checked_received, lateness.checked_probes), (200, 200), "{:#?}", all.findings);
    assert_eq!(lateness.plain_probes, 200);
    find(&all, "K502");
    assert!(!codes(&all).contains("K504"));

    server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    let lazy = measure(&server.app_url()).await;
    let lateness = &lazy.lateness;
    assert_eq!((lateness.checked_received, lateness.plain_received), (200, 0), "{:#?}", lazy.findings);
    assert_eq!((lateness.plain_late_p50_s, lateness.checked_late_p99_ms.is_some()), (None, true));
    find(&lazy, "K503");
    assert!(
        lazy.summary().to_string().contains(" plain_late_p50_s=- plain_received=0/200 checked_late_p99_ms=")
    );
    assert_is_empty(&server).await;
}

/// What nobody reads is read in the end.
async fn assert_is_empty(server: &Server) {
    assert_eq!(server.cmd(&["DBSIZE"]).await, redis::Value::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_get_lost_though_keys_were_read_are_an_error() {
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n";
    let heard = ">3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:expired\r\n{key}:0\r\n";
    let impostor = Impostor::answering(&[
        ("INFO", &[&*bulk("redis_version:7.2.4\r\nrole:master\r\n")]),
        ("SUBSCRIBE", &[subscribed]),
        ("SET", &["+OK\r\n"]),
        ("EXISTS canary", &[heard]),
        ("EXISTS", &[":0\r\n"]),
    ])
    .await;
    let diagnosis = measure(&impostor.url()).await;
    find(&diagnosis, "K300");
    find(&diagnosis, "K504");
    assert_eq!((diagnosis.lateness.checked_received, diagnosis.lateness.checked_probes), (0, 200));
}
