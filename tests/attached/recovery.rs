//! Nobody listens for a while, or hears nothing: what is fired then, and as what.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use keylapse::Expiry;
use keylapse::attach::Treatment;
use keylapse::health::EventMode;
use keylapse_support::{Server, eventually};

use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, Run, Running, enrolled, enrolled_from, in_time, now, order,
    orders_with_values, server, until_later_key, until_time, until_watched, watched,
};

/// Writes so many orders that expire one after the other within a second from then.
pub(crate) async fn write_many(server: &Server, count: u64, from: u64) {
    let mut connection = server.conn().await;
    for chunk in (0..count).collect::<Vec<_>>().chunks(1000) {
        let mut pipeline = redis::pipe();
        for n in chunk {
            let deadline = from + n % 1000;
            pipeline.cmd("SET").arg(order(&n.to_string())).arg(n).arg("PXAT").arg(deadline).ignore();
        }
        pipeline.exec_async(&mut connection).await.unwrap();
    }
}

/// One command of the writer's for each of these orders.
async fn for_each(server: &Server, ids: std::ops::Range<u64>, command: &str, argument: Option<u64>) {
    let mut pipeline = redis::pipe();
    for id in ids {
        let one = pipeline.cmd(command).arg(order(&id.to_string()));
        argument.map(|argument| one.arg(argument));
        one.ignore();
    }
    pipeline.exec_async(&mut server.conn().await).await.unwrap();
}

pub(crate) fn by_key(notes: &Notes) -> HashMap<String, Vec<Run>> {
    let mut runs: HashMap<String, Vec<Run>> = HashMap::new();
    for run in notes.runs().iter() {
        runs.entry(run.key.clone()).or_default().push(run.clone());
    }
    runs
}

#[tokio::test]
async fn what_expires_while_nobody_listens_is_recovered_once() {
    const KEYS: u64 = 10_000;
    const DELETED: std::ops::Range<u64> = 0..500;
    const EXTENDED: std::ops::Range<u64> = 500..1000;
    const HOUR: u64 = 3_600_000;
    let harness = Harness::with(ALL_FLAGS, orders_with_values(), Notes::handler).await;
    let from = harness
        .notes
        .in_time(15_000, 3000, async |from| {
            write_many(&harness.server, KEYS, from).await;
            let all = i64::try_from(KEYS).unwrap();
            eventually(PATIENCE, "all to be enrolled", async || {
                enrolled_from(&harness.server, from).await == all
            })
            .await;
        })
        .await;
    let Harness { server, notes, listener, .. } = harness;
    listener.stop().await;
    assert_eq!(notes.count(), 0);

    for_each(&server, DELETED, "DEL", None).await;
    for_each(&server, EXTENDED, "PEXPIREAT", Some(from + HOUR)).await;
    until_time(from + 1000).await;
    // Reading a key makes the server announce that it has expired: now, to nobody.
    for_each(&server, 0..KEYS, "EXISTS", None).await;

    let listener = Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    let due = usize::try_from(KEYS - 500).unwrap();
    eventually(PATIENCE, "the overdue ones to fire", async || notes.count() >= due).await;
    eventually(PATIENCE, "the extended ones to be left", async || enrolled(&server).await == 500).await;
    for n in EXTENDED {
        assert!(notes.of(&order(&n.to_string())).is_empty(), "{n} was extended");
    }
    let later = now() + 3000;
    for_each(&server, EXTENDED, "PEXPIREAT", Some(later)).await;
    let all = usize::try_from(KEYS).unwrap();
    eventually(PATIENCE, "the extended ones to fire", async || notes.count() >= all).await;
    until_later_key(&server, &notes).await;

    let runs = by_key(&notes);
    for n in 0..KEYS {
        let of_key = &runs[&order(&n.to_string())];
        assert_eq!(of_key.len(), 1, "{of_key:?}");
        let run = &of_key[0];
        let (deadline, expiry) = if EXTENDED.contains(&n) {
            (later, Expiry::Announced)
        } else {
            (from + n % 1000, Expiry::Recovered)
        };
        assert_eq!((run.deadline, run.text(), run.attempt), (deadline, Some(&*n.to_string()), 1), "{run:?}");
        assert!(run.at >= deadline && run.deadline_known, "{run:?}");
        // A key that was deleted while nobody listened cannot be told from one that has expired.
        assert_eq!(run.expiry, expiry, "{run:?}");
    }
    assert_eq!(notes.count(), all + 1);
    // Those that wait for their notes in a gap of a busy machine are found gone once more.
    assert!(listener.attached().recovered >= KEYS - 500, "{:?}", listener.attached());
    listener.stop().await;
}

/// As locks want it: of what nobody heard, nobody knows whether it was released.
#[tokio::test]
async fn on_demand_nothing_fires_that_nobody_heard() {
    let topic = || orders_with_values().recovered(Treatment::Ignore);
    let harness = Harness::with(ALL_FLAGS, topic(), Notes::handler).await;
    let deadline = harness.enrol_and(&["expires", "is deleted"], "a sofa", 4000, async || {}).await;
    let Harness { server, notes, listener, .. } = harness;
    listener.stop().await;
    server.cmd(&["DEL", &order("is deleted")]).await;
    until_time(deadline + 5).await;
    // Announced now, to nobody.
    server.cmd(&["EXISTS", &order("expires")]).await;
    assert_eq!(notes.count(), 0, "{:?}", notes.runs());

    let listener = Running::start(&server, |builder| builder.attach(topic(), notes.handler()));
    eventually(PATIENCE, "both to be forgotten", async || enrolled(&server).await == 0).await;
    assert_eq!(listener.attached().not_recovered, 2);
    let heard = in_time(2000, 1000, async |deadline| {
        server.cmd(&["SET", &order("is heard"), "a desk", "PXAT", &deadline.to_string()]).await;
        until_watched(&server, "is heard", deadline, true).await;
    })
    .await;
    notes.until(1).await;
    until_later_key(&server, &notes).await;
    assert_eq!(notes.count(), 2, "{:?}", notes.runs());
    let run = notes.of(&order("is heard"))[0].clone();
    assert_eq!((run.text(), run.deadline, run.expiry), (Some("a desk"), heard, Expiry::Announced));
    assert_eq!(listener.attached().recovered, 0);
    listener.stop().await;
}

fn attached(builder: keylapse::ListenerBuilder, notes: &Notes) -> keylapse::ListenerBuilder {
    builder.attach(orders_with_values().scan_every(Duration::from_millis(300)), notes.handler())
}

async fn until_hearing(listener: &Running) {
    eventually(PATIENCE, "an anchor", async || listener.hears()).await;
}

#[tokio::test]
async fn a_listener_dies_and_the_other_goes_on() {
    for flags in [ALL_FLAGS, "Ex"] {
        let server = server(flags).await;
        let notes = Notes::default();
        let victim = Running::start(&server, |builder| attached(builder, &notes));
        // It is the one that scans, and enrols.
        eventually(PATIENCE, "a scan", async || victim.attached().scans > 0).await;
        let other = Running::start(&server, |builder| attached(builder, &notes));
        until_hearing(&victim).await;
        until_hearing(&other).await;
        let from = notes
            .in_time(4000, 1500, async |from| {
                write_many(&server, 1000, from).await;
                eventually(PATIENCE, "all to be enrolled", async || {
                    enrolled_from(&server, from).await == 1000
                })
                .await;
            })
            .await;
        until_time(from + 300).await;
        victim.kill();
        eventually(PATIENCE * 2, "all to have run", async || notes.are_of(1000)).await;
        until_later_key(&server, &notes).await;
        for (key, runs) in by_key(&notes) {
            let first = &runs[0];
            assert!(runs.iter().all(|run| run.at >= run.deadline && run.attempt == 1), "{runs:?}");
            // What it was running when it died runs again under the same id: at least once.
            assert!(runs.iter().all(|run| run.id == first.id), "{flags}: {key} {runs:?}");
            assert!(runs.iter().all(|run| run.expiry == Expiry::Announced), "{flags}: {key} {runs:?}");
        }
        other.stop().await;
    }
}

#[tokio::test]
async fn what_one_has_enrolled_fires_in_another() {
    for flags in [ALL_FLAGS, "Ex", ""] {
        let server = server(flags).await;
        let notes = Notes::default();
        let mut second = None;
        let deadline = in_time(8000, 1000, async |deadline| {
            server.cmd(&["SET", &order("1"), "a sofa", "PXAT", &deadline.to_string()]).await;
            let first = Running::start(&server, |builder| attached(builder, &Notes::default()));
            eventually(PATIENCE, "it to be enrolled", async || {
                watched(&server, &order("1")).await == Some(deadline)
            })
            .await;
            first.stop().await;
            let begun = Running::start(&server, |builder| attached(builder, &notes));
            if !flags.is_empty() {
                until_hearing(&begun).await;
            }
            second = Some(begun);
        })
        .await;
        let second = second.expect("it is begun");
        notes.until(1).await;
        let run = notes.runs()[0].clone();
        assert_eq!((run.text(), run.deadline), (Some("a sofa"), deadline), "{flags} {run:?}");
        let expected = if flags.is_empty() { Expiry::Recovered } else { Expiry::Announced };
        assert_eq!(run.expiry, expected, "{flags} {run:?}");
        assert!(run.at >= deadline);
        second.stop().await;
    }
}

#[tokio::test]
async fn with_flags_cleared_keys_are_recovered_until_they_are_set_again() {
    let topic = orders_with_values().scan_every(Duration::from_millis(300));
    let harness = Harness::with(ALL_FLAGS, topic, Notes::handler).await;
    harness.listener.until_mode(EventMode::Changes).await;
    let deadline = harness.enrol("1", "a sofa", 12_000).await;
    harness.cmd(&["CONFIG", "SET", "notify-keyspace-events", ""]).await;
    harness.listener.until_mode(EventMode::ScanOnly).await;
    // Written, and found by a scan, while nothing is heard.
    let blind = harness.enrol("2", "a lamp", 4000).await;
    let run = harness.fires_once("2", "a lamp", blind).await;
    assert_eq!(run.expiry, Expiry::Recovered);
    let run = harness.fires_once("1", "a sofa", deadline).await;
    assert_eq!(run.expiry, Expiry::Recovered);

    harness.cmd(&["CONFIG", "SET", "notify-keyspace-events", ALL_FLAGS]).await;
    harness.listener.until_mode(EventMode::Changes).await;
    let heard = harness.enrol("3", "a desk", 3000).await;
    let run = harness.fires_once("3", "a desk", heard).await;
    assert_eq!(run.expiry, Expiry::Announced);
    assert_eq!((harness.of("1").len(), harness.of("2").len()), (1, 1));
    harness.listener.stop().await;
}

#[tokio::test]
async fn the_mode_is_what_the_flags_say() {
    let harness = Harness::with("Ex", orders_with_values(), Notes::handler).await;
    for (flags, mode) in [
        ("KExg$", EventMode::Changes),
        ("KExg", EventMode::SomeChanges),
        ("KEx$", EventMode::SomeChanges),
        ("KEA", EventMode::Changes),
        ("Exg$", EventMode::Expired),
        ("Kxg$", EventMode::ScanOnly),
        ("Ex", EventMode::Expired),
    ] {
        harness.cmd(&["CONFIG", "SET", "notify-keyspace-events", flags]).await;
        println!("{flags}");
        harness.listener.until_mode(mode).await;
    }
    harness.listener.stop().await;
}

/// The user of redis.conf, with these rules besides.
async fn with_rules(flags: &str, rules: &[&str]) -> Harness {
    let server = server(flags).await;
    server.cmd(&[&["ACL", "SETUSER", keylapse_support::APP_USER], rules].concat()).await;
    let topic = orders_with_values().scan_every(Duration::from_millis(100));
    Harness::on(server, topic, Notes::handler).await
}

#[tokio::test]
async fn where_config_is_forbidden_canaries_decide() {
    let harness = with_rules(ALL_FLAGS, &["-config|get"]).await;
    harness.listener.until_mode(EventMode::Changes).await;
    let deadline = harness.enrol("1", "a sofa", 2000).await;
    assert_eq!(harness.fires_once("1", "a sofa", deadline).await.expiry, Expiry::Announced);
    harness.listener.stop().await;
}

#[tokio::test]
async fn where_changes_may_not_be_heard_expiries_are() {
    for rules in [
        &["-psubscribe"][..],
        &["resetchannels", "&keylapse:*", "&__keyevent@0__:expired"],
        // The topic's keys may be heard, canaries may not: nothing is proven.
        &["resetchannels", "&keylapse:*", "&__keyevent@0__:expired", "&__keyspace@0__:app:order:*"],
    ] {
        let harness = with_rules(ALL_FLAGS, rules).await;
        harness.listener.until_mode(EventMode::Expired).await;
        let deadline = harness.enrol("1", "a sofa", 2000).await;
        assert_eq!(harness.fires_once("1", "a sofa", deadline).await.expiry, Expiry::Announced, "{rules:?}");
        assert_eq!(harness.listener.stats.mode(), EventMode::Expired);
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn what_only_a_canary_may_prove_is_not_believed() {
    // Canaries may be heard, the topic's keys may not.
    let rules = [
        "resetchannels",
        "&keylapse:*",
        "&__keyevent@0__:expired",
        "&__keyspace@0__:keylapse:{heartbeat/0}:*",
    ];
    let harness = with_rules(ALL_FLAGS, &rules).await;
    harness.listener.until_mode(EventMode::Expired).await;
    harness.listener.stop().await;
}

/// Five seconds of silence come before the gap, and its deadline must come after: both modes at once.
#[tokio::test]
async fn an_expiry_that_is_heard_in_a_gap_fires_once() {
    let scene = async |flags| {
        let harness = with_rules(flags, &[]).await;
        let user = keylapse_support::APP_USER;
        let deadline = in_time(15_000, 1000, async |deadline| {
            harness.cmd(&["ACL", "SETUSER", user, "~keylapse:*"]).await;
            harness.write_until("1", "a sofa", deadline).await;
            harness.until_watched("1", deadline).await;
            // Everything goes on, but canaries cannot be made.
            harness.cmd(&["ACL", "SETUSER", user, "resetkeys", "~app:*", "~keylapse:{orders/0}:*"]).await;
            harness.listener.until_mode(EventMode::ScanOnly).await;
        })
        .await;
        eventually(PATIENCE, "it to fire", async || !harness.of("1").is_empty()).await;
        harness.cmd(&["ACL", "SETUSER", user, "~keylapse:*"]).await;
        eventually(PATIENCE, "an anchor", async || harness.listener.hears()).await;
        let run = harness.fires_once("1", "a sofa", deadline).await;
        assert!(matches!(run.expiry, Expiry::Ambiguous | Expiry::Recovered), "{flags}: {run:?}");
        harness.listener.stop().await;
    };
    join_all([ALL_FLAGS, "Ex"].map(scene)).await;
}
