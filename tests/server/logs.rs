//! What an operator reads at the level of info.

use std::time::Duration;

use keylapse::{Backoff, Done, Expired, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::{Proxy, Server, Then, eventually};

use crate::server::capture::Capture;
use crate::server::support::{PATIENCE, Running, listener, until_dead};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A line that says this; the test fails if there is not exactly one.
#[track_caller]
fn only(log: &Capture, what: &str) -> String {
    let lines: Vec<_> = log.lines().into_iter().filter(|line| line.contains(what)).collect();
    assert_eq!(lines.len(), 1, "{what}: {:#?}", log.lines());
    lines[0].clone()
}

async fn refuse(_: Lapse<String>) -> Result<Done, Failure> {
    Err(Failure::retry(format!("outermost: {}: connection refused", "x".repeat(5000))))
}

#[tokio::test]
async fn a_failed_attempt_says_when_it_is_retried_and_how_many_are_left_and_a_dead_letter_how_many_there_were()
 {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let topic = Topic::<String>::new("app:mail:{id}").unwrap();
    let topic = topic.retry(Backoff::table([Duration::from_millis(50)])).max_attempts(2);
    let running = Running::start(listener(&server).on(topic.clone(), refuse));
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let _ = schedule.arm(&topic, "1", Duration::ZERO, &String::new()).await.unwrap();
    until_dead(&schedule, &topic, 1).await;
    running.stop().await.unwrap();
    let failed: Vec<_> = log.lines().into_iter().filter(|line| line.contains("attempt failed")).collect();
    assert_eq!(failed.len(), 2, "{:#?}", log.lines());
    let said = [
        ["INFO", "topic=app.mail", "key=\"app:mail:1\"", "attempt=1", "attempts_left=1", "retry_in=50ms"],
        ["INFO", "topic=app.mail", "key=\"app:mail:1\"", "attempt=2", "attempts_left=0", "kind=error"],
    ];
    for (line, words) in failed.iter().zip(said) {
        words.iter().for_each(|word| assert!(line.contains(word), "{word}: {line}"));
    }
    assert!(!failed[1].contains("retry_in"), "{}", failed[1]);
    let dead = only(&log, "dead letter");
    for word in ["WARN", "topic=app.mail", "key=\"app:mail:1\"", "reason=exhausted", "attempts=2"] {
        assert!(dead.contains(word), "{word}: {dead}");
    }
    for line in [&failed[0], &failed[1], &dead] {
        assert!(line.contains("outermost: xxx") && line.contains("xxx: connection refused"), "{line}");
        assert!(line.len() < 1024 + 500, "{} bytes", line.len());
    }
}

#[tokio::test]
async fn a_topic_that_is_registered_with_another_pattern_is_named() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    for pattern in ["app:mail:{id}", "app:mail:{id}", "app:mail:{of}:{id}"] {
        let topic = Topic::<String>::named("mail", pattern).unwrap();
        let running = Running::start(listener(&server).on(topic, refuse));
        running.until_anchored().await;
        running.stop().await.unwrap();
    }
    let said = only(&log, "the topic was registered with another pattern");
    for word in ["WARN", "topic=mail", "before=app:mail:{id}", "pattern=app:mail:{of}:{id}"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// Whatever notices it first: a claim, a sweep, the subscription, a settlement.
#[tokio::test]
async fn a_lost_server_is_named_once_and_so_is_its_return() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let topic = Topic::<String>::new("app:mail:{id}").unwrap().partitions(4);
    let slow = async |_: Lapse<String>| {
        tokio::time::sleep(secs(1)).await;
        Ok::<_, Failure>(Done)
    };
    let attached = Topic::<String>::new("app:order:{id}").unwrap();
    let ignore = async |_: Lapse<Expired<String>>| Ok::<_, Failure>(Done);
    let builder = Listener::builder(proxy.app_url()).on(topic.clone(), slow).attach(attached, ignore);
    let running = Running::start(builder);
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    running.until_anchored().await;
    for n in 0..20 {
        let _ = schedule.arm(&topic, n, Duration::from_millis(100 * n), &String::new()).await.unwrap();
    }
    running.until("some to run", |stats| stats.total().by_timer > 5).await;
    for round in 1..=2 {
        let anchored = running.stats.listener().anchored;
        proxy.refuse().await;
        proxy.cut();
        running.until("it to try in vain", move |stats| stats.listener().sweep_errors > 3 * round).await;
        proxy.accept().await;
        running.until("events to flow", move |stats| stats.listener().anchored > anchored).await;
        let count = |what| log.lines().iter().filter(|line| line.contains(what)).count();
        eventually(PATIENCE, "its return", async || count("the server is back") == round as usize).await;
        assert_eq!(count("the server is lost"), round as usize, "{:#?}", log.lines());
        assert_eq!(log.loud(""), round as usize, "nothing else: {:#?}", log.lines());
    }
    let lost = log.lines().into_iter().find(|line| line.contains("the server is lost")).unwrap();
    assert!(
        lost.starts_with("WARN") && lost.contains("server=") && lost.contains(&format!(":{} ", proxy.port())),
        "{lost}"
    );
    running.until("all to run", |stats| stats.total().handled == 20).await;
    running.stop().await.unwrap();
}

/// The call that makes the canary detects the loss first. The subscription is lost as in any other case.
#[tokio::test]
async fn a_line_that_breaks_while_a_canary_is_made_is_no_warning_after_an_outage() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let topic = Topic::<String>::new("app:mail:{id}").unwrap();
    let handler = async |_: Lapse<String>| Ok::<_, Failure>(Done);
    let running = Running::start(Listener::builder(proxy.app_url()).on(topic, handler));
    running.until_anchored().await;
    proxy.refuse().await;
    proxy.cut();
    running.until("it to try in vain", |stats| stats.listener().sweep_errors > 4).await;
    let anchored = running.stats.listener().anchored;
    proxy.accept().await;
    running.until("events to flow", move |stats| stats.listener().anchored > anchored).await;
    let before = log.loud("");
    proxy.lose_reply(|words| words.iter().any(|word| word.starts_with(b"keylapse:{heartbeat")), Then::Reset);
    proxy.until_lost(1).await;
    running.until("events to flow again", move |stats| stats.listener().anchored > anchored + 1).await;
    assert_eq!(log.loud(""), before, "{:#?}", log.lines());
    running.stop().await.unwrap();
}

/// That is what redis.conf sets, and what the README asks for.
#[tokio::test]
async fn with_ex_alone_what_is_normal_is_no_warning() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
    let (orders, mails) =
        (Topic::<String>::new("app:order:{id}").unwrap(), Topic::<String>::new("app:mail:{id}").unwrap());
    let start = || {
        let expired = async |_: Lapse<Expired<String>>| Ok::<_, Failure>(Done);
        let handled = async |_: Lapse<String>| Ok::<_, Failure>(Done);
        Running::start(listener(&server).attach(orders.clone(), expired).on(mails.clone(), handled))
    };
    let (first, second) = (start(), start());
    first.until_anchored().await;
    second.until_anchored().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    for n in 0..20 {
        let key = format!("app:order:{n}");
        server.cmd(&["SET", &key, "value", "PX", "300"]).await;
        let _ = schedule.arm(&mails, n, Duration::from_millis(300), &String::new()).await.unwrap();
    }
    server.cmd(&["DEL", "app:order:1"]).await;
    server.cmd(&["PERSIST", "app:order:2"]).await;
    let noted = |running: &Running| running.stats.attached("app.order").unwrap().recorded;
    eventually(PATIENCE, "expiries", async || noted(&first) + noted(&second) >= 18).await;
    first.stop().await.unwrap();
    let _ = schedule.arm(&mails, 100, Duration::ZERO, &String::new()).await.unwrap();
    second.until("the last", |stats| stats.total().handled > 0).await;
    second.stop().await.unwrap();
    assert_eq!(log.loud(""), 0, "{:#?}", log.lines());
}

#[tokio::test]
async fn health_names_parked_partitions_and_a_server_that_is_away() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let topic = Topic::<String>::new("app:mail:{id}").unwrap();
    let handled = async |_: Lapse<String>| Ok::<_, Failure>(Done);
    let running = Running::start(Listener::builder(proxy.app_url()).on(topic.clone(), handled));
    let (schedule, health) = (Schedule::connect(&server.app_url()).await.unwrap(), running.stats.health());
    running.until_anchored().await;
    assert!(health.is_ready() && health.heartbeat_received(), "{health:?}");
    server.cmd(&["SET", "keylapse:{app.mail/0}:claimers", "theirs"]).await;
    let _ = schedule.arm(&topic, "1", Duration::ZERO, &String::new()).await.unwrap();
    eventually(PATIENCE, "it to park", async || health.topics()[0].parked == [0]).await;
    let (_, error) = health.topics()[0].last_error.clone().unwrap();
    assert!(error.contains("keylapse:{app.mail/0}:claimers") && health.is_ready(), "{error}");
    eventually(PATIENCE, "it to be behind", async || health.oldest_overdue() > Duration::ZERO).await;
    server.cmd(&["DEL", "keylapse:{app.mail/0}:claimers"]).await;
    eventually(PATIENCE, "it to be repaired", async || health.topics()[0].parked.is_empty()).await;
    proxy.refuse().await;
    proxy.cut();
    eventually(PATIENCE, "the server to be away", async || !health.connected() && !health.is_ready()).await;
    proxy.accept().await;
    eventually(PATIENCE, "its return", async || health.is_ready() && health.heartbeat_received()).await;
    running.stop().await.unwrap();
}
