//! What a touch reads of keys, and how much of their values.

use super::*;
use keylapse_support::skipped_on_a_cluster;

#[tokio::test]
async fn a_touch_reads_deadlines_and_copies_up_to_a_cap() {
    if skipped_on_a_cluster("a touch asks for one key a call") {
        return;
    }
    let scene = Scene::alone().await;
    for words in [
        &["SET", "app:lasting", "x"][..],
        &["SET", "app:text", "12345678"],
        &["SET", "app:empty", ""],
        &["HSET", "app:hash", "f", "v"],
        &["RPUSH", "app:list", "1", "2", "3", "4", "5", "6"],
    ] {
        scene.say(words).await;
        if words[1] != "app:lasting" {
            scene.say(&["PEXPIREAT", words[1], &FIRST.to_string()]).await;
        }
    }
    let names = ["gone", "lasting", "text", "empty", "hash", "list"];
    let keys: Vec<_> = names.iter().map(|name| Bytes::from(format!("app:{name}"))).collect();
    let read = async |cap, dumps| {
        let found = scene
            .store
            .read(&keys, &CopySpec { cap, dumps, ..CopySpec::default() })
            .await
            .expect("an answer");
        assert_eq!((found[0].life, found[1].life), (KeyDeadline::Gone, KeyDeadline::Persistent));
        assert!(found[..2].iter().all(|found| found.copy.is_empty()), "{found:?}");
        assert!(found[2..].iter().all(|found| found.life == KeyDeadline::Until(FIRST)), "{found:?}");
        found.into_iter().skip(2).map(|KeySnapshot { copy, .. }| copy).collect::<Vec<_>>()
    };
    assert!(read(0, true).await.iter().all(Bytes::is_empty));
    assert_eq!(read(8, false).await, [&b"\x0212345678"[..], b"\x02", b"\x04", b"\x04"]);
    let small = read(7, true).await;
    assert_eq!(small[..2], [&b"\x018"[..], b"\x02"]);
    assert!(small[2].starts_with(b"\x01") && small[2].len() > 1, "its size is known: {small:?}");
    assert_eq!(small[3], &b"\x01"[..], "it was not even begun");
    // The least that its elements can take: a dump was made, and is larger.
    assert!(read(12, true).await[3].len() > 1);
    let large = read(1000, true).await;
    assert!(large[2..].iter().all(|copy| copy[0] == 3 && copy.len() > 2), "{large:?}");
    assert_eq!(read(large[2].len() - 1, true).await[2], large[2], "it just fits");
}

/// A hash of which more is asked for than fits is not read: its size is.
#[tokio::test]
async fn a_touch_reads_no_values_of_a_hash_that_is_too_large() {
    if skipped_on_a_cluster("a touch asks for one key a call") {
        return;
    }
    let scene = Scene::alone().await;
    let many: Vec<_> = (0..10_000).map(|n| format!("f{n}")).collect();
    let mut wide = vec!["HSET", "app:wide"];
    wide.extend(many.iter().flat_map(|name| [&**name, "v"]));
    let huge = "x".repeat(1 << 20);
    for words in [&wide[..], &["HSET", "app:heavy", "a", "1", "b", &huge]] {
        scene.say(words).await;
        scene.say(&["PEXPIREAT", words[1], &FIRST.to_string()]).await;
    }
    scene.say(&["CONFIG", "RESETSTAT"]).await;
    let keys = ["app:wide", "app:heavy"].map(Bytes::from);
    let named = |names: &[&str]| FieldSelection::Named(names.iter().map(|name| (*name).to_owned()).collect());
    let read = async |cap, fields| {
        let capture = CopySpec { cap, dumps: true, fields };
        let found = scene.store.read(&keys, &capture).await.expect("an answer");
        [0, 1].map(|at: usize| found[at].copy.clone())
    };
    assert_eq!(read(79_999, FieldSelection::All).await, [&b"\x01"[..], b"\x01"]);
    assert_eq!(read(1000, named(&["a", "b"])).await, [&b"\x05"[..], b"\x01"]);
    let calls = scene.calls().await;
    assert_eq!(calls["hmget"], 1, "but for the fields that are not there");
    assert_eq!(calls["hkeys"], 1, "not of ten thousand");
    for unbounded in ["hgetall", "hvals", "dump", "hscan"] {
        assert!(!calls.contains_key(unbounded), "{unbounded}");
    }
    assert_eq!(read(10, named(&["a"])).await, [&b"\x05"[..], b"\x05\0\0\0\x01a\0\0\0\x011"]);
    assert_eq!(read(9, named(&["a"])).await[1], &b"\x0110"[..], "a field counts with its lengths");
    let all = read(1 << 20, FieldSelection::All).await;
    assert_eq!((all[0].len(), &all[1][..]), (1 + 10_000 * 9 + many.concat().len(), &b"\x01"[..]));
}

/// A session that lives longer than was known costs no value.
#[tokio::test]
async fn a_touch_copies_no_value_of_a_key_whose_deadline_is_beyond_the_horizon() {
    if skipped_on_a_cluster("a touch asks for one key a call") {
        return;
    }
    let scene = Scene::alone().await;
    let keys = ["near", "far"].map(|name| Bytes::from(format!("app:{name}")));
    for (key, deadline) in keys.iter().zip([FIRST, FIRST + 1]) {
        let name = std::str::from_utf8(key).expect("a name");
        scene.say(&["SET", name, "x", "PXAT", &deadline.to_string()]).await;
    }
    let touch = ["EVAL", &scripts::READ_KEYS.text, "2", "app:near", "app:far", "10", "0"];
    for (horizon, far) in [("0", "\x02x"), (&(FIRST + 1).to_string(), "\x02x"), (&FIRST.to_string(), "")] {
        let answer = scene.say(&[&touch[..], &[horizon, "none"]].concat()).await;
        let found: Vec<String> = redis::from_redis_value(answer).expect("texts");
        assert_eq!(found[2..], [&FIRST.to_string(), "\x02x", &(FIRST + 1).to_string(), far], "{horizon}");
    }
}
