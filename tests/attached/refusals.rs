//! What is refused and says why, and what looks strange and works.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use keylapse::attach::{KeptValue, WriteBack};
use keylapse::health::EventMode;
use keylapse::{
    Attached, Done, Error, ErrorKind, Failure, Lapse, Listener, ListenerBuilder, Result, Schedule, Topic,
};
use keylapse_support::{Direction, Proxy, Server, Then, eventually};
use redis::Value;

use crate::scene::{
    ALL_FLAGS, Harness, Log, Notes, PATIENCE, Running, enrolled, now, order, orders, orders_with_values,
    server, until_later_key, watched,
};

const NOWHERE: &str = "redis://127.0.0.1:1/";

fn built(attach: impl FnOnce(ListenerBuilder) -> ListenerBuilder) -> Result<Listener> {
    attach(Listener::builder(NOWHERE)).build()
}

async fn done(_: Lapse<Bytes>) -> std::result::Result<Done, Failure> {
    Ok(Done)
}

/// Why it is refused.
fn refused(topic: impl Into<Attached<Bytes>>) -> Error {
    built(|builder| builder.attach(topic, Notes::default().handler())).unwrap_err()
}

#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    println!("{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in {text:?}");
    }
}

#[test]
fn a_pattern_without_a_literal_prefix_is_refused_unless_it_is_allowed() {
    let any = || Topic::raw_named("any", "{what}:{id}").unwrap();
    let error = refused(any());
    assert_eq!(error.kind(), ErrorKind::Invalid);
    says(&error, &["any", "{what}:{id}", "allow_any_prefix"]);
    built(|builder| builder.attach(Attached::new(any()).allow_any_prefix(), Notes::default().handler()))
        .unwrap();
}

#[test]
fn a_topic_that_overlaps_a_managed_one_is_refused_and_both_are_named() {
    let managed = Topic::raw_named("managed", "app:order:{number:[0-9]+}").unwrap();
    let attached = Topic::raw_named("attached", "app:order:{hex:[0-9a-f]+}").unwrap();
    let error =
        built(|builder| builder.on(managed, done).attach(attached, Notes::default().handler())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    says(&error, &["app:order:{number:[0-9]+}", "app:order:{hex:[0-9a-f]+}"]);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let plain = || Attached::new(orders());
    for (topic, words) in [
        (plain().keep_dumps(), ["keep_dumps", "keep_values"]),
        (plain().write_back(WriteBack::unchanged()), ["write_back", "keep_values"]),
        (plain().keep_fields(["a"]), ["keep_fields", "keep_values"]),
        (plain().keep_values(9).keep_fields([""; 0]), ["keep_fields", "keep_all_fields"]),
        (plain().keep_values(9).keep_fields((0..1001).map(|n| n.to_string())), ["keep_fields", "1,000"]),
        (
            plain().keep_values(9).keep_all_fields().write_back(WriteBack::unchanged()),
            ["write_back", "keep_dumps"],
        ),
        (plain().revision(0), ["revision", "at least 1"]),
        (plain().keep_values(9 << 20), ["keep_values", "8 MiB"]),
        (plain().cap(0), ["cap", "at least 1"]),
        (plain().scan_rate(0), ["scan_rate", "at least 1"]),
        (plain().scan_every(Duration::ZERO), ["scan_every", "more than zero"]),
    ] {
        let error = refused(topic);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        says(&error, &words);
        says(&error, &["orders"]);
    }
}

#[tokio::test]
async fn a_timer_cannot_be_armed_on_an_attached_topic() {
    let harness = Harness::with(ALL_FLAGS, orders_with_values(), Notes::handler).await;
    let schedule = Schedule::connect(&harness.server.app_url()).await.unwrap();
    let registered = harness.cmd(&["HGETALL", "keylapse:topics"]).await;
    let error = schedule.arm(&orders(), ["1"], Duration::from_secs(1), &Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    says(&error, &["orders", "attached", "other programs"]);
    assert_eq!(harness.cmd(&["EXISTS", &order("1")]).await, redis::Value::Int(0));
    for what in ["due", "timers", "queued"] {
        let name = format!("keylapse:{{orders/0}}:{what}");
        assert_eq!(harness.cmd(&["EXISTS", &name]).await, redis::Value::Int(0));
    }
    assert_eq!(harness.cmd(&["HGETALL", "keylapse:topics"]).await, registered);
    harness.pass(now()).await;
    assert!(harness.of("1").is_empty());
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_topic_that_is_managed_cannot_be_attached_to() {
    let server = server(ALL_FLAGS).await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let armed = schedule.arm(&orders(), ["1"], Duration::from_secs(600), &Bytes::new()).await.unwrap();
    assert!(armed.is_armed());
    let listener =
        Listener::builder(server.app_url()).attach(orders(), Notes::default().handler()).build().unwrap();
    let ended = tokio::time::timeout(PATIENCE, listener.run_until(pending::<()>())).await;
    let error = ended.expect("it does not start").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    says(&error, &["orders", "managed", "another name"]);
}

/// On this database, as a user with all rights.
async fn on_database(server: &Server, db: u32, notes: &Notes) -> Running {
    let url = format!("{}{db}", server.url());
    let listener = Running::at(&url, |builder| builder.attach(orders_with_values(), notes.handler()));
    listener.until_scanned().await;
    listener
}

#[tokio::test]
async fn other_databases_work_and_do_not_mix() {
    let server = server(ALL_FLAGS).await;
    let [third, first] = [Notes::default(), Notes::default()];
    let listeners = [on_database(&server, 3, &third).await, on_database(&server, 0, &first).await];
    let mut connection = keylapse_support::connect(&format!("{}3", server.url())).await.unwrap();
    for (id, value) in [("1", "a sofa"), ("2", "a lamp")] {
        let mut set = redis::cmd("SET");
        set.arg(order(id)).arg(value).arg("PX").arg(1500);
        set.exec_async(&mut connection).await.unwrap();
    }
    server.cmd(&["SET", &order("3"), "a desk", "PX", "1500"]).await;
    third.until(2).await;
    first.until(1).await;
    let texts = |notes: &Notes, id: &str| {
        notes.of(&order(id)).iter().map(|run| run.text().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(texts(&third, "1"), [Some("a sofa".to_owned())]);
    assert_eq!(texts(&third, "2"), [Some("a lamp".to_owned())]);
    assert_eq!(texts(&first, "3"), [Some("a desk".to_owned())]);
    assert_eq!((third.count(), first.count()), (2, 1));
    for listener in listeners {
        listener.stop().await;
    }
}

#[tokio::test]
async fn keys_without_a_deadline_are_never_enrolled() {
    for flags in [ALL_FLAGS, "Ex"] {
        let server = server(flags).await;
        server.cmd(&["SET", &order("before"), "a sofa"]).await;
        let topic = orders_with_values().scan_every(Duration::from_millis(100));
        let harness = Harness::on(server, topic, Notes::handler).await;
        harness.cmd(&["SET", &order("after"), "a lamp"]).await;
        harness.pass(now()).await;
        let scans = harness.listener.attached().scans;
        eventually(PATIENCE, "two more scans", async || harness.listener.attached().scans >= scans + 2).await;
        assert_eq!(enrolled(&harness.server).await, 0, "{flags}");
        assert!(harness.of("before").is_empty() && harness.of("after").is_empty());
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn a_key_that_is_too_long_is_left_alone() {
    for flags in [ALL_FLAGS, "Ex"] {
        let harness = Harness::hearing(flags).await;
        let prefix = order("").len();
        let (longest, longer) = ("x".repeat(4096 - prefix), "y".repeat(4097 - prefix));
        harness.write(&longer, "a lamp", 2000).await;
        let deadline = harness.enrol(&longest, "a sofa", 2000).await;
        let scans = harness.listener.attached().scans;
        eventually(PATIENCE, "two more scans", async || harness.listener.attached().scans >= scans + 2).await;
        assert_eq!(watched(&harness.server, &order(&longer)).await, None, "{flags}");
        harness.fires_once(&longest, "a sofa", deadline).await;
        assert_eq!(watched(&harness.server, &order(&longer)).await, None, "{flags}");
        assert!(harness.of(&longer).is_empty(), "{flags}");
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn keys_and_values_are_bytes() {
    for flags in [ALL_FLAGS, "Ex"] {
        let harness = Harness::hearing(flags).await;
        let (key, value) = (&b"app:order:\xff\x00\r\n\xc3\x28*"[..], &b"\x80\x00\xff"[..]);
        harness.server.cmd(&[b"SET", key, value, b"PX", b"1500"]).await;
        harness.listener.until_enrolled(1).await;
        harness.notes.until(1).await;
        let run = harness.notes.runs()[0].clone();
        assert_eq!(run.bytes, key, "{flags}");
        assert_eq!(run.value, KeptValue::Kept(Bytes::from_static(value)), "{flags}");
        harness.pass(now()).await;
        assert_eq!(harness.notes.count(), 2, "{:?}", harness.notes.runs());
        harness.listener.stop().await;
    }
}

/// To SCAN and to PSUBSCRIBE these have a meaning, to us they are bytes of a name.
#[tokio::test]
async fn what_means_something_to_a_glob_matches_itself_alone() {
    for flags in [ALL_FLAGS, "Ex"] {
        let server = server(flags).await;
        let notes = Notes::default();
        let pattern = r"app:o*?[a-z]^\:{id}";
        let topic = Attached::new(Topic::raw_named("orders", pattern).unwrap()).keep_values(64);
        let topic = topic.scan_every(Duration::from_millis(100));
        let listener = Running::at(&server.url(), |builder| builder.attach(topic, notes.handler()));
        listener.until_scanned().await;
        let deadline = (now() + 2000).to_string();
        for other in ["app:order:1", r"app:o*?b^\:1", "app:oxya:1", r"app:o*?[a-z]^:1", r"app:o*?[a-z]\:1"] {
            server.cmd(&["SET", other, "a lamp", "PXAT", &deadline]).await;
        }
        for id in ["1", "*", "?"] {
            server.cmd(&["SET", &format!(r"app:o*?[a-z]^\:{id}"), "a sofa", "PXAT", &deadline]).await;
        }
        listener.until_enrolled(3).await;
        notes.until(3).await;
        server.cmd(&["SET", r"app:o*?[a-z]^\:last", "", "PX", "500"]).await;
        notes.until(4).await;
        for id in ["1", "*", "?"] {
            let runs = notes.of(&format!(r"app:o*?[a-z]^\:{id}"));
            assert_eq!(runs.iter().map(|run| run.text()).collect::<Vec<_>>(), [Some("a sofa")], "{flags}");
        }
        assert_eq!(notes.count(), 4, "{:?}", notes.runs());
        listener.stop().await;
    }
}

#[tokio::test]
async fn a_key_of_a_more_specific_topic_is_not_watched_by_the_general_one() {
    for flags in [ALL_FLAGS, "Ex", ""] {
        let server = server(flags).await;
        let [general, specific] = [Notes::default(), Notes::default()];
        let deadline = now() + 4000;
        for id in ["1", "vip"] {
            server.cmd(&["SET", &order(id), id, "PXAT", &deadline.to_string()]).await;
        }
        let vips = Attached::new(Topic::raw_named("vips", "app:order:vip").unwrap()).keep_values(64);
        let listener = Running::at(&server.url(), |builder| {
            builder.attach(orders_with_values(), general.handler()).attach(vips, specific.handler())
        });
        eventually(PATIENCE, "scans", async || {
            ["orders", "vips"].iter().all(|name| listener.stats.attached(name).unwrap().scans > 0)
        })
        .await;
        assert!(now() < deadline, "enrolled too late for the test to mean anything");
        assert_eq!(watched(&server, &order("1")).await, Some(deadline), "{flags}");
        assert_eq!(watched(&server, &order("vip")).await, None, "{flags}: it is not its key");
        general.until(1).await;
        specific.until(1).await;
        if !flags.is_empty() {
            until_later_key(&server, &general).await;
        }
        assert_eq!((general.of(&order("vip")).len(), specific.count()), (0, 1), "{flags}");
        listener.stop().await;
    }
}

#[tokio::test]
async fn with_any_prefix_our_own_keys_are_left_alone() {
    for flags in [ALL_FLAGS, "Ex"] {
        let server = server(flags).await;
        let notes = Notes::default();
        let topic = Topic::raw_named("orders", "{all..}").unwrap();
        let topic = Attached::new(topic).allow_any_prefix().scan_every(Duration::from_millis(10));
        let listener = Running::at(&server.url(), |builder| builder.attach(topic, notes.handler()));
        eventually(PATIENCE, "an anchor", async || listener.hears()).await;
        server.cmd(&["SET", "session", "", "PX", "4000"]).await;
        notes.until(1).await;
        assert_eq!(notes.runs().iter().map(|run| &*run.key).collect::<Vec<_>>(), ["session"]);
        assert_eq!(listener.attached().tracked, 1, "{flags}: canaries come and go");
        listener.stop().await;
    }
}

/// The user of redis.conf, who may do this no more: until it may again, listening goes on with what there is.
async fn without(rules: &[&str], flags: &str) -> Harness {
    let server = server(flags).await;
    acl(&server, rules).await;
    let topic = orders_with_values().scan_every(Duration::from_millis(100));
    let harness = Harness::begin(server, topic, Notes::handler);
    eventually(PATIENCE, "an anchor", async || harness.listener.hears()).await;
    harness
}

async fn acl(server: &Server, rules: &[&str]) {
    server.cmd(&[&["ACL", "SETUSER", keylapse_support::APP_USER], rules].concat()).await;
}

impl Harness {
    /// What the server refuses to tell of the only topic.
    fn refusals(&self) -> Vec<String> {
        self.listener.stats.health().topics().remove(0).refused
    }

    /// Waits until this is refused, and that is said in health and in one line of the log.
    async fn until_refused(&self, log: &Log, line: &str, words: &[&str]) {
        let says = |text: &String| words.iter().all(|word| text.contains(word));
        eventually(PATIENCE, "a refusal", async || self.refusals().iter().any(says)).await;
        tokio::time::sleep(Duration::from_secs(1)).await; // more of them
        assert_eq!(log.lines_with(&[&["WARN", line, "orders"], words].concat()), 1, "{:?}", self.refusals());
    }

    /// Makes it another life of an order, by this command, of ten minutes.
    async fn write_again(&self, order: &[&str]) {
        self.cmd(&["DEL", "app:order:1"]).await;
        self.cmd(order).await;
        self.cmd(&["PEXPIRE", "app:order:1", "600000"]).await;
    }

    async fn until_granted(&self, mode: EventMode) {
        eventually(PATIENCE, "no refusal", async || self.refusals().is_empty()).await;
        self.listener.until_mode(mode).await;
        let deadline = self.enrol("granted", "a sofa", 2000).await;
        self.fires_once("granted", "a sofa", deadline).await;
    }
}

#[tokio::test]
async fn keys_that_may_not_be_read_are_said_counted_and_shown_until_they_may() {
    for flags in ["Ex", ALL_FLAGS] {
        let (log, _guard) = Log::keep();
        let harness = without(&["resetkeys", "~keylapse:*"], flags).await;
        harness.write("1", "a sofa", 60_000).await;
        let words = ["app:order:1", "~app:order:*", "NOPERM"];
        harness.until_refused(&log, "attached keys cannot be read", &words).await;
        harness.listener.until_mode(EventMode::Unreadable).await;
        assert!(harness.listener.attached().refused_reads > 0, "{flags}");
        acl(&harness.server, &["~app:*"]).await;
        harness.until_granted(if flags == "Ex" { EventMode::Expired } else { EventMode::Changes }).await;
        harness.listener.stop().await;
    }
}

/// A right that may be missing, but for our own keys, what a topic has to do for it to matter, and a key of which it hides something.
struct Right {
    rule: &'static str,
    without: &'static [&'static str],
    topic: fn(Attached<Bytes>) -> Attached<Bytes>,
    key: &'static [&'static str],
}

const STRING: &[&str] = &["SET", "app:order:1", "a sofa"];
const HASH: &[&str] = &["HSET", "app:order:1", "a", "a sofa"];
const LIST: &[&str] = &["RPUSH", "app:order:1", "a sofa"];

const RIGHTS: [Right; 8] = [
    Right {
        rule: "+strlen",
        without: &["-strlen", "(+strlen ~keylapse:*)"],
        topic: |topic| topic,
        key: STRING,
    },
    Right { rule: "+get", without: &["-get", "(+get ~keylapse:*)"], topic: |topic| topic, key: STRING },
    Right { rule: "+type", without: &["-type", "(+type ~keylapse:*)"], topic: |topic| topic, key: STRING },
    Right { rule: "+pexpiretime", without: &["-pexpiretime"], topic: |topic| topic, key: STRING },
    Right { rule: "~app:order:*", without: &["resetkeys", "~keylapse:*"], topic: |topic| topic, key: STRING },
    Right {
        rule: "+dump",
        without: &["-dump", "(+dump ~keylapse:*)"],
        topic: Attached::keep_dumps,
        key: LIST,
    },
    Right {
        rule: "+hmget",
        without: &["-hmget", "(+hmget ~keylapse:*)"],
        topic: |topic| topic.keep_fields(["a"]),
        key: HASH,
    },
    Right {
        rule: "+hkeys",
        without: &["-hkeys", "(+hkeys ~keylapse:*)"],
        topic: Attached::keep_all_fields,
        key: HASH,
    },
];

/// Whatever else may be read meanwhile: deadlines by each scan, a value of another type, a key that is gone.
#[tokio::test]
async fn a_right_that_is_missing_is_named_once_and_the_mode_stays_until_it_is_granted() {
    for Right { rule, without, topic, key } in RIGHTS {
        println!("{rule}");
        let (log, _guard) = Log::keep();
        let server = server(ALL_FLAGS).await;
        acl(&server, without).await;
        let topic = topic(orders_with_values()).scan_every(Duration::from_millis(100));
        let harness = Harness::begin(server, topic, Notes::handler);
        eventually(PATIENCE, "an anchor", async || harness.listener.hears()).await;
        harness.write_again(key).await;
        let named =
            |text: &String| text.contains("app:order:1") && text.ends_with(&format!("the rule is {rule}"));
        eventually(PATIENCE, "a refusal", async || harness.refusals().iter().any(named)).await;
        harness.listener.until_mode(EventMode::Unreadable).await;
        // For some canaries: with each the mode is found out.
        let (began, refused) = (now(), harness.listener.attached().refused_reads);
        eventually(PATIENCE, "more refusals", async || {
            assert_eq!(harness.listener.stats.mode(), EventMode::Unreadable, "{rule}");
            for other in [&["SADD", "app:order:2", "a"][..], &["SET", "app:order:3", "x", "PX", "1"]] {
                harness.cmd(other).await;
            }
            harness.cmd(&["PEXPIRE", "app:order:2", "600000"]).await;
            harness.cmd(&["PEXPIRE", "app:order:1", "600000"]).await;
            now() >= began + 4000 && harness.listener.attached().refused_reads >= refused + 10
        })
        .await;
        assert_eq!(
            log.lines_with(&["WARN", "attached keys cannot be read"]),
            1,
            "{rule}: {:?}",
            harness.refusals()
        );
        assert_eq!(log.lines_with(&["WARN", "attached keys cannot be read", rule]), 1, "{rule}");
        acl(&harness.server, &["~app:*", rule]).await;
        eventually(PATIENCE, "the right to be noticed", async || {
            harness.write_again(key).await;
            harness.refusals().is_empty()
        })
        .await;
        harness.until_granted(EventMode::Changes).await;
        harness.listener.stop().await;
    }
}

/// To name the right, each command is tried after the script was refused. By then it may have been granted.
#[tokio::test]
async fn a_right_that_is_granted_before_its_name_is_found_is_not_reported() {
    let (log, _guard) = Log::keep();
    let server = server(ALL_FLAGS).await;
    let proxy = Arc::new(Proxy::before(&server).await);
    let url = proxy.app_url();
    let harness = Harness::begin_with(server, |_, notes| {
        Running::at(&url, |builder| builder.attach(orders_with_values(), notes.handler()))
    });
    harness.listener.until_mode(EventMode::Changes).await;
    harness.enrol("0", "the server has the script", 60_000).await;
    acl(&harness.server, &["-get", "(+get ~keylapse:*)"]).await;
    let line = proxy.clone();
    // It matches no request, so no reply is lost: the line stalls when the request arrives.
    let stall = move |words: &[Bytes]| {
        if words[0] == "EVALSHA" && words.iter().any(|word| word == "app:order:1") {
            line.stall(Direction::Replies);
        }
        false
    };
    proxy.lose_reply(stall, Then::Stall);
    let deadline = harness.write("1", "a sofa", 5000).await;
    let none = Value::Array(Vec::new());
    eventually(PATIENCE, "a refusal", async || harness.cmd(&["ACL", "LOG"]).await != none).await;
    acl(&harness.server, &["+get"]).await;
    proxy.heal().await;
    harness.fires_once("1", "a sofa", deadline).await;
    assert_eq!(log.lines_with(&["WARN", "attached keys cannot be read"]), 0);
    assert_eq!(harness.refusals(), [""; 0]);
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_database_that_may_not_be_scanned_is_said_counted_and_shown_until_it_may() {
    let (log, _guard) = Log::keep();
    let harness = without(&["-scan"], "Ex").await;
    let line = "the database cannot be scanned for attached keys";
    harness.until_refused(&log, line, &["+scan", "NOPERM"]).await;
    harness.listener.until_mode(EventMode::Unreadable).await;
    assert!(harness.listener.attached().refused_scans > 0);
    acl(&harness.server, &["+scan"]).await;
    harness.until_granted(EventMode::Expired).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn changes_that_may_not_be_heard_are_said_counted_and_shown_until_they_may() {
    let (log, _guard) = Log::keep();
    let pattern = "&__keyspace@0__:app:order:*";
    let channels = ["&keylapse:*", "&__keyevent@0__:expired", "&__keyspace@0__:keylapse:{heartbeat/0}:*"];
    let harness = without(&[&["resetchannels"], &channels[..]].concat(), ALL_FLAGS).await;
    let line = "changes of attached keys are not received";
    harness.until_refused(&log, line, &[pattern, "NOPERM"]).await;
    harness.listener.until_mode(EventMode::Expired).await;
    assert!(harness.listener.attached().refused_subscriptions > 0);
    acl(&harness.server, &[pattern]).await;
    harness.until_granted(EventMode::Changes).await;
    harness.listener.stop().await;
}
