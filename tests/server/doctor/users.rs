//! Users that lack rights.

use keylapse::{ErrorKind, Listener, Schedule};
use keylapse_support::{Binary, Denial, Proxy, skipped, skipped_on_a_cluster};

use super::{codes, diagnose, find, well};
use crate::server::hostile::scene::{Tally, orders};
use crate::server::proxies::timers_run_through;
use crate::server::support::refusal;

/// What is taken away, the code that it shows, and what gives it back.
const LESS: [(&[&str], &str, &str); 10] = [
    (&["-hset", "-zscore"], "K201", "ACL SETUSER poor +zscore +hset"),
    (&["-exec"], "K201", "ACL SETUSER poor +exec"),
    (&["-multi"], "K201", "ACL SETUSER poor +multi"),
    (&["resetkeys", "~app:*"], "K202", "ACL SETUSER poor '~keylapse:*'"),
    (&["resetchannels", "&keylapse:*"], "K203", "ACL SETUSER poor +subscribe '&__keyevent@0__:expired'"),
    (&["-spublish"], "K204", "ACL SETUSER poor +spublish '&keylapse:*'"),
    (&["-ssubscribe"], "K204", "ACL SETUSER poor +ssubscribe +sunsubscribe '&keylapse:*'"),
    (&["-scan"], "K205", "ACL SETUSER poor +scan"),
    (&["-config|get"], "K206", "ACL SETUSER poor +config|get"),
    (&["-lpush", "-xadd"], "K207", "ACL SETUSER poor +lpush +xadd"),
];

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_found_by_trying() {
    let server = well().start().await;
    for (rules, code, fix) in LESS {
        let diagnosis = diagnose(&server.poor_user(rules).await).await;
        let finding = find(&diagnosis, code);
        let said = finding.fix.as_ref().unwrap().replace('\'', "");
        assert!(said.ends_with(&fix.replace('\'', "")), "{rules:?}: {said}");
        let is_bad = ["K201", "K202", "K203", "K204"].contains(&code);
        assert_eq!(codes(&diagnosis).contains("K200"), !is_bad, "{rules:?}: {:#?}", diagnosis.findings);
    }
    let whole = codes(&diagnose(&server.poor_user(&[]).await).await);
    assert!(LESS.iter().all(|(_, code, _)| !whole.contains(code)), "{whole:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_ask_for_rights_is_told_the_same() {
    let server = well().start().await;
    for (rules, code, _) in LESS {
        let rules = [rules, &["+acl|dryrun"]].concat();
        let diagnosis = diagnose(&server.poor_user(&rules).await).await;
        find(&diagnosis, code);
    }
    let whole = diagnose(&server.poor_user(&["+acl|dryrun"]).await).await;
    assert!(find(&whole, "K200").observed.ends_with("by ACL DRYRUN"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_settings_cannot_be_read_is_judged_by_trying() {
    let server = well().start().await;
    let url = server.poor_user(&["-config"]).await;
    let diagnosis = diagnose(&url).await;
    assert_eq!((diagnosis.errors(), diagnosis.warnings()), (0, 0), "{:#?}", diagnosis.findings);
    assert!(codes(&diagnosis).is_superset(&["K206", "K300"].into()));
    assert!(find(&diagnosis, "K500").observed.contains("cannot be read"));
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", ""]).await;
    let silent = codes(&diagnose(&url).await);
    assert!(silent.contains("K302") && !silent.contains("K301"), "{silent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_ask_for_info_is_judged_by_trying() {
    let server = well().start().await;
    let diagnosis = diagnose(&server.poor_user(&["-info", "-config"]).await).await;
    assert_eq!((diagnosis.errors(), diagnosis.warnings()), (0, 0), "{:#?}", diagnosis.findings);
    assert!(codes(&diagnosis).contains("K300") && !codes(&diagnosis).contains("K100"));
}

/// The finding where the URL selects a database that the user may not use.
async fn a_database_is_named(url: &str, db: u32) {
    let connected = Schedule::connect(url).await.map(|_| ()).expect_err("the database is refused");
    let listened = refusal(Listener::builder(url).on(orders(), Tally::default().handler())).await;
    for error in [connected, listened] {
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Permission, "{said}");
        assert!(said.contains(&format!("in database {db}: ")) && said.contains("db="), "{said}");
    }
    let diagnosis = diagnose(url).await;
    let finding = find(&diagnosis, "K208");
    assert!(finding.fix.as_ref().unwrap().ends_with(&format!(" db={db}")), "{finding}");
    let others: Vec<_> = codes(&diagnosis).into_iter().filter(|code| *code != "K100").collect();
    assert_eq!(others, ["K208"], "nothing else can be told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_the_user_may_not_use_is_named() {
    let server = well().start().await;
    let proxy = Proxy::before(&server).await;
    let anywhere = ["HELLO", "AUTH", "CLIENT", "INFO", "PING", "CLUSTER", "CONFIG"];
    proxy.deny(
        move |words| !anywhere.iter().any(|name| words[0].eq_ignore_ascii_case(name.as_bytes())),
        Denial::Error("NOPERM No permissions to access database"),
    );
    if !skipped_on_a_cluster("other slots are asked") {
        a_database_is_named(&proxy.app_url(), 0).await;
    }
}

/// Since 9.1.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_use_some_databases_of_valkey_alone_uses_them() {
    if skipped_on_a_cluster("there is one database") {
        return;
    }
    let servers = Binary::all().unwrap().into_iter().map(|binary| (binary.version(), binary));
    let able = |version: &keylapse_support::Version| version.is_valkey && version.number >= (9, 1, 0);
    let Some((_, binary)) = servers.into_iter().find(|(version, _)| able(version)) else {
        return skipped("no server at hand has users of databases: KEYLAPSE_SERVERS may name Valkey 9.1");
    };
    let server = well().binary(binary).start().await;
    let url = server.poor_user(&["&__keyevent@3__:expired", "db=3"]).await;
    a_database_is_named(&url, 0).await;
    a_database_is_named(&format!("{url}2"), 2).await;
    timers_run_through(&format!("{url}3")).await;
    find(&diagnose(&format!("{url}3")).await, "K200");

    server.cmd(&["ACL", "SETUSER", "poor", "db=0"]).await;
    find(&diagnose(&url).await, "K200");
}
