//! Events that anybody can publish: they prompt a look at most, and never a run.

use std::time::Duration;

use keylapse::Topic;
use keylapse_support::{Server, eventually};
use redis::Value;

use super::scene::{Scene, Tally, orders};
use crate::server::support::PATIENCE;

const CHANNEL: &str = "__keyevent@0__:expired";
const HOUR: Duration = Duration::from_secs(3600);

impl Scene {
    /// Of orders, once the listener hears events.
    async fn hearing() -> Self {
        let scene = Self::new().await;
        scene.running.until_anchored().await;
        scene
    }

    async fn publish(&self, channel: &str, message: &[u8]) {
        let heard_by = self.server.cmd(&[&b"PUBLISH"[..], channel.as_bytes(), message]).await;
        assert_eq!(heard_by, Value::Int(1));
    }

    /// Publishes from within a script, so that all of it is on its way at once.
    async fn flood(&self, count: usize, channel: &str, command: &str, message: &str) {
        let script = "for i = 1, ARGV[1] do redis.call(ARGV[2], ARGV[3], ARGV[4] .. i) end";
        self.server.cmd(&["EVAL", script, "0", &count.to_string(), command, channel, message]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_expiry_does_not_run_an_armed_timer() {
    let scene = Scene::hearing().await;
    scene.arm("later", HOUR).await;
    scene.publish(CHANNEL, b"app:order:later").await;
    scene.until("the forgery to be heard", |stats| stats.announced == 1).await;
    // Whatever it prompts is over when what comes after it has run.
    scene.proves_well("now").await;
    assert_eq!(scene.tally.runs_of("app:order:later"), 0);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_announced_again_and_again_runs_its_timer_once() {
    let scene = Scene::hearing().await;
    scene.arm("1", Duration::from_millis(100)).await;
    for _ in 0..50 {
        scene.publish(CHANNEL, b"app:order:1").await;
    }
    scene.tally.until(1).await;
    for _ in 0..50 {
        scene.publish(CHANNEL, b"app:order:1").await;
    }
    scene.until("all to be heard", |stats| stats.announced >= 100).await;
    scene.proves_well("2").await;
    scene.tally.assert_each_once(2);
    scene.stop().await;
}

/// Of a matching key without a timer, and of keys that are none of ours.
#[tokio::test(flavor = "multi_thread")]
async fn events_for_unknown_keys_are_counted_and_their_keys_never_touched() {
    let scene = Scene::hearing().await;
    scene.server.cmd(&["SET", "session:7", "theirs", "PX", "20"]).await;
    let gone = async || scene.server.cmd(&["EXISTS", "session:7"]).await == Value::Int(0);
    eventually(PATIENCE, "their key to expire", gone).await;
    scene.publish(CHANNEL, b"app:order:unknown").await;
    for theirs in [&b"app:order"[..], b"app:orders:1", b"", b"\xff\0\n", b"keylapse:{orders/0}:due"] {
        scene.publish(CHANNEL, theirs).await;
    }
    eventually(PATIENCE, "those of others to be counted", async || {
        scene.running.stats.listener().unrouted == 6 && scene.stats().announced == 1
    })
    .await;
    let keys: Vec<String> = redis::from_redis_value(scene.server.cmd(&["KEYS", "*"]).await).unwrap();
    assert!(keys.iter().all(|key| key.starts_with("keylapse:")), "{keys:?}");
    scene.proves_well("1").await;
    scene.tally.assert_each_once(1);
    scene.stop().await;
}

/// Names that would be kept in the queue in full take no more room than a key
/// of ours can.
#[tokio::test(flavor = "multi_thread")]
async fn events_with_enormous_names_are_unrouted() {
    let scene = Scene::hearing().await;
    let name = [b"app:order:", &vec![b'x'; 8 << 20][..]].concat();
    scene.publish(CHANNEL, &name).await;
    eventually(PATIENCE, "it to be counted", async || scene.running.stats.listener().unrouted == 1).await;
    assert_eq!(scene.stats().announced, 0);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_on_the_wake_up_channel_that_are_not_ours_do_no_harm() {
    let scene = Scene::hearing().await;
    scene.arm("later", HOUR).await;
    let wake = scene.names().wake.clone();
    let messages: [&[u8]; 11] = [
        b"",
        b"w",
        b"w0",
        b"w-1",
        b"wnan",
        b"q1",
        b"w18446744073709551615",
        b"w99999999999999999999999",
        b"f",
        b"f12345678app:order:later",
        b"\xff\xff",
    ];
    for message in messages {
        let heard_by = scene.server.cmd(&[&b"SPUBLISH"[..], wake.as_bytes(), message]).await;
        assert_eq!(heard_by, Value::Int(1));
    }
    scene.proves_well("now").await;
    assert_eq!(scene.tally.runs_of("app:order:later"), 0);
    scene.stop().await;
}

/// Everything at once: more than any queue holds. What is dropped is a gap, made
/// good by a sweep; timers that fall due meanwhile run; and nobody is flooded
/// in turn: neither the server with looks, nor the log with complaints.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_a_hundred_thousand_events_costs_little_and_delays_nobody() {
    let last = Topic::<String>::named("last", "app:last:{id}").unwrap();
    let server = Server::builder().config("client-output-buffer-limit", "pubsub 0 0 0").start().await;
    let scene = Scene::with(server, orders(), |builder| builder.on(last, Tally::default().handler())).await;
    scene.running.until_anchored().await;
    for n in 0..50_u64 {
        scene.arm(n.to_string(), Duration::from_millis(100 + 20 * n)).await;
    }
    let before = (scene.stats(), scene.running.stats.listener());
    for _ in 0..2 {
        scene.flood(25_000, CHANNEL, "PUBLISH", "app:order:forged").await;
        scene.flood(25_000, CHANNEL, "PUBLISH", "app:theirs:").await;
    }
    // Events come in order: once a later one is heard, the flood is over.
    eventually(PATIENCE, "the flood to be over", async || {
        scene.server.cmd(&["PUBLISH", CHANNEL, "app:last:1"]).await;
        scene.running.stats.topic("last").unwrap().announced > 0
    })
    .await;
    scene.tally.until(50).await;
    let (stats, listener) = (scene.stats(), scene.running.stats.listener());
    assert!(listener.unrouted > before.1.unrouted && stats.announced > before.0.announced);
    let claims = stats.claims - before.0.claims;
    assert!(claims < 300, "{claims} claims for 50 timers");
    assert!(listener.sweeps - before.1.sweeps < 20, "{listener:?}");
    scene.proves_well("afterwards").await;
    scene.tally.assert_each_once(51);
    scene.stop().await;
}

/// Forged wake-ups say that something is due, and each is worth a look; so they
/// must be damped, or the server would be asked as often as it can answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_forged_wake_ups_is_damped() {
    let scene = Scene::hearing().await;
    let wake = scene.names().wake.clone();
    let before = scene.stats();
    let started = std::time::Instant::now();
    for _ in 0..200 {
        scene.flood(50, &wake, "SPUBLISH", "w").await;
    }
    scene.proves_well("1").await;
    let claims = scene.stats().claims - before.claims;
    let allowed = 20 + started.elapsed().as_millis() / 4;
    assert!(u128::from(claims) < allowed, "{claims} claims, {allowed} allowed");
    scene.stop().await;
}
