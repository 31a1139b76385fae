//! Lists and streams, for workers in any language.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse_support::{Server, eventually};
use redis::{FromRedisValue, from_redis_value};

use crate::Rig;

async fn rig(forward: &str) -> Rig {
    Rig::with_secrets(
        &format!("[topics.orders]\npattern = \"order:{{id}}\"\nforward = {{ {forward} }}\n"),
        &[],
    )
    .await
}

/// Of a stream: its id, and its fields.
pub(crate) type Entry<T> = (String, Vec<(String, T)>);

async fn read<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    from_redis_value(server.cmd(words).await).unwrap()
}

async fn until_long(server: &Server, length: i64) {
    eventually(Duration::from_secs(20), "members", async || {
        read::<i64>(server, &["LLEN", "jobs"]).await == length
    })
    .await;
}

#[tokio::test]
async fn a_list_is_fed_while_it_has_room_and_again_when_it_has() {
    let rig = rig("list = \"jobs\", max-length = 2").await;
    for id in ["1", "2", "3"] {
        rig.arm(id, "{\"amount\":5}").await;
    }
    until_long(&rig.server, 2).await;
    let taken: String = read(&rig.server, &["RPOP", "jobs"]).await;
    let message: serde_json::Value = serde_json::from_str(&taken).unwrap();
    let data = &message["data"];
    assert_eq!((message["type"].as_str(), data["value"]["amount"].as_u64()), (Some("timer.lapsed"), Some(5)));
    assert!(data["key"].as_str().unwrap().starts_with("order:") && data["id"].as_str().unwrap().len() >= 16);
    until_long(&rig.server, 2).await;
    rig.none_left().await;
}

#[tokio::test]
async fn a_stream_has_an_entry_for_each() {
    let rig = rig("stream = \"events\"").await;
    rig.arm("1", "x").await;
    rig.none_left().await;
    let entries: Vec<Entry<String>> = read(&rig.server, &["XRANGE", "events", "-", "+"]).await;
    let message: serde_json::Value = serde_json::from_str(&entries[0].1[1].1).unwrap();
    assert_eq!((entries.len(), message["data"]["id"].as_str()), (1, Some(&*entries[0].1[0].1)));
}

/// However many wait for a list that is full, each is asked a millisecond behind the one before.
#[tokio::test]
async fn a_crowd_before_a_full_list_asks_in_turn() {
    const CROWD: u64 = 2000;
    let rig = rig("list = \"jobs\", max-length = 1").await;
    let began = Instant::now();
    join_all((0..=CROWD).map(async |id| rig.arm(&id.to_string(), "1").await)).await;
    let mut snoozes = 0;
    eventually(Duration::from_secs(20), "some to be asked again", async || {
        snoozes = rig.snoozes().await;
        snoozes > CROWD + CROWD / 2
    })
    .await;
    let again = u128::from(snoozes - CROWD);
    assert!(again <= began.elapsed().as_millis(), "{again} in {:?}", began.elapsed());
}
