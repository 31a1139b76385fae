//! Keys that somebody might try: odd ones work, impossible ones are refused
//! before anything is sent.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use bytes::Bytes;

use keylapse::limits::MAX_KEY;
use keylapse::timers::MarkerKey;
use keylapse::{
    ArmResult, Backoff, Cancelled, Client, Done, ErrorKind, Failure, Key, Lapse, Listener, NewArm, Schedule,
    Topic,
};
use redis::Value;

use super::scene::Tally;
use crate::server::support::{Running, listener, reporting, server_and_schedule, until_dead};

/// Nobody listens there.
const NOBODY: &str = "redis://127.0.0.1:1/";
const SOON: Duration = Duration::from_millis(20);

/// Arms a whole key of any shape on a topic of three segments; what it says.
async fn refused(key: &[u8]) -> String {
    let client = Client::new(NOBODY).unwrap();
    let schedule = Schedule::new(client.clone());
    let topic = Topic::<u32>::new("app:order:{id}").unwrap();
    let error = schedule.arm(&topic, Key(key), SOON, &1).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::TooLarge), "{error:?}");
    assert_eq!(client.store().clone().requests(), 0, "nothing was sent");
    error.to_string()
}

#[tokio::test]
async fn an_empty_key_or_segment_is_refused_naming_the_pattern() {
    for key in ["", "app:order:", "app::7", ":order:7", "app:order:7:"] {
        let message = refused(key.as_bytes()).await;
        assert!(message.contains("app:order:{id}"), "{message}");
    }
    let schedule = Schedule::new(Client::new(NOBODY).unwrap());
    let topic = Topic::<u32>::new("app:order:{id}").unwrap();
    let error = schedule.arm(&topic, [""], SOON, &1).await.unwrap_err();
    assert!(error.to_string().contains("`{id}`"), "{error}");
}

#[tokio::test]
async fn a_key_of_nothing_but_separators_is_refused() {
    for key in [":", "::", ":::::::"] {
        refused(key.as_bytes()).await;
    }
}

#[tokio::test]
async fn a_key_of_seventy_kilobytes_is_refused_with_the_limit() {
    let key = [b"app:order:", &[b'x'; 70_000][..]].concat();
    let message = refused(&key).await;
    assert!(message.contains("4096") && message.contains("70010"), "{message}");
    assert!(message.len() < 400, "the key itself is cut: {} bytes", message.len());
}

/// Everything here is one segment. Each is armed, expires as a trigger key, and
/// comes to its handler as it went in.
#[tokio::test(flavor = "multi_thread")]
async fn newlines_nul_other_bytes_braces_and_metacharacters_go_through_unharmed() {
    let ids: [&[u8]; 16] = [
        b"\n",
        b"\r\n",
        b"\0",
        b"\t\x1b[31m",
        b"\xff\xfe\x80",
        b"{",
        b"}",
        b"{}",
        b"}{",
        b"{a}{b}",
        b"*?[a-z]",
        b".*+?()[]|^$\\",
        b"%n%s",
        b"'\"`;--",
        b" ",
        "käse🧀".as_bytes(),
    ];
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<Vec<u8>>::new("app:odd:{id}").unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<Vec<u8>>| {
        let captured = lapse.captures().and_then(|captures| captures.get("id")).map(<[u8]>::to_vec);
        ((captured, lapse.capture("id").is_some(), lapse.into_payload()), Ok(Done))
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    for id in ids {
        // So far ahead that its trigger is set before, on a busy machine, too.
        let armed = schedule.arm(&topic, [id], Duration::from_secs(2), &id.to_vec()).await.unwrap();
        assert!(matches!(armed.receipt().unwrap().marker, MarkerKey::Set), "{armed:?}");
    }
    for _ in ids {
        let (captured, is_text, payload) = reported.next().await;
        assert_eq!(captured.as_ref(), Some(&payload));
        assert_eq!(is_text, std::str::from_utf8(&payload).is_ok());
    }
    running.until("each key's expiry to be heard", |stats| stats.total().announced == ids.len() as u64).await;
    running.stop().await.unwrap();
}

/// A pattern's literals are text: nothing in them is a glob or an expression.
#[tokio::test(flavor = "multi_thread")]
async fn metacharacters_in_a_pattern_stand_for_themselves() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<String>::named("odd", "app:a.*[b]?^$:{{tag}}:{id}").unwrap();
    let tally = Tally::default();
    let running = Running::start(listener(&server).on(topic.clone(), tally.handler()));
    let other = schedule.arm(&topic, Key("app:aXX:{tag}:1"), SOON, &String::new()).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Invalid);
    let _ = schedule.arm(&topic, ["1"], SOON, &String::new()).await.unwrap();
    tally.until(1).await;
    assert_eq!(tally.runs_of("app:a.*[b]?^$:{tag}:1"), 1);
    running.stop().await.unwrap();
}

/// The longest key there can be: armed, claimed, retried, heard, buried,
/// replayed and cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_just_the_limit_works_from_end_to_end() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:long:{id}").unwrap().retry(Backoff::table([SOON]));
    let id = "x".repeat(MAX_KEY - "app:long:".len());
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
        ((lapse.attempt(), lapse.key().len()), Err::<Done, _>(Failure::retry("no")))
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    running.until_anchored().await;
    let _ = schedule.arm(&topic, [&id], SOON, &1).await.unwrap();
    assert_eq!(reported.next().await, (1, MAX_KEY));
    assert_eq!(reported.next().await, (2, MAX_KEY));
    until_dead(&schedule, &topic, 1).await;
    running.until("both expiries to be heard", |stats| stats.total().announced == 2).await;
    running.stop().await.unwrap();
    let letter = schedule.dead_letters(&topic).page(1).await.unwrap().remove(0);
    assert_eq!(letter.key.len(), MAX_KEY);
    let _ = schedule.replay(&letter).await.unwrap();
    assert_eq!(schedule.cancel(&topic, [&id]).await.unwrap(), Cancelled::Cancelled);
    let one_more = schedule.arm(&topic, [id + "x"], SOON, &1).await.unwrap_err();
    assert_eq!(one_more.kind(), ErrorKind::TooLarge);
}

/// A topic of all keys there are, and a producer who is handed our own names.
/// A trigger key written over one of them would take the topic down.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_our_own_namespace_are_refused_and_nothing_is_harmed() {
    // As a producer whom no ACL keeps from writing anywhere.
    let (server, _) = server_and_schedule().await;
    let schedule = Schedule::connect(&server.url()).await.unwrap();
    let topic = Topic::<String>::named("all", "{rest..}").unwrap();
    let tally = Tally::default();
    let running =
        Running::start(Listener::builder(server.url()).on(topic.clone(), tally.handler::<String>()));
    let mut names = super::scene::names(&topic).all().to_vec();
    names.extend(["keylapse:topics", "keylapse:{heartbeat/0}", "keylapse:x"].map(str::to_owned));
    for name in &names {
        let error = schedule.arm(&topic, Key(name), SOON, &String::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("keylapse's own"), "{error}");
    }
    let many = names.iter().map(|name| NewArm::new(Key(name), SOON, String::new()));
    for result in schedule.arm_many(&topic, many).await.unwrap() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    }
    for key in ["keylapse", "keylapse2:x", "other:{all/0}:due"] {
        let _ = schedule.arm(&topic, Key(key), SOON, &String::new()).await.unwrap();
    }
    tally.until(3).await;
    running.stop().await.unwrap();
    assert_eq!(server.cmd(&["TYPE", names[1].as_str()]).await, Value::SimpleString("none".into()));
}

#[tokio::test]
async fn a_pattern_that_only_matches_our_own_names_is_refused_where_it_is_first_used() {
    let topic = Topic::<u32>::named("own", "keylapse:{rest..}").unwrap();
    let client = Client::new(NOBODY).unwrap();
    let error = Schedule::new(client.clone()).cancel(&topic, Key("keylapse:x")).await.unwrap_err();
    assert!(error.to_string().contains("keylapse's own"), "{error}");
    let build = |namespace: &str| {
        let builder = Listener::builder(client.clone().namespace(namespace).unwrap());
        builder.on(topic.clone(), Tally::default().handler::<u32>()).build()
    };
    let error = build("keylapse").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains("topic own") && error.to_string().contains("keylapse:{rest..}"),
        "{error}"
    );
    assert!(build("elsewhere").is_ok(), "another namespace's names are no names of ours");
}

/// Raw bytes of two topics whose keys differ in what a sloppy reader would miss.
#[tokio::test(flavor = "multi_thread")]
async fn look_alike_keys_are_different_timers() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::raw("app:alike:{id}").unwrap();
    let tally = Tally::default();
    let running = Running::start(listener(&server).on(topic.clone(), tally.handler()));
    let ids: [&[u8]; 6] = [b"1", b"01", b"1 ", "é".as_bytes(), "e\u{301}".as_bytes(), b"\xe9"];
    for id in ids {
        let armed = schedule.arm(&topic, [id], SOON, &Bytes::new()).await.unwrap();
        assert!(matches!(armed, ArmResult::Armed(_)), "{armed:?}");
    }
    tally.until(ids.len()).await;
    running.stop().await.unwrap();
    tally.assert_each_once(ids.len());
}
