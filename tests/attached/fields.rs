//! Hashes, as others keep sessions in them: their fields, one by one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylapse::attach::KeptValue;
use keylapse::{Attached, Done, Expired, Failure, Lapse, Topic};
use keylapse_support::{Server, eventually};

use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, Running, in_time, order, orders, server, until_time, until_watched,
};

#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    user_id: u64,
    name: String,
    visits: Option<u32>,
}

fn session(user_id: u64, name: &str, visits: Option<u32>) -> Session {
    Session { user_id, name: name.to_owned(), visits }
}

type Fields = &'static [(&'static [u8], &'static [u8])];

const SPRING: Fields = &[(b"userId", b"42"), (b"name", b"Ada"), (b"visits", b"7"), (b"blob", b"\xff")];
const MISSING: Fields = &[(b"userId", b"18446744073709551615"), (b"name", b"")];
const WRONG: Fields = &[(b"userId", b"forty-two"), (b"name", b"Ada")];

/// Writes a hash; of binary, what is not text.
async fn write(server: &Server, id: &str, fields: &[(&[u8], &[u8])], deadline: u64) {
    let key = order(id);
    for some in fields.chunks(1000) {
        let mut words = vec![&b"HSET"[..], key.as_bytes()];
        words.extend(some.iter().flat_map(|(name, value)| [*name, *value]));
        server.cmd(&words).await;
    }
    server.cmd(&["PEXPIREAT", &key, &deadline.to_string()]).await;
}

#[tokio::test]
async fn the_fields_of_a_hash_are_handed_over_as_the_topics_type() {
    for flags in ["KExg", "Ex"] {
        let server = server(flags).await;
        let (kept, seen) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(Mutex::new(0)));
        let topic = Topic::<Session>::named("orders", "app:order:{id}").unwrap();
        let topic = topic.undecodable_retention(Duration::ZERO).dead_letters(10, Duration::from_secs(60));
        let topic = Attached::new(topic).keep_values(256).keep_fields(["userId", "name", "visits"]);
        let topic = topic.scan_every(Duration::from_millis(100));
        let (into, count) = (kept.clone(), seen.clone());
        let listener = Running::start(&server, |builder| {
            builder.attach(topic, move |lapse: Lapse<Expired<Session>>| {
                *count.lock().unwrap() += 1;
                let id = lapse.capture("id").unwrap_or_default().to_owned();
                into.lock().unwrap().insert(id, lapse.payload().value().cloned());
                std::future::ready(Ok::<_, Failure>(Done))
            })
        });
        listener.until_scanned().await;
        let json = r#"{"userId":43,"name":"Eve"}"#;
        in_time(3000, 1000, async |deadline| {
            write(&server, "spring", SPRING, deadline).await;
            write(&server, "missing", MISSING, deadline).await;
            write(&server, "wrong", WRONG, deadline).await;
            server.cmd(&["SET", &order("text"), json, "PXAT", &deadline.to_string()]).await;
            for id in ["spring", "missing", "wrong", "text"] {
                until_watched(&server, id, deadline, true).await;
            }
        })
        .await;
        eventually(PATIENCE, "all to end", async || {
            let stats = listener.stats.topic("orders").unwrap();
            (stats.dead, stats.handled) == (1, 3)
        })
        .await;
        let expected = HashMap::from([
            ("spring".to_owned(), Some(session(42, "Ada", Some(7)))),
            ("missing".to_owned(), Some(session(u64::MAX, "", None))),
            ("text".to_owned(), Some(session(43, "Eve", None))),
        ]);
        assert_eq!((&*kept.lock().unwrap(), *seen.lock().unwrap()), (&expected, 3), "{flags}");
        listener.stop().await;
    }
}

/// What a topic of bytes is handed of some fields.
fn fields(all: &[(&[u8], &[u8])]) -> KeptValue<Bytes> {
    let pair = |(name, value): &(&[u8], &[u8])| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
    KeptValue::Fields(all.iter().map(pair).collect::<BTreeMap<_, _>>())
}

#[tokio::test]
async fn all_fields_are_kept_up_to_the_cap_and_other_types_are_as_before() {
    let topic = Attached::new(orders()).keep_values(200_000).keep_all_fields();
    let harness = Harness::with(ALL_FLAGS, topic, Notes::handler).await;
    let names: Vec<_> = (0..10_001).map(|n| format!("{n:04}")).collect();
    let many = |count: usize, value: &'static [u8]| -> Vec<(&[u8], &[u8])> {
        names[..count].iter().map(|name| (name.as_bytes(), value)).collect()
    };
    let half = vec![b'x'; 100_000];
    // Ten thousand fields take 16 bytes each, with their lengths; and one byte more is too much.
    let [exact, large] = [200_000 - 4 - 8, 200_000 - 4 - 7].map(|size| vec![b'x'; size]);
    let (odd, wide): (&[(&[u8], &[u8])], _) = (&[(b"", b""), (b"\xff\0", b"\0\xfe")], many(10_000, b"1234"));
    in_time(4000, 1000, async |deadline| {
        write(&harness.server, "odd", odd, deadline).await;
        write(&harness.server, "wide", &wide, deadline).await;
        write(&harness.server, "exact", &[(b"name", &exact)], deadline).await;
        write(&harness.server, "large", &[(b"name", &large)], deadline).await;
        write(&harness.server, "heavy", &[(b"a", &half), (b"b", &half)], deadline).await;
        let until = deadline.to_string();
        harness.cmd(&["RPUSH", &order("list"), "a"]).await;
        harness.cmd(&["PEXPIREAT", &order("list"), &until]).await;
        harness.cmd(&["SET", &order("text"), "a sofa", "PXAT", &until]).await;
        for id in ["odd", "wide", "exact", "large", "heavy", "list", "text"] {
            harness.until_watched(id, deadline).await;
        }
    })
    .await;
    assert_eq!(harness.only("odd").await.value, fields(odd));
    assert!(harness.only("wide").await.value == fields(&wide), "ten thousand fields");
    assert!(harness.only("exact").await.value == fields(&[(b"name", &exact)]), "it just fits");
    assert_eq!(harness.only("large").await.value, KeptValue::TooLarge(Some(200_001)));
    assert!(matches!(harness.only("heavy").await.value, KeptValue::TooLarge(_)));
    assert_eq!(harness.only("list").await.value, KeptValue::NotKept);
    assert_eq!(harness.only("text").await.text(), Some("a sofa"));
    harness.listener.stop().await;
}

#[tokio::test]
async fn the_fields_that_are_named_are_kept_however_large_the_hash_is() {
    let topic = Attached::new(orders()).keep_values(64).keep_fields(["user", "sum", "user"]).keep_dumps();
    let harness = Harness::with(ALL_FLAGS, topic, Notes::handler).await;
    let names: Vec<_> = (0..10_000).map(|n| n.to_string()).collect();
    let mut wide: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &b"1234"[..])).collect();
    wide.push((b"user", b"42"));
    in_time(4000, 1000, async |deadline| {
        write(&harness.server, "wide", &wide, deadline).await;
        write(&harness.server, "none of them", &[(b"other", b"1")], deadline).await;
        write(&harness.server, "large", &[(b"user", &[b'x'; 65])], deadline).await;
        harness.cmd(&["RPUSH", &order("list"), "a"]).await;
        harness.cmd(&["PEXPIREAT", &order("list"), &deadline.to_string()]).await;
        for id in ["wide", "none of them", "large", "list"] {
            harness.until_watched(id, deadline).await;
        }
    })
    .await;
    assert_eq!(harness.only("wide").await.value, fields(&[(b"user", b"42")]));
    assert_eq!(harness.only("none of them").await.value, fields(&[]));
    assert_eq!(harness.only("large").await.value, KeptValue::TooLarge(None));
    assert!(matches!(harness.only("list").await.value, KeptValue::Dumped(_)));
    harness.listener.stop().await;
}

/// `HSET` is not heard; only what is read a quarter of a second before the deadline can know of it.
#[tokio::test]
async fn a_field_that_changes_unheard_is_read_again_before_the_deadline() {
    let topic = Attached::new(orders()).keep_values(64).keep_all_fields();
    let harness = Harness::with(ALL_FLAGS, topic, Notes::handler).await;
    let deadline = in_time(3000, 1500, async |deadline| {
        write(&harness.server, "1", &[(b"visits", b"1")], deadline).await;
        harness.until_watched("1", deadline).await;
    })
    .await;
    until_time(deadline - 1000).await;
    harness.cmd(&["HSET", &order("1"), "visits", "2", "last", "/cart"]).await;
    assert_eq!(harness.only("1").await.value, fields(&[(b"visits", b"2"), (b"last", b"/cart")]));
    harness.listener.stop().await;
}
