//! Proxies between keylapse and its server: such as hand on bytes, and such as know some commands alone.

use std::time::Duration;

use bytes::Bytes;
use keylapse::timers::MarkerKey;
use keylapse::{Cancelled, Done, ErrorKind, Expired, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::{Denial, Middleman, Proxy, Server, command, eventually, skipped_on_a_cluster};
use redis::Value;

use super::hostile::scene::{Tally, orders};
use super::support::{PATIENCE, Running, refusal, show_log};

const SOON: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_secs(3600);

/// The commands that twemproxy 0.5.0 lets through, of those that keylapse may send. Scripts have to name a key.
fn twemproxy_knows(words: &[Bytes]) -> bool {
    const KNOWN: [&str; 26] = [
        "PING", "EVAL", "EVALSHA", "GET", "SET", "DEL", "UNLINK", "EXISTS", "TYPE", "PEXPIRE", "PTTL",
        "HGET", "HMGET", "HSET", "HDEL", "HLEN", "HSCAN", "HGETALL", "ZADD", "ZREM", "ZRANGE", "ZSCORE",
        "ZCARD", "ZCOUNT", "ZSCAN", "LPUSH",
    ];
    let name = String::from_utf8_lossy(&words[0]).to_uppercase();
    KNOWN.contains(&&*name) && !(name.starts_with("EVAL") && words.get(2).is_some_and(|count| count == "0"))
}

/// The same of Envoy, which knows some more.
fn envoy_knows(words: &[Bytes]) -> bool {
    twemproxy_knows(words)
        || ["AUTH", "TIME"].iter().any(|name| words[0].eq_ignore_ascii_case(name.as_bytes()))
}

/// Timers without trigger keys are armed, cancelled, retried and run once each, all through this URL.
pub(crate) async fn timers_run_through(url: &str) {
    show_log();
    let topic = Topic::<String>::named("through", "app:through:{id}")
        .expect("a topic")
        .marker_keys(false)
        .partitions(2)
        .retry(keylapse::Backoff::fixed(SOON));
    let schedule = Schedule::connect(url).await.expect("a schedule");
    let tally = Tally::default();
    let running = Running::start(Listener::builder(url).on(topic.clone(), tally.handler_that_fails(1)));
    for n in 0..20 {
        let armed = schedule.arm(&topic, [n.to_string()], SOON, &String::new()).await.expect("it is armed");
        assert_eq!(armed.receipt().expect("it is armed").marker, MarkerKey::None);
        let _ = schedule.arm(&topic, [format!("c{n}")], LATER, &String::new()).await.expect("it is armed");
        assert_eq!(
            schedule.cancel(&topic, [format!("c{n}")]).await.expect("an answer"),
            Cancelled::Cancelled
        );
    }
    tally.until(20).await;
    running.until("all to be settled", |stats| stats.total().handled == 20).await;
    running.stop().await.expect("it stops");
    tally.assert_each(20, 2);
}

async fn behind_a_proxy() -> (Server, Proxy) {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    (server, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_run_where_scripts_can_be_called_and_not_loaded() {
    for denial in [Denial::Error("ERR unknown command 'SCRIPT'"), Denial::Close] {
        let (_server, proxy) = behind_a_proxy().await;
        proxy.deny(command("SCRIPT"), denial);
        timers_run_through(&proxy.app_url()).await;
    }
}

/// It closes the connection, with whatever is under way on it.
#[tokio::test(flavor = "multi_thread")]
async fn timers_run_behind_what_hangs_up_at_each_command_that_twemproxy_does_not_know() {
    if skipped_on_a_cluster("there is no twemproxy") {
        return;
    }
    let (_server, proxy) = behind_a_proxy().await;
    proxy.deny(|words| !twemproxy_knows(words), Denial::Close);
    timers_run_through(&proxy.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_run_behind_what_answers_errors_to_each_command_that_envoy_does_not_know() {
    if skipped_on_a_cluster("there is no Envoy") {
        return;
    }
    for words in ["unsupported command", "ERR unknown command", "invalid request"] {
        let (_server, proxy) = behind_a_proxy().await;
        proxy.deny(|words| !envoy_knows(words), Denial::Error(words));
        timers_run_through(&proxy.url()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_lets_no_script_through_is_named_with_the_command() {
    if skipped_on_a_cluster("its nodes are asked for the map in between") {
        return;
    }
    let scripts = |words: &[Bytes]| words[0].to_ascii_uppercase().starts_with(b"EVAL");
    for (denial, kind) in [
        (Denial::Error("ERR unknown command 'EVALSHA'"), ErrorKind::Unsupported),
        (Denial::Error("unsupported command 'evalsha'"), ErrorKind::Unsupported),
        (Denial::Close, ErrorKind::Unreachable),
    ] {
        let (_server, proxy) = behind_a_proxy().await;
        proxy.deny(scripts, denial);
        let error = Schedule::connect(proxy.app_url()).await.map(|_| ()).expect_err("it cannot be used");
        let said = error.to_string().to_lowercase();
        assert_eq!(error.kind(), kind, "{said}");
        assert!(said.contains("evalsha") && said.contains("proxy"), "{said}");
        if denial != Denial::Close {
            let error =
                refusal(Listener::builder(proxy.app_url()).on(orders(), Tally::default().handler())).await;
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}

/// Which may close a connection while nothing is said there, as most do.
#[tokio::test(flavor = "multi_thread")]
async fn through_haproxy_that_closes_idle_connections_timers_run_and_attached_keys_are_heard() {
    show_log();
    let server = Server::builder().config("notify-keyspace-events", "Ex").start().await;
    let Some(haproxy) = Middleman::haproxy(&server, Duration::from_secs(1)).await else { return };
    timers_run_through(&haproxy.app_url()).await;

    let (orders, keys) = (orders(), Topic::<String>::new("app:session:{id}").expect("a topic"));
    let (tally, ended) = (Tally::default(), Tally::default());
    let ends = {
        let ended = ended.clone();
        move |lapse: Lapse<Expired<String>>| {
            ended.count(lapse.key());
            std::future::ready(Ok::<_, Failure>(Done))
        }
    };
    let builder = Listener::builder(haproxy.app_url()).on(orders.clone(), tally.handler()).attach(keys, ends);
    let running = Running::start(builder);
    running.until_anchored().await;
    let schedule = Schedule::connect(haproxy.app_url()).await.expect("a schedule");
    for n in 0..20 {
        let delay = Duration::from_millis(250 * n);
        let _ = schedule.arm(&orders, [n.to_string()], delay, &String::new()).await.expect("it is armed");
        let life = (3000 + 200 * n).to_string();
        server.cmd(&["SET", &format!("app:session:{n}"), "x", "PX", &life]).await;
    }
    tally.until(20).await;
    ended.until(20).await;
    running.stop().await.expect("it stops");
    tally.assert_each_once(20);
}

#[tokio::test(flavor = "multi_thread")]
async fn through_twemproxy_timers_without_trigger_keys_run() {
    let server = Server::start().await;
    let Some(nutcracker) = Middleman::nutcracker(&server).await else { return };
    timers_run_through(&nutcracker.url()).await;
    let names = server.cmd(&["KEYS", "keylapse:{through/1}:*"]).await;
    assert_ne!(names, Value::Array(Vec::new()), "it was this server");
}

/// An operator reads once that a proxy lets nothing of a listener's through.
#[tokio::test]
async fn a_listener_waits_for_a_proxy_that_hangs_up_at_scripts_and_says_so() {
    if skipped_on_a_cluster("its nodes are asked for the map in between") {
        return;
    }
    let (log, _guard) = super::capture::Capture::start();
    let (_server, proxy) = behind_a_proxy().await;
    proxy.deny(|words| words[0].to_ascii_uppercase().starts_with(b"EVAL"), Denial::Close);
    let running = Running::start(Listener::builder(proxy.app_url()).on(orders(), Tally::default().handler()));
    let said = async || {
        log.lines().iter().any(|line| {
            line.starts_with("WARN") && line.contains("waiting for the server") && line.contains("EVALSHA")
        })
    };
    eventually(PATIENCE, "the proxy to be named", said).await;
    proxy.heal().await;
    running.until_anchored().await;
    running.stop().await.expect("it stops");
}
