//! Payloads that are not what the topic's type says, or too much of it.

use std::time::Duration;

use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse::limits::MAX_PAYLOAD;
use keylapse::{Done, ErrorKind, Failure, Lapse, NewArm, Topic};
use serde::{Deserialize, Serialize};

use super::scene::{Scene, Tally, orders};
use crate::server::support::{Running, listener, reporting, server_and_schedule, until_dead};

const SECRET: &str = "hunter2";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Notice {
    url: String,
    amount: u64,
}

/// What a listener reads as notices, as somebody writes it who does not care.
fn notices() -> (Topic<Notice>, Topic<Bytes>) {
    let pattern = "app:notice:{id}";
    let notices = Topic::named("notices", pattern).unwrap().undecodable_retention(Duration::ZERO);
    (notices, Topic::raw_named("notices", pattern).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_or_of_another_shape_dies_undecodable_and_holds_nobody_up() {
    let bad = [
        "",
        "null",
        "[]",
        "{",
        "not json",
        "{\"url\":\"hunter2\"}",
        "{\"url\":7,\"amount\":\"hunter2\"}",
        "{\"url\":\"u\",\"amount\":-1}",
        "{\"url\":\"u\",\"amount\":1}hunter2",
        "\u{feff}{}",
        "\"\\ud800\"",
        "{\"url\":\"a\",\"url\":\"b\",\"amount\":1}",
        "NaN",
        "1e999",
    ];
    let (server, schedule) = server_and_schedule().await;
    let (topic, raw) = notices();
    let other = Topic::<String>::new("app:other:{id}").unwrap();
    let tally = Tally::default();
    let handlers = listener(&server).on(topic.clone(), tally.handler()).on(other.clone(), tally.handler());
    let running = Running::start(handlers);
    for (n, bytes) in bad.iter().enumerate() {
        let _ = schedule.arm(&raw, [n.to_string()], Duration::ZERO, &Bytes::from(*bytes)).await.unwrap();
    }
    let nested = Bytes::from(vec![b'['; 10_000]);
    let _ = schedule.arm(&raw, ["nested"], Duration::ZERO, &nested).await.unwrap();
    let _ = schedule.arm(&other, ["1"], Duration::ZERO, &String::new()).await.unwrap();
    let good = Notice { url: "u".into(), amount: 1 };
    let _ = schedule.arm(&topic, ["good"], Duration::ZERO, &good).await.unwrap();
    until_dead(&schedule, &topic, bad.len() as u64 + 1).await;
    tally.until(2).await;
    running.stop().await.unwrap();
    tally.assert_each_once(2);
    for letter in schedule.dead_letters(&topic).page(100).await.unwrap() {
        assert_eq!((letter.reason, letter.attempts, letter.history.len()), (DeadReason::Undecodable, 1, 1));
        assert_eq!(letter.history[0].kind, "undecodable");
        let text = letter.last_error().unwrap();
        assert!(text.contains("the payload of") && !text.contains(SECRET), "{text}");
        assert!(
            !format!("{letter:?}").contains(SECRET),
            "a letter that is logged keeps its payload to itself"
        );
    }
}

/// Kept as it was, so that a corrected program can replay it.
#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_payload_is_kept_to_the_byte_and_can_be_replayed() {
    let (server, schedule) = server_and_schedule().await;
    let (topic, raw) = notices();
    let running = Running::start(listener(&server).on(topic.clone(), Tally::default().handler()));
    let bytes = Bytes::from_static(b"\0\xff not a notice");
    let _ = schedule.arm(&raw, ["1"], Duration::ZERO, &bytes).await.unwrap();
    until_dead(&schedule, &topic, 1).await;
    running.stop().await.unwrap();
    let letter = schedule.dead_letters(&topic).page(1).await.unwrap().remove(0);
    assert_eq!(letter.payload.as_ref().unwrap_err().bytes, bytes);
    let _ = schedule.replay(&letter).await.unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<Bytes>| (lapse.into_payload(), Ok(Done)));
    let running = Running::start(listener(&server).on(raw, handler));
    assert_eq!(reported.next().await, bytes);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_over_the_limit_are_refused_with_it_and_those_of_the_limit_arrive() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::raw("app:size:{id}").unwrap();
    let sizes = [0, 1, 64 << 10];
    let (handler, mut reported) = reporting(|lapse: Lapse<Bytes>| (lapse.into_payload(), Ok(Done)));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    for size in sizes {
        let payload = Bytes::from(vec![0xa5; size]);
        let _ = schedule.arm(&topic, [size.to_string()], Duration::ZERO, &payload).await.unwrap();
        assert_eq!(reported.next().await, payload);
    }
    let over = Bytes::from(vec![0; (64 << 10) + 1]);
    let error = schedule.arm(&topic, ["over"], Duration::ZERO, &over).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let text = error.to_string();
    assert!(text.contains("65537") && text.contains("65536") && text.contains("app.size"), "{text}");
    let one_of_many = schedule.arm_many(&topic, [NewArm::new(["over"], Duration::ZERO, over)]).await.unwrap();
    assert_eq!(one_of_many[0].as_ref().unwrap_err().kind(), ErrorKind::TooLarge);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_payload_there_can_be_arrives() {
    let scene = Scene::of(orders().payload_limit(MAX_PAYLOAD)).await;
    let quoted = |length: usize| "x".repeat(length - 2);
    for (id, length) in [("1 MiB", 1 << 20), ("8 MiB", MAX_PAYLOAD)] {
        let armed = scene.schedule.arm(&scene.topic, [id], Duration::ZERO, &quoted(length)).await;
        assert!(armed.unwrap().is_armed());
    }
    scene.tally.until(2).await;
    let over = scene.schedule.arm(&scene.topic, ["over"], Duration::ZERO, &quoted(MAX_PAYLOAD + 1)).await;
    assert_eq!(over.unwrap_err().kind(), ErrorKind::TooLarge);
    scene.tally.assert_each_once(2);
    scene.stop().await;
}

/// As JSON, whose quotes count, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_json_payload_is_measured_as_it_is_written() {
    let (_server, schedule) = server_and_schedule().await;
    let topic = Topic::<String>::new("app:text:{id}").unwrap().payload_limit(10);
    let arm = async |text: &str| {
        let armed = schedule.arm(&topic, ["1"], Duration::from_secs(60), &text.to_owned()).await;
        armed.map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(arm("12345678").await, Ok(()));
    assert_eq!(arm("123456789").await, Err(ErrorKind::TooLarge));
    assert_eq!(arm("\n\n\n\n\n").await, Err(ErrorKind::TooLarge), "escaped, it has 12 bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_beyond_two_to_the_53rd_come_back_exactly() {
    type Numbers = (Vec<u64>, Vec<i64>, u128, Vec<f64>, serde_json::Value);
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<Numbers>::new("app:numbers:{id}").unwrap();
    let numbers: Numbers = (
        vec![(1 << 53) + 1, 10_000_000_000_000_000_001, u64::MAX],
        vec![-(1 << 53) - 1, i64::MIN],
        u128::MAX,
        vec![0.1 + 0.2, f64::MIN_POSITIVE, 1.7976931348623157e308],
        serde_json::json!({ "id": 9_007_199_254_740_993_u64, "empty": [] }),
    );
    let (handler, mut reported) = reporting(|lapse: Lapse<Numbers>| {
        let again = Failure::retry_after(Duration::ZERO, "again");
        let end = if lapse.attempt() == 1 { Err(again) } else { Ok(Done) };
        (lapse.into_payload(), end)
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &numbers).await.unwrap();
    assert_eq!(reported.next().await, numbers);
    assert_eq!(reported.next().await, numbers, "after a retry, too");
    running.stop().await.unwrap();
}
