//! What the library says while all this happens: no payload, no password, no
//! control character, and no more than it has to.

use std::time::Duration;

use bytes::Bytes;
use keylapse::stats::Stats;
use keylapse::{Done, ErrorKind, Failure, Lapse, Listener, NewArm, Schedule, Topic};
use keylapse_support::{Proxy, Server, eventually};
use keylapse_wire::names::WIRE_VERSION;

use super::scene::{Tally, orders};
use crate::server::capture::Capture;
use crate::server::support::{PATIENCE, Running, listener, until_dead};

const SECRET: &str = "hunter2";

/// Everything in this folder, in short, with secrets and controls in all places
/// where somebody might put them.
#[tokio::test]
async fn no_payload_password_or_control_character_reaches_the_log() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    server.cmd(&["ACL", "SETUSER", "keylapse", &format!(">{SECRET}")]).await;
    let url = server.url_for("keylapse", SECRET);
    let schedule = Schedule::connect(&url).await.unwrap();
    let topic = Topic::<u32>::named("numbers", "app:number:{id}").unwrap().max_attempts(2);
    let topic = topic.undecodable_retention(Duration::from_millis(100));
    let raw = Topic::raw_named("numbers", "app:number:{id}").unwrap();
    let running = Running::start(Listener::builder(&url).on(topic.clone(), |lapse: Lapse<u32>| async move {
        match lapse.payload() {
            1 => panic!("as\x1b[31mked\n"),
            2 => Err(Failure::dead("no\r\n\x07")),
            _ => Ok(Done),
        }
    }));
    let odd = "\x1b[31m\n\0\u{202e}".to_owned() + &"x".repeat(3000);
    let payloads: [&[u8]; 5] = [b"1", b"2", b"3", b"hunter2", b"{\"hunter2\":\"\x1b[31m\"}"];
    for (n, payload) in payloads.into_iter().enumerate() {
        let payload = Bytes::from_static(payload);
        let _ = schedule.arm(&raw, [format!("{n}{odd}")], Duration::from_millis(5), &payload).await.unwrap();
    }
    until_dead(&schedule, &topic, 4).await;
    for theirs in [odd.as_bytes(), b"\xff\xfe\n\x1b"] {
        server.cmd(&[&b"PUBLISH"[..], b"__keyevent@0__:expired", theirs]).await;
    }
    server.cmd(&["HSET", "keylapse:{numbers/0}:meta", "v", "\x1b[31m\n"]).await;
    let error = schedule.arm(&topic, ["4"], Duration::ZERO, &4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WireVersion);
    server.cmd(&["HSET", "keylapse:{numbers/0}:meta", "v", &WIRE_VERSION.to_string()]).await;
    server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    Schedule::connect(&server.url_for("keylapse", "hunter2wrong")).await.unwrap_err();
    let _ = schedule.arm(&topic, ["5"], Duration::ZERO, &5).await.unwrap();
    running.until("the last one", |stats| stats.total().handled == 2).await;
    running.stop().await.unwrap();
    log.assert_is_clean(SECRET);
    let lines = log.lines().join("\n");
    assert!(lines.contains(r"app:number:0\x1b[31m\n\x00\xe2\x80\xae"), "keys are shown, escaped: {lines}");
    assert!(lines.contains("… and "), "and cut: {lines}");
    assert!(lines.contains("as\\u{1b}[31mked\\n"), "what handlers say is escaped, too: {lines}");
}

#[tokio::test]
async fn a_topic_with_keys_like_ours_is_warned_of_once_its_listeners_have_ended() {
    let (server, (log, _guard)) = (Server::start().await, Capture::start());
    let url = &server.app_url();
    let schedule = Schedule::connect(url).await.unwrap();
    let before = Topic::<String>::new("app:order:{id}").unwrap();
    let after = || Topic::<String>::new("app:{kind}:{id}").unwrap();
    let starts = async |topic: Topic<String>| {
        let running = Running::start(Listener::builder(url).on(topic, Tally::default().handler()));
        running.until_anchored().await;
        running
    };
    let theirs = starts(before.clone()).await;
    for (id, delay) in [("now", Duration::ZERO), ("later", Duration::from_secs(3600))] {
        let armed = schedule.arm(&before, [id], delay, &String::new()).await.unwrap();
        assert!(armed.is_armed());
    }
    theirs.until("the first", |stats| stats.total().handled == 1).await;
    let reported = async || !schedule.serving(&before).await.unwrap().is_empty();
    eventually(PATIENCE, "it says that it listens", reported).await;
    starts(after()).await.stop().await.unwrap();
    assert_eq!(log.loud("no listener seems to serve it"), 0, "{:#?}", log.lines());
    theirs.stop().await.unwrap();
    // What can be no pattern is left out: the list of topics is no more to be trusted than anything else.
    let forged = r#"{"name":"forged","pattern":"app:\u001b[31m:{id}","partitions":1,"marker_keys":true}"#;
    server.cmd(&["HSET", "keylapse:topics", "forged", forged]).await;
    server.cmd(&["ZADD", "keylapse:{forged/0}:due", "1", "app:x:1"]).await;
    starts(after()).await.stop().await.unwrap();
    assert_eq!(log.loud("no listener seems to serve it"), 1, "{:#?}", log.lines());
    log.assert_is_clean("app:x:1");
}

/// A user with `~* +@all` has no channels: what it arms is found by sweeps, and it has to be told.
#[tokio::test]
async fn a_producer_without_the_right_to_publish_is_told_so_and_so_is_the_log() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let admin = async |words: &[&str]| server.cmd(&[&["ACL", "SETUSER", "producer"], words].concat()).await;
    admin(&["on", ">pass", "~*", "+@all"]).await;
    let schedule = Schedule::connect(&server.url_for("producer", "pass")).await.unwrap();
    let topic = orders();
    let running = Running::start(listener(&server).on(topic.clone(), Tally::default().handler_that_fails(9)));
    running.until_anchored().await;
    let arm = async |id: &str, after| {
        let armed = schedule.arm(&topic, [id], after, &String::new()).await.unwrap();
        armed.receipt().unwrap().wake_up_error.clone()
    };
    let (hour, soon) = (Duration::from_secs(3600), Duration::from_millis(50));
    let untold = arm("1", hour).await.expect("it is said");
    assert_eq!(untold.kind(), ErrorKind::Permission);
    let text = untold.to_string();
    assert!(text.contains("+spublish") && text.contains("&keylapse:*"), "{text}");
    assert_eq!(arm("2", 2 * hour).await, None, "there is nothing to tell: another comes first");
    assert!(schedule.reschedule(&topic, ["1"], 10 * soon).await.is_ok(), "that is refused in silence");
    assert_eq!(log.loud("grant this user +spublish"), 1, "{:?}", log.lines());
    // A fence is not heard either: the handler hears of its end when its lease is renewed.
    assert!(arm("3", soon).await.is_some());
    running.until("the sweep to find it", |stats| stats.total().failed >= 1).await;
    let lines = log.lines().join("\n");
    admin(&["&keylapse:*"]).await;
    assert_eq!(arm("4", Duration::from_millis(1)).await, None, "{lines}");
    running.stop().await.unwrap();
}

/// The server is away for some seconds, and three topics with eight partitions
/// each would like to know where it is: that is one piece of news.
#[tokio::test]
async fn an_outage_is_a_few_lines_however_many_partitions_there_are() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let tally = Tally::default();
    let topics: Vec<_> = (0..3)
        .map(|n| Topic::<String>::named(&format!("t{n}"), &format!("app:t{n}:{{id}}")).unwrap().partitions(8))
        .collect();
    let builder = Listener::builder(proxy.app_url());
    let running = Running::start(
        topics.iter().fold(builder, |builder, topic| builder.on(topic.clone(), tally.handler())),
    );
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    running.until_anchored().await;
    for topic in &topics {
        let delay = |n| Duration::from_millis(1000 + 20 * n);
        let arms = (0..32).map(|n: u64| NewArm::new([n.to_string()], delay(n), String::new()));
        assert!(schedule.arm_many(topic, arms).await.unwrap().iter().all(Result::is_ok));
    }
    // Who has heard of the last has heard of all.
    let _ = schedule.arm(&topics[2], ["last"], Duration::ZERO, &String::new()).await.unwrap();
    tally.until(1).await;
    proxy.refuse().await;
    proxy.cut();
    let tried = |stats: &Stats| stats.total().claim_errors >= 20 && stats.listener().sweep_errors > 2;
    running.until("most partitions to have tried in vain", tried).await;
    let said = log.loud("");
    assert_eq!(said, 1, "{:#?}", log.lines());
    proxy.accept().await;
    tally.until(97).await;
    running.stop().await.unwrap();
    let lines = log.lines();
    assert!(lines.iter().any(|line| line.contains("the server is back")), "{lines:#?}");
    log.assert_is_clean(SECRET);
}

/// As long as nobody is there at the start.
#[tokio::test]
async fn a_listener_that_waits_for_its_server_says_so_once() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.refuse().await;
    let running = Running::start(Listener::builder(proxy.app_url()).on(orders(), Tally::default().handler()));
    let waiting = async || log.loud("waiting for the server") > 0;
    eventually(PATIENCE, "it to say that it waits", waiting).await;
    tokio::time::sleep(Duration::from_millis(500)).await; // several tries more
    assert_eq!(log.loud("waiting for the server"), 1);
    running.stop().await.unwrap();
}

/// A parked partition names the key at fault, once, and says when it is repaired.
#[tokio::test]
async fn a_parked_partition_is_an_error_that_names_the_key_and_an_end() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let tally = Tally::default();
    let running = Running::start(listener(&server).on(orders(), tally.handler()));
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let _ = schedule.arm(&orders(), ["1"], Duration::from_secs(1), &String::new()).await.unwrap();
    server.cmd(&["SET", "keylapse:{orders/0}:claimers", "theirs"]).await;
    let parked = async || log.loud("parked") > 0;
    eventually(PATIENCE, "it to be reported", parked).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // several tries more
    assert_eq!(log.loud(r#"(key "keylapse:{orders/0}:claimers")"#), 1, "{:#?}", log.lines());
    server.cmd(&["DEL", "keylapse:{orders/0}:claimers"]).await;
    tally.until(1).await;
    running.stop().await.unwrap();
    assert!(log.lines().iter().any(|line| line.contains("no longer parked")), "{:#?}", log.lines());
}
