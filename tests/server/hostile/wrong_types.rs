//! Values of another type at keylapse's own names: the partition parks and says
//! which name it is, the others run, and once it is gone all is well again.

use std::time::Duration;

use keylapse::stats::Stats;
use keylapse::{Done, ErrorKind, Failure, Key, Lapse, Topic};
use keylapse_support::{Server, eventually, skipped_on_a_cluster};
use keylapse_wire::names::{PartitionNames, partition_of};
use redis::Value;

use super::scene::{Scene, Tally, orders};
use crate::server::support::{PATIENCE, Running, gated, listener, server_and_schedule, until_dead};

/// A name beside this one, in its slot.
fn aside(name: &str) -> String {
    if name.contains('{') { format!("{name}:aside") } else { format!("{{{name}}}:aside") }
}

/// Puts a value of a type that keylapse uses nowhere at a name; what was there
/// is moved aside.
async fn spoil(server: &Server, name: &str) {
    let aside = aside(name);
    let script = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end
        return redis.call('RPUSH', KEYS[1], 'not yours')";
    assert_eq!(server.cmd(&["EVAL", script, "2", name, &aside]).await, Value::Int(1));
}

/// What an operator does who reads the error.
async fn heal(server: &Server, name: &str) {
    let aside = aside(name);
    let script = "redis.call('DEL', KEYS[1])
        if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end";
    server.cmd(&["EVAL", script, "2", name, &aside]).await;
}

/// A key of each of two partitions.
fn keys() -> [String; 2] {
    [0, 1].map(|partition| {
        let key = |n: u32| format!("app:order:{n}");
        (0..).map(key).find(|key| partition_of(key.as_bytes(), 2) == partition).unwrap()
    })
}

/// For each of the ten names in turn, on one server: timers of the spoilt
/// partition wait, those of its neighbour and of another topic run; without a
/// restart everything runs once the name is free again.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_the_ten_names_parks_its_partition_alone_until_it_is_freed() {
    let (server, schedule) = server_and_schedule().await;
    let mut checks = Vec::new();
    for at in 0..10 {
        checks.push(a_spoilt_name_parks(&server, &schedule, at));
    }
    futures::future::join_all(checks).await;
}

async fn a_spoilt_name_parks(server: &Server, schedule: &keylapse::Schedule, at: usize) {
    let topic = Topic::<String>::named(&format!("t{at}"), "app:order:{id}").unwrap().partitions(2);
    let other = Topic::<String>::named(&format!("o{at}"), "app:other:{id}").unwrap();
    let tally = Tally::default();
    let handlers = listener(server).on(topic.clone(), tally.handler()).on(other.clone(), tally.handler());
    let running = Running::start(handlers);
    let [spoilt, healthy] = keys();
    let names = PartitionNames::new("keylapse", topic.name(), 0, 2, false);
    let name = &names.all()[at];
    let arm = async |key: &str, delay| schedule.arm(&topic, Key(key), delay, &String::new()).await;
    // Something lies in the index when its name is spoilt.
    let _ = arm(&spoilt, Duration::from_secs(1)).await.unwrap();
    spoil(server, name).await;
    let _ = arm(&healthy, Duration::ZERO).await.unwrap();
    let _ = schedule.arm(&other, ["1"], Duration::ZERO, &String::new()).await.unwrap();
    tally.until(2).await;
    let complains = |stats: &Stats| stats.topic(topic.name()).unwrap().claim_errors > 0;
    running.until("the partition to complain", complains).await;
    assert_eq!(tally.runs_of(&spoilt), 0, "{name}");
    heal(server, name).await;
    tally.until(3).await;
    let _ = arm(&spoilt, Duration::ZERO).await.unwrap();
    eventually(PATIENCE, "it to run once more", async || tally.runs_of(&spoilt) == 2).await;
    running.stop().await.unwrap();
    assert_eq!(schedule.dead_letter_counts(&topic).await.unwrap(), (0, 0), "{name}");
}

/// Whatever a producer does that needs the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_told_which_name_holds_what() {
    let (server, schedule) = server_and_schedule().await;
    let topic = orders();
    let names = super::scene::names(&topic);
    let _ = schedule.arm(&topic, ["1"], Duration::from_secs(60), &String::new()).await.unwrap();
    for name in [
        names.key("meta"),
        names.key("due"),
        names.key("quarantine"),
        names.key("timers"),
        names.key("timer_states"),
    ] {
        let _ = schedule.arm(&topic, ["3"], Duration::from_secs(60), &String::new()).await.unwrap();
        spoil(&server, name).await;
        let errors = [
            schedule.arm(&topic, ["2"], Duration::ZERO, &String::new()).await.map(|_| ()),
            schedule.look_up(&topic, ["1"]).await.map(|_| ()),
            schedule.cancel(&topic, ["3"]).await.map(|_| ()),
        ];
        for error in errors.into_iter().filter_map(Result::err) {
            assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(name.as_bytes())), "{error}");
            assert!(error.needs_operator() && error.to_string().contains("holds a list where"), "{error}");
        }
        heal(&server, name).await;
    }
    assert!(schedule.look_up(&topic, ["1"]).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_dead_letters_is_told_which_name_holds_what() {
    let (server, schedule) = server_and_schedule().await;
    let topic =
        Topic::<String>::named("orders", "app:order:{id}").unwrap().retry(keylapse::Backoff::table([]));
    let running = Running::start(
        listener(&server).on(topic.clone(), |_| async { Err::<Done, _>(Failure::dead("on purpose")) }),
    );
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &String::new()).await.unwrap();
    until_dead(&schedule, &topic, 1).await;
    running.stop().await.unwrap();
    let letter = schedule.dead_letters(&topic).page(1).await.unwrap().remove(0);
    let names = super::scene::names(&topic);
    for name in [names.key("meta"), names.key("dead"), names.key("dead_letters")] {
        spoil(&server, name).await;
        let errors = [
            schedule.dead_letters(&topic).page(10).await.map(|_| ()),
            schedule.dead_letter_counts(&topic).await.map(|_| ()),
            schedule.replay(&letter).await.map(|_| ()),
            schedule.drop_dead_letter(&letter).await.map(|_| ()),
        ];
        let errors: Vec<_> = errors.into_iter().filter_map(Result::err).collect();
        assert!(!errors.is_empty(), "{name}");
        for error in errors {
            assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(name.as_bytes())), "{error}");
        }
        heal(&server, name).await;
    }
}

/// What ended while its partition was parked is settled afterwards: it is not
/// done a second time.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_ends_while_a_name_is_spoilt_is_settled_once_it_is_freed() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:order:{id}").unwrap();
    let names = super::scene::names(&topic);
    for name in [names.key("queued"), names.key("timers"), names.key("timer_states")] {
        let (handler, mut reported, gate) = gated(|_: &Lapse<u32>| ());
        let running = Running::start(listener(&server).on(topic.clone(), handler));
        let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
        reported.next().await;
        spoil(&server, name).await;
        gate.notify_one();
        running.until("the attempt to end", |stats| stats.total().handled == 1).await;
        // Until it has been tried, and refused.
        running.until("its end to be refused", |stats| stats.total().settle_errors > 0).await;
        heal(&server, name).await;
        let gone = async || schedule.look_up(&topic, ["1"]).await.is_ok_and(|timer| timer.is_none());
        eventually(PATIENCE, "its end to be settled", gone).await;
        let stats = running.stats.total();
        assert_eq!((stats.handled, stats.unsettled, stats.lost_leases), (1, 0, 0), "{name}");
        running.stop().await.unwrap();
    }
}

/// Timers in quarantine wait in one line, of all topics; one that cannot be asked for must
/// not stand in it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_quarantine_of_a_spoilt_partition_does_not_hold_up_others() {
    use keylapse_wire::record::State;
    let (server, schedule) = server_and_schedule().await;
    let spoilt = Topic::<String>::named("a", "app:a:{id}").unwrap();
    let healthy = Topic::<String>::named("b", "app:b:{id}").unwrap();
    let tally = Tally::default();
    let handlers = listener(&server).on(spoilt.clone(), tally.handler()).on(healthy.clone(), tally.handler());
    let running = Running::start(handlers);
    let state = State { lost: 3, deadline: 1, ..State::waiting(1) }.encode();
    // In no index yet, or it could run before its partition is spoilt.
    let hidden = async |topic: &Topic<String>, key: &str| {
        let (names, hour) = (super::scene::names(topic), Duration::from_secs(3600));
        let _ = schedule.arm(topic, Key(key), hour, &String::new()).await.unwrap();
        server.cmd(&[&b"HSET"[..], names.key("timer_states").as_bytes(), key.as_bytes(), &state]).await;
        server.cmd(&["ZREM", names.key("due"), key]).await;
    };
    let quarantine = async |topic: &Topic<String>, key: &str| {
        server.cmd(&["ZADD", super::scene::names(topic).key("quarantine"), "1", key]).await;
    };
    // Any look tells of the quarantine, too.
    let look = async |topic| server.cmd(&["SPUBLISH", &super::scene::names(topic).wake, "w1"]).await;
    hidden(&spoilt, "app:a:1").await;
    spoil(&server, super::scene::names(&spoilt).key("timers")).await;
    quarantine(&spoilt, "app:a:1").await;
    look(&spoilt).await;
    running.until("the complaint", |stats| stats.topic("a").unwrap().claim_errors > 0).await;
    hidden(&healthy, "app:b:1").await;
    quarantine(&healthy, "app:b:1").await;
    look(&healthy).await;
    tally.until(1).await;
    assert_eq!(tally.runs_of("app:b:1"), 1);
    heal(&server, super::scene::names(&spoilt).key("timers")).await;
    tally.until(2).await;
    running.stop().await.unwrap();
}

/// The list of topics is for others to read; without it everything runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_spoilt_registry_or_canary_keeps_nobody_from_working() {
    if skipped_on_a_cluster("a canary has the tag of its first slot") {
        return;
    }
    let server = Server::start().await;
    for name in ["keylapse:topics", "keylapse:{heartbeat/0}"] {
        spoil(&server, name).await;
    }
    let scene = Scene::on(server, orders()).await;
    scene.proves_well("1").await;
    scene.running.until("the silence to be noticed", |stats| stats.listener().gaps > 0).await;
    scene.proves_well("2").await;
    heal(&scene.server, "keylapse:{heartbeat/0}").await;
    scene.running.until_anchored().await;
    scene.stop().await;
}
