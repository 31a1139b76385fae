//! Errors that a server answers while it is full, read-only, broken or busy:
//! told apart, waited for where waiting helps, and survived without a restart.

use std::time::Duration;

use keylapse::stats::Stats;
use keylapse::{Backoff, Cancelled, Client, Error, ErrorKind, Failure, Lapse, Outcome, Schedule};
use keylapse_support::{Server, eventually, skipped_on_a_cluster};
use redis::Value;

use super::scene::{Scene, Tally, orders};
use crate::server::support::{PATIENCE, Running, gated, listener, reporting, server_and_schedule, show_log};

/// Time enough to change the server before it is over.
const SOON: Duration = Duration::from_secs(1);

/// A producer who does not wait.
fn hasty(url: &str) -> Schedule {
    Schedule::new(Client::new(url).unwrap().retry_for(Duration::ZERO))
}

impl Scene {
    /// What a producer is told who does not wait.
    async fn refusal(&self) -> Error {
        let schedule = hasty(&self.server.app_url());
        schedule.arm(&self.topic, ["refused"], SOON, &String::new()).await.unwrap_err()
    }

    async fn complains(&self) {
        self.until("the listener to complain", |stats| stats.claim_errors + stats.settle_errors > 0).await;
    }

    async fn config(&self, name: &str, value: &str) {
        self.server.cmd(&["CONFIG", "SET", name, value]).await;
    }
}

/// Arming is refused, and everything that makes room goes on: claims, acks,
/// retries, dead letters, cancels; also by a listener that is only now started.
#[tokio::test(flavor = "multi_thread")]
async fn oom_refuses_arms_and_lets_everything_drain() {
    let (server, schedule) = server_and_schedule().await;
    let topic = orders().retry(Backoff::table([Duration::from_millis(20)]));
    for id in ["done", "retried", "dead", "snoozed", "again"] {
        let _ = schedule.arm(&topic, [id], SOON, &id.to_owned()).await.unwrap();
    }
    for id in ["cancelled", "later"] {
        let _ = schedule.arm(&topic, [id], Duration::from_secs(3600), &String::new()).await.unwrap();
    }
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = schedule.arm(&topic, ["new"], SOON, &String::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.is_transient() && error.to_string().contains("maxmemory"), "{error}");
    let (handler, mut reported) = reporting(|lapse: Lapse<String>| {
        let end = match lapse.payload().as_str() {
            "retried" if lapse.attempt() == 1 => Err(Failure::retry("once more")),
            "dead" => Err(Failure::dead("never")),
            "snoozed" => Ok(Outcome::Snooze(Duration::from_secs(3600))),
            "again" => Ok(Outcome::Again(Duration::from_secs(3600))),
            _ => Ok(Outcome::Done),
        };
        ((), end)
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    for _ in 0..6 {
        reported.next().await;
    }
    let drained = async || {
        let stats = running.stats.total();
        (stats.retried, stats.dead, stats.snoozed, stats.again) == (1, 1, 1, 1)
            && schedule.look_up(&topic, ["done"]).await.unwrap().is_none()
            && schedule.look_up(&topic, ["retried"]).await.unwrap().is_none()
    };
    eventually(PATIENCE, "everything to drain", drained).await;
    assert_eq!(schedule.cancel(&topic, ["cancelled"]).await.unwrap(), Cancelled::Cancelled);
    let elsewhere = Schedule::connect(&server.app_url()).await.unwrap();
    assert_eq!(elsewhere.cancel(&topic, ["later"]).await.unwrap(), Cancelled::Cancelled, "by a new producer");
    assert_eq!(schedule.dead_letters(&topic).page(10).await.unwrap().len(), 1);
    assert_eq!(running.stats.total().unsettled, 0);
    running.stop().await.unwrap();
}

/// Demoted, and promoted again, with a handler running meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn readonly_is_waited_for_and_what_ended_meanwhile_is_settled_afterwards() {
    if skipped_on_a_cluster("REPLICAOF is refused: tests/clusters has replicas") {
        return;
    }
    let (server, schedule) = server_and_schedule().await;
    let topic = orders();
    let (handler, mut reported, gate) = gated(|lapse: &Lapse<String>| lapse.key().to_vec());
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    for (id, delay) in [("running", Duration::ZERO), ("due", SOON)] {
        let _ = schedule.arm(&topic, [id], delay, &String::new()).await.unwrap();
    }
    assert_eq!(reported.next().await, b"app:order:running");
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await;
    gate.notify_one();
    let error = schedule.arm(&topic, ["new"], SOON, &String::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.is_transient() && error.to_string().contains("replica"), "{error}");
    let both = |stats: &Stats| stats.total().claim_errors > 0 && stats.total().settle_errors > 0;
    running.until("claims and acks to be refused", both).await;
    server.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(reported.next().await, b"app:order:due");
    gate.notify_one();
    let gone = async || {
        schedule.look_up(&topic, ["running"]).await.unwrap().is_none()
            && schedule.look_up(&topic, ["due"]).await.unwrap().is_none()
    };
    eventually(PATIENCE, "both ends to be settled", gone).await;
    let stats = running.stats.total();
    assert_eq!((stats.handled, stats.redelivered, stats.unsettled), (2, 0, 0));
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_waited_for() {
    let scene = Scene::new().await;
    scene.proves_well("before").await;
    scene.arm("due", SOON).await;
    scene.config("min-replicas-to-write", "1").await;
    assert_eq!(scene.refusal().await.kind(), ErrorKind::ReadOnly);
    scene.complains().await;
    scene.config("min-replicas-to-write", "0").await;
    scene.tally.until(2).await;
    scene.tally.assert_each_once(2);
    scene.stop().await;
}

/// A disk that cannot be written to: PING fails as well, and the link is fine.
#[tokio::test(flavor = "multi_thread")]
async fn misconf_is_waited_for() {
    let server = Server::builder().config("save", "3600 1").config("enable-protected-configs", "local");
    let scene = Scene::on(server.start().await, orders()).await;
    scene.proves_well("before").await;
    let home: Vec<String> =
        redis::from_redis_value(scene.server.cmd(&["CONFIG", "GET", "dir"]).await).unwrap();
    let gone = format!("{}/gone", home[1]);
    std::fs::create_dir(&gone).unwrap();
    scene.config("dir", &gone).await;
    std::fs::remove_dir(&gone).unwrap();
    scene.arm("due", SOON).await;
    save(&scene.server, "err").await;
    let error = scene.refusal().await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cannot save"), "{error}");
    scene.complains().await;
    scene.config("dir", &home[1]).await;
    save(&scene.server, "ok").await;
    scene.tally.until(2).await;
    scene.tally.assert_each_once(2);
    scene.stop().await;
}

/// Saves in the background until it ended as expected.
async fn save(server: &Server, expected: &str) {
    let ended = async || {
        let mut connection = server.conn().await;
        let _: redis::RedisResult<Value> = redis::cmd("BGSAVE").query_async(&mut connection).await;
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("persistence").query_async(&mut connection).await.unwrap();
        info.get::<String>("rdb_last_bgsave_status").as_deref() == Some(expected)
            && info.get::<u8>("rdb_bgsave_in_progress") == Some(0)
    };
    eventually(PATIENCE, "the save", ended).await;
}

/// A server that reads its data for a while before it can serve.
#[tokio::test(flavor = "multi_thread")]
async fn loading_is_waited_for_by_producers_and_listeners() {
    show_log();
    let mut server = Server::builder()
        .config("save", "3600 1")
        .config("key-load-delay", "200")
        .config("loading-process-events-interval-bytes", "1024")
        .start()
        .await;
    let url = server.app_url();
    let tally = Tally::default();
    let running = Running::start(listener(&server).on(orders(), tally.handler()));
    let schedule = Schedule::connect(&url).await.unwrap();
    let _ = schedule.arm(&orders(), ["due"], SOON, &String::new()).await.unwrap();
    server.cmd(&["DEBUG", "POPULATE", "4000"]).await;
    server.shutdown().await;
    let producing = async {
        let hasty = hasty(&url);
        let loading = async || {
            let tried = hasty.look_up(&orders(), ["due"]).await;
            tried.is_err_and(|error| error.kind() == ErrorKind::Unavailable && error.is_transient())
        };
        eventually(PATIENCE, "a producer to be told LOADING", loading).await;
        let _ = schedule.arm(&orders(), ["new"], Duration::ZERO, &String::new()).await.unwrap();
    };
    tokio::join!(server.restart(), producing);
    tally.until(2).await;
    tally.assert_each_once(2);
    running.stop().await.unwrap();
}

/// Somebody's script that runs for ever: we wait, and do not kill it.
#[tokio::test(flavor = "multi_thread")]
async fn busy_is_waited_for() {
    let server = Server::builder().config("busy-reply-threshold", "50").start().await;
    let scene = Scene::on(server, orders()).await;
    scene.proves_well("before").await;
    scene.arm("due", SOON).await;
    let mut connection = scene.server.conn().await;
    let mut console = scene.server.conn().await;
    let looping = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<Value>(&mut connection).await
    });
    let busy = async || {
        let pong: redis::RedisResult<Value> = redis::cmd("PING").query_async(&mut console.clone()).await;
        pong.is_err_and(|error| error.code() == Some("BUSY"))
    };
    eventually(PATIENCE, "the server to be busy", busy).await;
    assert_eq!(scene.refusal().await.kind(), ErrorKind::Unavailable);
    scene.complains().await;
    redis::cmd("SCRIPT").arg("KILL").exec_async(&mut console).await.unwrap();
    assert!(looping.await.unwrap().is_err());
    scene.tally.until(2).await;
    scene.proves_well("after").await;
    scene.tally.assert_each_once(3);
    scene.stop().await;
}

/// Scripts are gone between any two calls; nothing of what they do is.
#[tokio::test(flavor = "multi_thread")]
async fn noscript_over_and_over_loses_and_doubles_nothing() {
    let (server, schedule) = server_and_schedule().await;
    let topic = orders().retry(Backoff::fixed(Duration::from_millis(5)));
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let mut flusher = server.conn().await;
    let flushing = tokio::spawn(async move {
        let mut flushes = 0_u64;
        while stopped.try_recv().is_err() {
            redis::cmd("SCRIPT").arg("FLUSH").arg("SYNC").exec_async(&mut flusher).await.unwrap();
            flushes += 1;
        }
        flushes
    });
    let tally = Tally::default();
    let running = Running::start(listener(&server).on(topic.clone(), tally.handler()));
    for n in 0..200 {
        let id = n.to_string();
        let armed = schedule.arm(&topic, [&id], Duration::from_millis(n), &String::new()).await.unwrap();
        assert!(armed.is_armed(), "{armed:?}");
        if n % 10 == 0 {
            let _ = schedule
                .arm(&topic, [format!("c{n}")], Duration::from_secs(60), &String::new())
                .await
                .unwrap();
            assert_eq!(schedule.cancel(&topic, [format!("c{n}")]).await.unwrap(), Cancelled::Cancelled);
        }
    }
    tally.until(200).await;
    running.stop().await.unwrap();
    stop.send(()).unwrap();
    assert!(flushing.await.unwrap() > 200);
    tally.assert_each_once(200);
    let left = server.cmd(&["HLEN", super::scene::names(&topic).key("timers")]).await;
    assert_eq!(left, Value::Int(0));
}
