//! P2 and P3: never early, and on time whatever else lives in the database.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use keylapse::{Done, Lapse, NewArm, Schedule, Topic};
use keylapse_support::{Server, took_at_most};

use crate::server::support::{PATIENCE, Reports, Running, listener, reporting, server_and_schedule};

/// How long after its deadline a handler began; the server and the handler
/// share this machine's clock. An early start is an error.
fn lateness(deadline: SystemTime) -> Duration {
    SystemTime::now().duration_since(deadline).expect("no attempt starts before its deadline")
}

fn topic(name: &str) -> Topic<u32> {
    Topic::named(name, &format!("app:{name}:{{id}}")).unwrap().concurrency(2000)
}

/// Runs a listener that reports each timer's number and lateness.
fn running(server: &Server, topic: &Topic<u32>) -> (Running, Reports<(u32, Duration)>) {
    let (handler, reported) =
        reporting(|lapse: Lapse<u32>| ((*lapse.payload(), lateness(lapse.deadline())), Ok(Done)));
    (Running::start(listener(server).concurrency(2000).on(topic.clone(), handler)), reported)
}

async fn arm(
    schedule: &Schedule,
    topic: &Topic<u32>,
    deadlines: impl IntoIterator<Item = (u32, SystemTime), IntoIter: Send>,
) {
    let arms = deadlines.into_iter().map(|(n, at)| NewArm::new([n.to_string()], at, n));
    for result in schedule.arm_many(topic, arms).await.unwrap() {
        assert!(result.unwrap().is_armed());
    }
}

/// Waits for `count` reports; their latenesses, sorted, each timer once.
async fn latenesses(reported: &mut Reports<(u32, Duration)>, count: usize) -> Vec<Duration> {
    let mut seen = HashSet::new();
    let mut late = Vec::with_capacity(count);
    while late.len() < count {
        let (n, lateness) = reported.next().await;
        assert!(seen.insert(n), "timer {n} ran twice");
        late.push(lateness);
    }
    late.sort();
    late
}

/// 1,000 timers in one millisecond, a hundred times over: a timer is lost if
/// anybody trusts the absence of its key, which is still there in its own last
/// millisecond.
#[tokio::test(flavor = "multi_thread")]
async fn p1_p2_none_of_a_hundred_thousand_timers_in_shared_milliseconds_is_lost_or_early() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic("samems");
    let (running, mut reported) = running(&server, &topic);
    let start = SystemTime::now() + Duration::from_millis(500);
    for round in 0..100_u32 {
        let at = start + Duration::from_millis(100) * round;
        arm(&schedule, &topic, (0..1000).map(|n| (round * 1000 + n, at))).await;
    }
    latenesses(&mut reported, 100_000).await;
    running.stop().await.unwrap();
    assert_eq!(schedule.dead_letter_counts(&topic).await.unwrap(), (0, 0));
    assert!(reported.try_next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn timed_p3_with_notifications_off_from_the_start_everything_fires_on_time() {
    let (server, schedule) = server_and_schedule().await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", ""]).await;
    let topic = topic("silent");
    let (running, mut reported) = running(&server, &topic);
    let start = SystemTime::now() + Duration::from_millis(500);
    arm(&schedule, &topic, (0..500).map(|n| (n, start + Duration::from_millis(4) * n))).await;
    let late = latenesses(&mut reported, 500).await;
    took_at_most(Duration::from_millis(50), late[250], "half of the timers");
    let stats = running.stats.total();
    assert_eq!(stats.announced, 0);
    assert!(stats.by_timer > stats.by_sweep, "{stats:?}");
    assert!(running.stats.listener().gaps > 0, "the silence was noticed");
    running.stop().await.unwrap();
}

/// The median of one run beside that of another, under the same load:
/// keys of others must not matter. A plain subscriber would wait for minutes here.
#[tokio::test(flavor = "multi_thread")]
async fn timed_p3_volatile_keys_of_others_do_not_make_timers_late() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic("beside");
    let (running, mut reported) = running(&server, &topic);
    let mut medians = Vec::new();
    for theirs in [0, 300_000] {
        let script = "for i = 1, ARGV[1] do redis.call('SET', 'f:' .. i, '', 'EX', 3600 + i % 100) end";
        server.cmd(&["EVAL", script, "0", &theirs.to_string()]).await;
        let start = SystemTime::now() + Duration::from_millis(300);
        arm(&schedule, &topic, (0..1000).map(|n| (theirs + n, start + Duration::from_millis(2) * n))).await;
        medians.push(latenesses(&mut reported, 1000).await[500]);
    }
    let allowed = medians[0] * 2 + Duration::from_millis(5);
    took_at_most(allowed, medians[1], "half of the timers, beside 300,000 keys");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_a_new_head_wakes_a_listener_that_sleeps_for_a_later_one() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic("wake");
    let (running, mut reported) = running(&server, &topic);
    arm(&schedule, &topic, [(1, SystemTime::now() + Duration::from_secs(3600))]).await;
    arm(&schedule, &topic, [(2, SystemTime::now() + Duration::from_millis(200))]).await;
    assert_eq!(reported.next().await.0, 2);
    assert_eq!(running.stats.total().by_sweep, 0, "a wake-up has told of it");
    running.stop().await.unwrap();
}

/// What other programs see: the key is there until its deadline, and its expiry
/// is announced at once, for the listener has read it.
#[tokio::test(flavor = "multi_thread")]
async fn trigger_keys_expire_on_time_for_everybody_to_hear() {
    let (server, schedule) = server_and_schedule().await;
    server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    let topic = topic("trigger");
    let (running, mut reported) = running(&server, &topic);
    running.until_anchored().await;
    arm(&schedule, &topic, [(7, SystemTime::now() + Duration::from_millis(300))]).await;
    let value: String = redis::from_redis_value(server.cmd(&["GET", "app:trigger:7"]).await).unwrap();
    assert_eq!(value, "1", "the attempt to come");
    reported.next().await;
    let heard = async || running.stats.total().announced == 1;
    keylapse_support::eventually(PATIENCE, "the expiry is heard", heard).await;
    running.stop().await.unwrap();
}
