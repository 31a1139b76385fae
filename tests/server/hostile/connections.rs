//! Connections that are refused, silent, cut or starved: waited for, reported
//! once, and made good without a restart.

use std::time::Duration;

use keylapse::stats::Stats;
use keylapse::{Client, ErrorKind, Listener, Schedule};
use keylapse_support::{Deadline, Direction, Proxy, Server, eventually, skipped_on_a_cluster};
use redis::Value;

use super::scene::{Scene, Tally, orders, orders_at};
use crate::server::support::{PATIENCE, Running, listener, show_log};

const SOON: Duration = Duration::from_millis(300);

fn client(url: &str, answer_within: Duration) -> Client {
    Client::new(url).unwrap().answer_within(answer_within).unwrap()
}

/// A listener behind a proxy, and a producer that is not.
async fn behind_a_proxy(answer_within: Duration) -> (Scene, Proxy) {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let client = client(&proxy.app_url(), answer_within);
    (Scene::at(server, orders(), client, |builder| builder.grace(SOON)).await, proxy)
}

/// Starts with nobody there, and loses the server once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_waited_for_at_the_start_and_later() {
    show_log();
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.refuse().await;
    let tally = Tally::default();
    let running = Running::start(Listener::builder(proxy.app_url()).on(orders(), tally.handler()));
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let arm = async |id: &str| schedule.arm(&orders(), [id], Duration::ZERO, &String::new()).await.unwrap();
    let _ = arm("before").await;
    let refused = Schedule::connect(&proxy.app_url()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable);
    proxy.accept().await;
    tally.until(1).await;
    proxy.refuse().await;
    proxy.cut();
    let _ = arm("while it is away").await;
    let complained = |stats: &Stats| stats.total().claim_errors + stats.listener().sweep_errors > 0;
    running.until("the loss to be noticed", complained).await;
    proxy.accept().await;
    tally.until(2).await;
    running.stop().await.unwrap();
    tally.assert_each_once(2);
}

/// What is claimed when the line goes dead is claimed once, not twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_goes_dead_without_a_sign_is_given_up_and_replaced() {
    let (scene, proxy) = behind_a_proxy(SOON).await;
    scene.proves_well("before").await;
    scene.running.until_anchored().await;
    for n in 0..20 {
        scene.arm(n.to_string(), Duration::from_millis(50 * n)).await;
    }
    proxy.stall(Direction::Replies);
    scene.until("the silence to be noticed", |stats| stats.claim_errors > 0).await;
    proxy.resume();
    proxy.cut();
    scene.tally.until(21).await;
    scene.proves_well("after").await;
    scene.tally.assert_each_once(22);
    scene.stop().await;
}

/// The kernel goes on accepting connections for a server that is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_waited_for_and_nothing_runs_twice() {
    let server = Server::start().await;
    let client = client(&server.app_url(), SOON);
    let scene = Scene::at(server, orders(), client, |builder| builder).await;
    // It is all there by now: who stops the server while connections are made tests something else.
    scene.proves_well("before").await;
    scene.running.until_anchored().await;
    for n in 0..20 {
        scene.arm(n.to_string(), Duration::from_secs(1)).await;
    }
    scene.server.stop();
    scene.until("the silence to be noticed", |stats| stats.claim_errors > 0).await;
    scene.server.cont();
    scene.tally.until(21).await;
    scene.proves_well("after").await;
    scene.tally.assert_each_once(22);
    scene.stop().await;
}

/// With no server to settle anything with: within the grace time, and a little
/// more for what has no answer yet.
#[tokio::test(flavor = "multi_thread")]
async fn timed_a_listener_stops_in_time_though_its_server_is_away_or_silent() {
    for silent in [false, true] {
        let (scene, proxy) = behind_a_proxy(Duration::from_secs(5)).await;
        scene.proves_well("1").await;
        if silent {
            proxy.stall(Direction::Both);
        } else {
            proxy.refuse().await;
            proxy.cut();
            let noticed = |stats: &Stats| stats.listener().sweep_errors > 0;
            scene.running.until("the loss to be noticed", noticed).await;
        }
        let asked = std::time::Instant::now();
        scene.stop().await;
        assert!(asked.elapsed() < Duration::from_secs(8), "silent {silent}: {:?}", asked.elapsed());
    }
}

/// Every connection, again and again, while timers fall due: each is done once.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_killed_over_and_over_lose_and_double_nothing() {
    let scene = Scene::new().await;
    for n in 0..200_u64 {
        scene.arm(n.to_string(), Duration::from_millis(100 + 5 * n)).await;
    }
    let mut killer = scene.server.conn().await;
    let (mut killed, patience) = (0, Deadline::after(PATIENCE));
    // Also where the machine stood still, and they fall due all at once.
    while scene.stats().handled < 200 || killed <= 10 {
        assert!(!patience.is_over(), "{killed} connections killed");
        for kind in ["normal", "pubsub"] {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
            killed += kill.query_async::<i64>(&mut killer).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // the rate of the killing
    }
    scene.tally.until(200).await;
    scene.proves_well("after").await;
    scene.tally.assert_each_once(201);
    scene.stop().await;
}

/// No room for another client: not taken for a wrong password, and waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_for_another_client_is_waited_for() {
    show_log();
    let server = Server::start().await;
    let console = server.conn().await;
    let set = async |limit: &str| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxclients").arg(limit).exec_async(&mut console.clone()).await.unwrap();
    };
    let turned_away = async || {
        let stats: redis::InfoDict =
            redis::cmd("INFO").arg("stats").query_async(&mut console.clone()).await.unwrap();
        stats.get::<u64>("rejected_connections").unwrap()
    };
    set("1").await;
    for url in [server.url(), server.app_url()] {
        let error = Schedule::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("maxclients") && error.is_transient(), "{error}");
    }
    let tally = Tally::default();
    let running = Running::start(listener(&server).on(orders(), tally.handler()));
    let before = turned_away().await;
    eventually(PATIENCE, "the listener to be turned away", async || turned_away().await > before).await;
    set("100").await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let _ = schedule.arm(&orders(), ["1"], Duration::ZERO, &String::new()).await.unwrap();
    tally.until(1).await;
    running.stop().await.unwrap();
}

/// Cleared at run time, by whoever shares the server: noticed, never set behind
/// the operator's back, and of no consequence for timers of ours.
#[tokio::test(flavor = "multi_thread")]
async fn notifications_cleared_at_run_time_are_a_gap_and_make_nobody_late() {
    let scene = Scene::new().await;
    scene.running.until("events to flow", |stats| stats.listener().anchored == 1).await;
    scene.server.cmd(&["CONFIG", "SET", "notify-keyspace-events", ""]).await;
    let gaps = async || scene.running.stats.listener().gaps > 0;
    eventually(PATIENCE, "the silence to be noticed", gaps).await;
    for n in 0..50_u64 {
        scene.arm(n.to_string(), Duration::from_millis(50 + 5 * n)).await;
    }
    scene.tally.until(50).await;
    let stats = scene.stats();
    assert_eq!((stats.announced, stats.by_timer + stats.by_sweep), (0, 50));
    assert!(stats.by_timer > stats.by_sweep, "deadlines are known: {stats:?}");
    let flags = scene.server.cmd(&["CONFIG", "GET", "notify-keyspace-events"]).await;
    let flags: Vec<String> = redis::from_redis_value(flags).unwrap();
    assert_eq!(flags[1], "");
    // A busy machine may have lost and found the stream before.
    let before = scene.running.stats.listener().anchored;
    scene.server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
    scene.running.until("events to flow again", |stats| stats.listener().anchored > before).await;
    scene.stop().await;
}

/// More than the server keeps for a subscriber, from one script: it is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_is_cut_off_for_being_slow_comes_back_and_misses_no_timer() {
    let server = Server::builder().config("client-output-buffer-limit", "pubsub 64kb 0 0").start().await;
    let scene = Scene::on(server, orders()).await;
    scene.running.until("events to flow", |stats| stats.listener().anchored == 1).await;
    for n in 0..20_u64 {
        scene.arm(n.to_string(), Duration::from_millis(10 * n)).await;
    }
    let burst = "local long = string.rep('x', 4000)
        for i = 1, 1000 do redis.call('PUBLISH', '__keyevent@0__:expired', long .. i) end";
    scene.server.cmd(&["EVAL", burst, "0"]).await;
    scene.running.until("it to be back", |stats| stats.listener().anchored == 2).await;
    assert!(scene.running.stats.listener().gaps > 0);
    scene.tally.until(20).await;
    scene.tally.assert_each_once(20);
    let clients: String = redis::from_redis_value(scene.server.cmd(&["INFO", "stats"]).await).unwrap();
    assert!(clients.contains("total_connections_received"), "{clients}");
    scene.stop().await;
}

/// The database in the URL is the one that is listened to.
#[tokio::test(flavor = "multi_thread")]
async fn another_database_is_another_world() {
    if skipped_on_a_cluster("there is database 0 alone") {
        return;
    }
    let server = Server::start().await;
    let url = format!("{}3", server.url());
    let (schedule, tally, running) = orders_at(&url).await;
    let _ = schedule.arm(&orders(), ["1"], SOON, &String::new()).await.unwrap();
    running.until("its expiry to be heard", |stats| stats.total().announced == 1).await;
    tally.until(1).await;
    running.stop().await.unwrap();
    assert_eq!(server.cmd(&["DBSIZE"]).await, Value::Int(0), "nothing in database 0");
    let no_such = Schedule::connect(&format!("{}99", server.url())).await.unwrap_err();
    assert!(no_such.to_string().contains("out of range"), "{no_such}");
}
