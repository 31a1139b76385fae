//! The producers' door: what arms, cancels and moves, and what it answers.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::timers::{Durably, MarkerKey, TimerPhase};
use keylapse::{
    ArmResult, Cancelled, Client, Done, ErrorKind, Failure, Key, Lapse, NewArm, Rescheduled, Schedule, Topic,
};
use keylapse_support::{Fsync, Server, eventually, skipped_on_a_cluster};
use redis::Value;

use crate::server::support::{PATIENCE, Reports, Running, listener, reporting, server_and_schedule};

const LATER: Duration = Duration::from_secs(3600);

fn topic() -> Topic<String> {
    Topic::new("app:made:{id}").unwrap()
}

/// A listener whose handler succeeds, and the attempts that it was called for.
fn listening(server: &Server, topic: &Topic<String>) -> (Running, Reports<u32>) {
    let (handler, reported) = reporting(|lapse: Lapse<String>| (lapse.attempt(), Ok(Done)));
    (Running::start(listener(server).on(topic.clone(), handler)), reported)
}

/// The same, whose handler fails.
fn failing(server: &Server, topic: &Topic<String>) -> (Running, Reports<u32>) {
    let (handler, reported) =
        reporting(|lapse: Lapse<String>| (lapse.attempt(), Err::<Done, _>(Failure::retry("not yet"))));
    (Running::start(listener(server).on(topic.clone(), handler)), reported)
}

#[tokio::test]
async fn each_answer_says_what_happened() {
    let (_server, schedule) = server_and_schedule().await;
    let topic = topic();
    let arm = |id: &'static str| schedule.arm(&topic, [id], LATER, &String::new());
    assert!(matches!(arm("1").await.unwrap(), ArmResult::Armed(_)));
    assert!(matches!(arm("1").await.unwrap(), ArmResult::Replaced(_)));
    assert!(matches!(arm("1").only_if_absent().await.unwrap(), ArmResult::Exists));
    assert!(matches!(arm("2").only_if_absent().await.unwrap(), ArmResult::Armed(_)));
    let moved = schedule.reschedule(&topic, ["1"], SystemTime::now() + LATER * 2).await.unwrap();
    assert!(matches!(moved, Rescheduled::Rescheduled(at) if at > SystemTime::now() + LATER));
    assert_eq!(schedule.reschedule(&topic, ["9"], LATER).await.unwrap(), Rescheduled::NotArmed);
    assert_eq!(schedule.cancel(&topic, ["1"]).await.unwrap(), Cancelled::Cancelled);
    assert_eq!(schedule.cancel(&topic, ["1"]).await.unwrap(), Cancelled::NotArmed);
    assert!(schedule.look_up(&topic, ["1"]).await.unwrap().is_none());
}

#[tokio::test]
async fn a_trigger_key_lives_and_dies_with_its_arming() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    let armed = schedule.arm(&topic, ["1"], LATER, &"x".to_owned()).await.unwrap();
    let receipt = armed.receipt().unwrap();
    assert!(matches!(receipt.marker, MarkerKey::Set));
    assert_eq!(
        server.cmd(&["GET", "app:made:1"]).await,
        Value::BulkString(b"1".into()),
        "the attempt to come"
    );
    let expires: u64 = redis::from_redis_value(server.cmd(&["PEXPIRETIME", "app:made:1"]).await).unwrap();
    let since = receipt.deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(u128::from(expires), since.as_millis(), "it expires at the recorded deadline");
    let _ = schedule.cancel(&topic, ["1"]).await.unwrap();
    assert_eq!(server.cmd(&["EXISTS", "app:made:1"]).await, Value::Int(0));
}

/// Redis 7 keeps small numbers once for all keys; later servers keep a key and its value in one piece,
/// where it has room beside the key. Either way the value takes no more than none would.
#[tokio::test]
async fn the_value_of_a_trigger_key_takes_no_memory_of_its_own() {
    let (server, schedule) = server_and_schedule().await;
    let _ = schedule.arm(&topic(), ["1"], LATER, &"x".to_owned()).await.unwrap();
    server.cmd(&["SET", "app:made:0", "", "EX", "3600"]).await;
    let size =
        async |key| -> u64 { redis::from_redis_value(server.cmd(&["MEMORY", "USAGE", key]).await).unwrap() };
    let (ours, empty) = (size("app:made:1").await, size("app:made:0").await);
    assert!(ours <= empty, "{}: {ours} bytes, and {empty} without a value", server.version());
    let version = server.version();
    if !version.is_valkey && version.number < (8, 0, 0) {
        let shared = server.cmd(&["OBJECT", "REFCOUNT", "app:made:1"]).await;
        assert_eq!(shared, Value::Int(i32::MAX.into()), "it is shared");
    }
}

#[tokio::test]
async fn a_trigger_key_follows_its_timer_and_is_deleted_with_it() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    let expires = async || -> i64 {
        redis::from_redis_value(server.cmd(&["PEXPIRETIME", "app:made:1"]).await).unwrap()
    };
    let of = |deadline: SystemTime| {
        i64::try_from(deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
    };
    for later in [LATER, LATER * 2, LATER / 2] {
        let armed = schedule.arm(&topic, ["1"], later, &String::new()).await.unwrap();
        let receipt = armed.receipt().unwrap();
        assert!(matches!(receipt.marker, MarkerKey::Set), "{armed:?}");
        assert_eq!(expires().await, of(receipt.deadline));
    }
    let moved = schedule.reschedule(&topic, ["1"], LATER * 3).await.unwrap();
    let Rescheduled::Rescheduled(deadline) = moved else { panic!("{moved:?}") };
    assert_eq!(expires().await, of(deadline));
    let _ = schedule.cancel(&topic, ["1"]).await.unwrap();
    assert_eq!(expires().await, -2);
}

/// A cancel whose second step was lost leaves a key that nobody knows to be ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_key_that_was_left_behind_changes_nothing_for_the_next_timer() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    let (running, mut reported) = listening(&server, &topic);
    server.cmd(&["SET", "app:made:1", "1", "PX", "1000"]).await;
    let armed = schedule.arm(&topic, ["1"], Duration::from_millis(300), &String::new()).await.unwrap();
    assert!(matches!(armed.receipt().unwrap().marker, MarkerKey::Taken), "{armed:?}");
    assert_eq!(reported.next().await, 1);
    let gone = async || server.cmd(&["EXISTS", "app:made:1"]).await == Value::Int(0);
    eventually(PATIENCE, "it expires", gone).await;
    let armed = schedule.arm(&topic, ["1"], LATER, &String::new()).await.unwrap();
    assert!(matches!(armed.receipt().unwrap().marker, MarkerKey::Set), "{armed:?}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_topic_can_do_without_trigger_keys() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().marker_keys(false);
    let armed = schedule.arm(&topic, ["1"], LATER, &"x".to_owned()).await.unwrap();
    assert!(matches!(armed.receipt().unwrap().marker, MarkerKey::None));
    assert_eq!(server.cmd(&["EXISTS", "app:made:1"]).await, Value::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_brings_the_trigger_key_back_with_the_next_attempt() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().retry(keylapse::Backoff::fixed(LATER));
    let (running, mut reported) = failing(&server, &topic);
    let _ = schedule.arm(&topic, ["1"], Duration::from_millis(30), &String::new()).await.unwrap();
    assert_eq!(reported.next().await, 1);
    let second = async || server.cmd(&["GET", "app:made:1"]).await == Value::BulkString(b"2".into());
    eventually(PATIENCE, "the key is back, with attempt 2", second).await;
    let timer = schedule.look_up(&topic, ["1"]).await.unwrap().unwrap();
    assert!(matches!(timer.phase, TimerPhase::Waiting(at) if at > SystemTime::now()));
    assert_eq!((timer.attempt, timer.history[0].error.as_str()), (2, "not yet"));
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_timers_are_armed_in_order_over_partitions_each_with_its_own_result() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u64>::new("app:bulk:{id}").unwrap().partitions(4).payload_limit(8);
    let (handler, mut reported) = reporting(|lapse: Lapse<u64>| (*lapse.payload(), Ok(Done)));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let mut arms: Vec<_> = (0..2500).map(|n| NewArm::new([n.to_string()], Duration::ZERO, n)).collect();
    arms[7].payload = u64::MAX; // twenty digits: over the limit
    arms[8].key = [String::new()];
    let results = schedule.arm_many(&topic, arms).await.unwrap();
    let failed: Vec<_> = (0..2500).filter(|n| results[*n].is_err()).collect();
    assert_eq!(failed, [7, 8]);
    let mut seen: Vec<_> = Vec::new();
    while seen.len() < 2498 {
        seen.push(reported.next().await);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 2498);
    running.stop().await.unwrap();
}

/// In one call the later arm of a key comes later, as in a loop.
#[tokio::test]
async fn of_a_key_that_is_named_twice_the_later_arm_wins() {
    let (_server, schedule) = server_and_schedule().await;
    let topic = Topic::raw("app:twice:{id}").unwrap();
    let arms = ["a", "b", "c"].map(|payload| NewArm::new(Key("app:twice:1"), LATER, Bytes::from(payload)));
    let results = schedule.arm_many(&topic, arms).await.unwrap();
    assert!(matches!(results[0], Ok(ArmResult::Armed(_))));
    assert!(matches!(results[2], Ok(ArmResult::Replaced(_))));
    let timer = schedule.look_up(&topic, ["1"]).await.unwrap().unwrap();
    assert_eq!(&timer.payload[..], b"c");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_armed_for_now_runs_in_the_order_of_arming() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:order:{id}").unwrap().concurrency(1);
    let arms = (0..200).map(|n: u32| NewArm::new([(n * 7919 % 1000).to_string()], Duration::ZERO, n));
    schedule.arm_many(&topic, arms).await.unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok(Done)));
    let running = Running::start(listener(&server).on(topic, handler));
    for n in 0..200 {
        assert_eq!(reported.next().await, n);
    }
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_topic_takes_timers_and_gives_none_out_until_it_is_resumed() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    let (running, mut reported) = listening(&server, &topic);
    schedule.pause(&topic, "the merchant is down").await.unwrap();
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &String::new()).await.unwrap();
    let claims = running.stats.total().claims;
    running.until("the listener to look", |stats| stats.total().claims > claims).await;
    assert!(reported.try_next().is_none());
    schedule.resume(&topic).await.unwrap();
    assert_eq!(reported.next().await, 1);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn p10_an_arm_reports_how_far_it_has_travelled() {
    if skipped_on_a_cluster("REPLICAOF is refused: tests/clusters has replicas") {
        return;
    }
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    let arm = |id: &'static str, ask| schedule.arm(&topic, [id], LATER, &String::new()).durably(ask);
    let alone = arm("1", Durably::replicas(1).within(Duration::from_millis(50))).await.unwrap();
    assert_eq!(alone.receipt().unwrap().reached.unwrap().replicas, 0, "told, not refused");
    let replica = Server::start().await;
    replica.cmd(&["REPLICAOF", "127.0.0.1", &server.door().port().to_string()]).await;
    let linked = async || {
        let info: String = redis::from_redis_value(replica.cmd(&["INFO", "replication"]).await).unwrap();
        info.contains("master_link_status:up")
    };
    eventually(PATIENCE, "the replica is linked", linked).await;
    let copied = arm("2", Durably::replicas(1).within(Duration::from_secs(3))).await.unwrap();
    assert_eq!(copied.receipt().unwrap().reached.unwrap().replicas, 1);
}

/// Not `Ok`, with nothing flushed: whoever asks for the disk has a reason.
#[tokio::test]
async fn p10_an_arm_is_refused_where_the_server_cannot_flush_it() {
    let server = Server::builder().aof(Fsync::Always).start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let topic = topic();
    let arm = |id: &'static str| {
        schedule.arm(&topic, [id], LATER, &String::new()).durably(Durably::fsync(0)).into_future()
    };
    let version = server.version();
    if version.is_valkey || version.number >= (7, 2, 0) {
        assert!(arm("1").await.unwrap().receipt().unwrap().reached.unwrap().local_fsync);
        server.cmd(&["CONFIG", "SET", "appendonly", "no"]).await;
        let error = arm("2").await.unwrap_err();
        assert!(error.to_string().contains("appendonly is disabled"), "{error}");
    } else {
        let error = arm("2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let named = error.to_string();
        assert!(named.contains(&format!("WAITAOF, which {version} does not have")), "{named}");
    }
    assert!(schedule.look_up(&topic, ["2"]).await.unwrap().is_none(), "nothing was armed");
}

/// Two programs that disagree must not make two truths.
#[tokio::test]
async fn a_schedule_and_a_listener_share_names_only_in_one_namespace() {
    let (server, schedule) = server_and_schedule().await;
    let client = Client::new(&server.url()).unwrap();
    let other = Schedule::connect(client.clone().namespace("other").unwrap()).await.unwrap();
    let topic = topic().marker_keys(false);
    let _ = schedule.arm(&topic, ["1"], LATER, &"mine".to_owned()).await.unwrap();
    assert!(other.look_up(&topic, ["1"]).await.unwrap().is_none());
    assert!(client.namespace("bad{name").is_err());
}

/// Age counts from the deadline that a timer was moved to, not from one that it
/// never had to meet.
#[tokio::test(flavor = "multi_thread")]
async fn timed_a_rescheduled_timer_is_no_older_than_its_new_deadline() {
    let (server, schedule) = server_and_schedule().await;
    let topic =
        topic().max_age(Duration::from_millis(300)).retry(keylapse::Backoff::table([Duration::ZERO; 3]));
    let _ = schedule.arm(&topic, ["1"], Duration::from_millis(400), &String::new()).await.unwrap();
    let moved = schedule.reschedule(&topic, ["1"], Duration::from_millis(1000)).await.unwrap();
    assert!(matches!(moved, Rescheduled::Rescheduled(_)));
    let (running, mut reported) = failing(&server, &topic);
    assert_eq!(reported.next().await, 1);
    assert_eq!(reported.next().await, 2, "not too old yet");
    running.stop().await.unwrap();
}
