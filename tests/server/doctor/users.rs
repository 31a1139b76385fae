//! Users that lack rights.

use keylapse_support::{Server, app_user_line};

use super::{codes, diagnose, find, well};

/// A user like the one of `redis.conf`, with these rules besides.
async fn user(server: &Server, rules: &[&str]) -> String {
    let line =
        app_user_line().replace("user keylapse", "ACL SETUSER poor reset").replace(">change-me", ">poor");
    // Rights in selectors would survive what takes them away: here all are the user's own.
    let line = line.replace(['(', ')'], "");
    let words: Vec<_> = line.split(' ').chain(rules.iter().copied()).collect();
    server.cmd(&words).await;
    server.url_for("poor", "poor")
}

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
        let diagnosis = diagnose(&user(&server, rules).await).await;
        let finding = find(&diagnosis, code);
        let said = finding.fix.as_ref().unwrap().replace('\'', "");
        assert!(said.ends_with(&fix.replace('\'', "")), "{rules:?}: {said}");
        let is_bad = ["K201", "K202", "K203", "K204"].contains(&code);
        assert_eq!(codes(&diagnosis).contains("K200"), !is_bad, "{rules:?}: {:#?}", diagnosis.findings);
    }
    let whole = codes(&diagnose(&user(&server, &[]).await).await);
    assert!(LESS.iter().all(|(_, code, _)| !whole.contains(code)), "{whole:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_ask_for_rights_is_told_the_same() {
    let server = well().start().await;
    for (rules, code, _) in LESS {
        let rules = [rules, &["+acl|dryrun"]].concat();
        let diagnosis = diagnose(&user(&server, &rules).await).await;
        find(&diagnosis, code);
    }
    let whole = diagnose(&user(&server, &["+acl|dryrun"]).await).await;
    assert!(find(&whole, "K200").observed.ends_with("by ACL DRYRUN"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_settings_cannot_be_read_is_judged_by_trying() {
    let server = well().start().await;
    let url = user(&server, &["-config"]).await;
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
    let diagnosis = diagnose(&user(&server, &["-info", "-config"]).await).await;
    assert_eq!((diagnosis.errors(), diagnosis.warnings()), (0, 0), "{:#?}", diagnosis.findings);
    assert!(codes(&diagnosis).contains("K300") && !codes(&diagnosis).contains("K100"));
}
