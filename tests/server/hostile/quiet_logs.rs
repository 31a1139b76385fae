//! What the library says while all this happens: no payload, no password, no
//! control character, and no more than it has to.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylapse::internals::names::WIRE_VERSION;
use keylapse::{Done, ErrorKind, Failure, Lapse, Listener, NewArm, Schedule, Stats, Topic};
use keylapse_support::{Proxy, Server, eventually};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::scene::{Tally, orders};
use crate::support::{PATIENCE, Running, listener, until_dead};

const SECRET: &str = "hunter2";

/// Everything that is said on this thread, at any level, as it was said: the
/// usual formatters escape some of it themselves.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value}", field.name()).unwrap();
    }
}

impl<S: tracing::Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut line = Line(format!("SPAN {}", attributes.metadata().name()));
        attributes.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

impl Capture {
    /// For tests on one thread: spawned tasks then speak here, too.
    fn start() -> (Self, DefaultGuard) {
        let capture = Self::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(capture.clone()));
        (capture, guard)
    }

    fn lines(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|line| !line.contains("mio::") && !line.contains("tokio")).cloned().collect()
    }

    /// Lines that say this, and are meant for an operator.
    fn loud(&self, what: &str) -> usize {
        let loud = |line: &&String| line.starts_with("WARN") || line.starts_with("ERROR");
        self.lines().iter().filter(loud).filter(|line| line.contains(what)).count()
    }

    fn assert_is_clean(&self) {
        for line in self.lines() {
            assert!(!line.contains(SECRET), "a secret in the log: {line}");
            assert!(!line.contains(|c: char| c.is_control()), "a control character in the log: {line:?}");
            assert!(line.len() < 1000, "a line of {} bytes: {line}", line.len());
        }
    }
}

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
    log.assert_is_clean();
    let lines = log.lines().join("\n");
    assert!(lines.contains(r"app:number:0\x1b[31m\n\x00\xe2\x80\xae"), "keys are shown, escaped: {lines}");
    assert!(lines.contains("… and "), "and cut: {lines}");
    assert!(lines.contains("as\\x1b[31mked\\n"), "what handlers say is escaped, too: {lines}");
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
    proxy.refuse().await;
    proxy.cut();
    let tried = |stats: &Stats| stats.total().claim_errors >= 20 && stats.listener().sweep_errors > 2;
    running.until("most partitions to have tried in vain", tried).await;
    let said = log.loud("");
    assert!((1..=6).contains(&said), "{said} lines: {:#?}", log.lines());
    proxy.accept().await;
    tally.until(96).await;
    running.stop().await.unwrap();
    let lines = log.lines();
    assert!(lines.iter().any(|line| line.contains("claims are answered again")), "{lines:#?}");
    log.assert_is_clean();
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
    server.cmd(&["SET", "keylapse:{orders/0}:slots", "theirs"]).await;
    let parked = async || log.loud("parked") > 0;
    eventually(PATIENCE, "it to be reported", parked).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // several tries more
    assert_eq!(log.loud(r#"(key "keylapse:{orders/0}:slots")"#), 1, "{:#?}", log.lines());
    server.cmd(&["DEL", "keylapse:{orders/0}:slots"]).await;
    tally.until(1).await;
    running.stop().await.unwrap();
    assert!(log.lines().iter().any(|line| line.contains("no longer parked")), "{:#?}", log.lines());
}
