//! Other people's values and commands: at the names of trigger keys, at our own,
//! and producers that believe something else. The index is the truth.

use std::time::Duration;

use futures::future::join_all;
use keylapse::stats::Stats;
use keylapse::timers::MarkerKey;
use keylapse::{Cancelled, Done, ErrorKind, Failure, Lapse, NewArm, Rescheduled, Schedule};
use keylapse_support::{Server, eventually, skipped_on_a_cluster};
use keylapse_wire::names::WIRE_VERSION;
use redis::Value;

use super::scene::{Scene, Tally, bytes, orders};
use crate::server::support::{PATIENCE, Running, gated, listener, refusal, reporting, server_and_schedule};

const SOON: Duration = Duration::from_millis(300);
const HOUR: Duration = Duration::from_secs(3600);

/// What other programs may keep at the names of triggers, of every kind.
const THEIRS: [(&str, &[&str]); 6] = [
    ("string", &["SET", "KEY", "theirs"]),
    ("empty", &["SET", "KEY", ""]),
    ("number", &["INCR", "KEY"]),
    ("hash", &["HSET", "KEY", "a", "1"]),
    ("list", &["RPUSH", "KEY", "a"]),
    ("stream", &["XADD", "KEY", "*", "a", "1"]),
];

/// Does this to a key; the answer.
async fn act_on(server: &Server, key: &str, deed: &[&str]) -> Value {
    server.cmd(&deed.iter().map(|word| if *word == "KEY" { key } else { word }).collect::<Vec<_>>()).await
}

async fn write_theirs(server: &Server) {
    for (kind, command) in THEIRS {
        act_on(server, &format!("app:order:{kind}"), command).await;
    }
}

/// Lets all of them but the number expire in a day: of a number nobody could tell whose it is.
async fn let_expire(server: &Server) {
    for (kind, _) in THEIRS.iter().filter(|(kind, _)| *kind != "number") {
        assert_eq!(server.cmd(&["PEXPIRE", &format!("app:order:{kind}"), "86400000"]).await, Value::Int(1));
    }
}

async fn dump(server: &Server) -> Vec<Option<Vec<u8>>> {
    let mut dumps = Vec::new();
    for (kind, _) in THEIRS {
        dumps.push(bytes(server.cmd(&["DUMP", &format!("app:order:{kind}")]).await));
    }
    dumps
}

/// At every step of a timer's life.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_keep_under_a_triggers_name_is_left_alone_and_its_timer_fires() {
    let (server, schedule) = server_and_schedule().await;
    write_theirs(&server).await;
    are_left_alone(&server, &schedule).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_keep_there_is_left_alone_though_it_expires() {
    let (server, schedule) = server_and_schedule().await;
    write_theirs(&server).await;
    let_expire(&server).await;
    are_left_alone(&server, &schedule).await;
}

async fn are_left_alone(server: &Server, schedule: &Schedule) {
    let topic = orders();
    let before = dump(server).await;
    assert!(before.iter().all(Option::is_some));
    let (handler, mut reported) = reporting(|lapse: Lapse<String>| {
        let retry = Failure::retry_after(Duration::from_millis(50), "once more");
        (lapse.attempt(), if lapse.attempt() == 1 { Err(retry) } else { Ok(Done) })
    });
    let running = Running::start(listener(server).on(topic.clone(), handler));
    for (kind, _) in THEIRS {
        let armed = schedule.arm(&topic, [kind], HOUR, &String::new()).await.unwrap();
        assert!(matches!(armed.receipt().unwrap().marker, MarkerKey::Taken), "{kind}: {armed:?}");
    }
    let arms = THEIRS.map(|(kind, _)| NewArm::new([kind], HOUR, String::new()));
    for armed in schedule.arm_many(&topic, arms).await.unwrap() {
        assert!(matches!(armed.unwrap().receipt().unwrap().marker, MarkerKey::Taken));
    }
    for (kind, _) in THEIRS {
        let moved = schedule.reschedule(&topic, [kind], Duration::from_millis(50)).await.unwrap();
        assert!(matches!(moved, Rescheduled::Rescheduled(_)));
    }
    let mut attempts = [0, 0];
    for _ in 0..2 * THEIRS.len() {
        attempts[reported.next().await as usize - 1] += 1;
    }
    assert_eq!(attempts, [THEIRS.len(); 2]);
    let counted = |stats: &Stats| stats.total().taken_markers == THEIRS.len() as u64;
    running.until("the retries' triggers to be counted", counted).await;
    running.stop().await.unwrap();
    for (kind, _) in THEIRS {
        let _ = schedule.arm(&topic, [kind], HOUR, &String::new()).await.unwrap();
        assert_eq!(schedule.cancel(&topic, [kind]).await.unwrap(), Cancelled::Cancelled);
    }
    assert_eq!(dump(server).await, before, "not a byte of theirs was touched");
}

/// What users do to a trigger key before its deadline, one timer each.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_a_trigger_key_its_timer_fires_once() {
    if skipped_on_a_cluster("RENAME, COPY and MOVE reach no other slot or database") {
        return;
    }
    let scene = Scene::new().await;
    let deeds: [&[&str]; 10] = [
        &["SET", "KEY", "theirs"],
        &["PERSIST", "KEY"],
        &["DEL", "KEY"],
        &["RENAME", "KEY", "app:order:renamed"],
        &["PEXPIRE", "KEY", "1"],
        &["PEXPIRE", "KEY", "3600000"],
        &["APPEND", "KEY", "junk"],
        &["GETEX", "KEY", "PERSIST"],
        &["COPY", "KEY", "app:order:copied"],
        &["MOVE", "KEY", "1"],
    ];
    for (n, deed) in deeds.iter().enumerate() {
        scene.arm(n.to_string(), SOON).await;
        let answer = act_on(&scene.server, &format!("app:order:{n}"), deed).await;
        assert_ne!(answer, Value::Nil, "{deed:?}");
    }
    scene.tally.until(deeds.len()).await;
    // Those that were renamed or copied expire, too, and mean nothing.
    let expired = async || {
        scene.server.cmd(&["EXISTS", "app:order:renamed", "app:order:copied"]).await == Value::Int(0)
    };
    eventually(PATIENCE, "the others to expire", expired).await;
    scene.proves_well("well").await;
    scene.tally.assert_each_once(deeds.len() + 1);
    scene.stop().await;
}

/// Ours expire. A trigger that its user has persisted is a number like any other,
/// and somebody may count with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_persisted_trigger_key_is_its_users_from_then_on() {
    let scene = Scene::new().await;
    scene.arm("1", HOUR).await;
    scene.server.cmd(&["PERSIST", "app:order:1"]).await;
    scene.arm("1", HOUR).await;
    assert_eq!(scene.server.cmd(&["PTTL", "app:order:1"]).await, Value::Int(-1));
    let _ = scene.schedule.cancel(&scene.topic, ["1"]).await.unwrap();
    assert_eq!(scene.server.cmd(&["GET", "app:order:1"]).await, Value::BulkString(b"1".into()));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_or_listener_with_another_number_of_partitions_is_refused_naming_both() {
    let (server, schedule) = server_and_schedule().await;
    let _ = schedule.arm(&orders().partitions(3), ["1"], HOUR, &String::new()).await.unwrap();
    let other = Schedule::connect(&server.app_url()).await.unwrap();
    for partitions in [1, 2, 4] {
        let topic = orders().partitions(partitions);
        let armed = other.arm(&topic, ["1"], HOUR, &String::new()).await.unwrap_err();
        let refused = refusal(listener(&server).on(topic, Tally::default().handler())).await;
        for error in [armed, refused] {
            assert_eq!(error.kind(), ErrorKind::Partitions);
            let text = error.to_string();
            assert!(
                text.contains("topic orders has 3 partitions")
                    && text.contains(&format!("but {partitions} in this program")),
                "{text}"
            );
        }
    }
    // The same schedule, with another definition of the topic it knows.
    let error = schedule.arm(&orders(), ["1"], HOUR, &String::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Partitions);
    let keys: Vec<String> = redis::from_redis_value(server.cmd(&["KEYS", "*:timers"]).await).unwrap();
    assert_eq!(keys.len(), 1, "no second copy of the truth: {keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wire_version_that_we_do_not_speak_is_refused_at_the_start() {
    let (server, schedule) = server_and_schedule().await;
    let names = super::scene::names(&orders());
    for (theirs, advice) in [
        ("4", "older than this library's 5: stop the programs that use it and delete its names"),
        ("6", "newer than this library's 5: upgrade this program"),
    ] {
        server.cmd(&["HSET", names.key("meta"), "v", theirs, "partitions", "1"]).await;
        let armed = schedule.arm(&orders(), ["1"], HOUR, &String::new()).await.unwrap_err();
        let refused = refusal(listener(&server).on(orders(), Tally::default().handler())).await;
        for error in [armed, refused] {
            assert_eq!(error.kind(), ErrorKind::WireVersion);
            let text = error.to_string();
            let said = format!("{} was made by wire version {theirs}, {advice}", names.key("meta"));
            assert!(text.contains(&said), "{text}");
        }
    }
}

/// An upgrade, or a hand, behind our back: the partition parks, and heals.
#[tokio::test(flavor = "multi_thread")]
async fn a_meta_that_changes_while_we_run_parks_the_partition_until_it_is_put_right() {
    let ours = WIRE_VERSION.to_string();
    let changes = [
        ("v", "1", &*ours),
        ("partitions", "7", "1"),
        ("v", "\u{1b}[31m\n", &*ours),
        ("partitions", "", "1"),
    ];
    join_all(changes.map(|(field, wrong, right)| a_changed_meta_parks(field, wrong, right))).await;
}

async fn a_changed_meta_parks(field: &str, wrong: &str, right: &str) {
    let scene = Scene::new().await;
    scene.proves_well("before").await;
    scene.arm("later", Duration::from_secs(1)).await;
    let meta = scene.names().key("meta").to_owned();
    scene.server.cmd(&["HSET", &meta, field, wrong]).await;
    scene.until("the partition to be parked", |stats| stats.claim_errors > 0).await;
    let error = scene.schedule.arm(&scene.topic, ["1"], HOUR, &String::new()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WireVersion | ErrorKind::Partitions), "{error:?}");
    assert!(!error.to_string().contains(['\u{1b}', '\n']), "{error}");
    scene.server.cmd(&["HSET", &meta, field, right]).await;
    scene.tally.until(2).await;
    scene.proves_well("after").await;
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meta_that_is_deleted_is_made_again_and_nothing_else_is_lost() {
    let scene = Scene::of(orders().partitions(2)).await;
    for n in 0..20 {
        scene.arm(n.to_string(), SOON).await;
    }
    for partition in 0..2 {
        scene.server.cmd(&["DEL", &format!("keylapse:{{orders/{partition}}}:meta")]).await;
    }
    scene.tally.until(20).await;
    scene.proves_well("well").await;
    scene.tally.assert_each_once(21);
    scene.stop().await;
}

/// Garbage where the next number within a millisecond stands.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_fields_of_a_meta_can_hold_anything() {
    let scene = Scene::new().await;
    let meta = scene.names().key("meta").to_owned();
    scene.server.cmd(&["HSET", &meta, "ms", "nan", "n", "inf", "unknown", "field"]).await;
    scene.proves_well("1").await;
    scene.server.cmd(&["HSET", &meta, "ms", "", "n", "x"]).await;
    scene.proves_well("2").await;
    scene.stop().await;
}

/// A count of each partition, the largest there is: their sum is no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_somebody_has_written_does_not_overflow() {
    let (server, schedule) = server_and_schedule().await;
    let topic = orders().partitions(2);
    assert_eq!(schedule.dead_letter_counts(&topic).await.unwrap(), (0, 0));
    for partition in 0..2 {
        let meta = format!("keylapse:{{orders/{partition}}}:meta");
        server.cmd(&["HSET", &meta, "trimmed", "18446744073709551615"]).await;
    }
    assert_eq!(schedule.dead_letter_counts(&topic).await.unwrap(), (0, u64::MAX));
}

/// Everything is gone, running attempts included. That is a loss which nobody
/// can make good; but nobody panics, and what is armed afterwards runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_server_goes_on_with_what_is_armed_afterwards() {
    let (server, schedule) = server_and_schedule().await;
    let topic = orders();
    let (handler, mut reported, gate) = gated(|lapse: &Lapse<String>| lapse.capture("id").map(str::to_owned));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["later"], HOUR, &String::new()).await.unwrap();
    let _ = schedule.arm(&topic, ["held"], Duration::ZERO, &String::new()).await.unwrap();
    assert_eq!(reported.next().await.as_deref(), Some("held"));
    server.cmd(&["FLUSHALL"]).await;
    gate.notify_one();
    running.until("its end to find nothing", |stats| stats.total().gone == 1).await;
    let _ = schedule.arm(&topic, ["new"], Duration::ZERO, &String::new()).await.unwrap();
    assert_eq!(reported.next().await.as_deref(), Some("new"));
    gate.notify_one();
    assert!(schedule.look_up(&topic, ["later"]).await.unwrap().is_none());
    running.stop().await.unwrap();
}
