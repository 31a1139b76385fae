//! Handing on what is due: into a list or a stream, once, while there is room.

use std::time::Duration;

use keylapse::forward::{ForwardTo, Forwarded};
use keylapse::{Client, ErrorKind, Schedule};
use keylapse_support::{Proxy, Server, Then};
use keylapse_testing::{RedisReply, TestBed};
use keylapse_wire::scripts;
use redis::{FromRedisValue, from_redis_value};

use crate::server::support::load_scripts;

/// As a user who may write the key: nobody else could have it done.
async fn server_and_schedule() -> (Server, Schedule) {
    let server = Server::start().await;
    let schedule = Schedule::connect(&*server.url()).await.unwrap();
    (server, schedule)
}

/// Of a stream: its id, and its fields.
type Entry<T> = (String, Vec<(String, T)>);

async fn read<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    from_redis_value(server.cmd(words).await).unwrap()
}

#[tokio::test]
async fn a_list_gives_its_oldest_member_first() {
    let (server, schedule) = server_and_schedule().await;
    let jobs = ForwardTo::list("jobs");
    for id in ["1", "2", "1"] {
        let put = schedule.forward(&jobs, id, format!("message {id}")).await.unwrap();
        let is_new: i64 = read(&server, &["LLEN", "jobs"]).await;
        assert_eq!(put, if is_new.to_string() == id { Forwarded::Added } else { Forwarded::Duplicate });
    }
    let taken: Vec<String> = read(&server, &["RPOP", "jobs", "9"]).await;
    assert_eq!(taken, ["message 1", "message 2"]);
    let left: i64 = read(&server, &["PTTL", "keylapse:{jobs}:forwarded:4:jobs:1"]).await;
    assert!((86_000_000..=86_400_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_stream_has_the_id_beside_the_message() {
    let (server, schedule) = server_and_schedule().await;
    let events = ForwardTo::stream("events");
    assert_eq!(schedule.forward(&events, "7", b"\xff\0".to_vec()).await.unwrap(), Forwarded::Added);
    assert_eq!(schedule.forward(&events, "7", "again").await.unwrap(), Forwarded::Duplicate);
    let entries: Vec<Entry<Vec<u8>>> = read(&server, &["XRANGE", "events", "-", "+"]).await;
    let expected = vec![("id".to_owned(), b"7".to_vec()), ("message".to_owned(), b"\xff\0".to_vec())];
    assert_eq!(entries.into_iter().map(|(_, fields)| fields).collect::<Vec<_>>(), [expected]);
}

#[tokio::test]
async fn one_that_is_full_takes_nothing_until_somebody_has_taken_from_it() {
    let (server, schedule) = server_and_schedule().await;
    for (to, take) in [
        (ForwardTo::list("jobs").max_length(2), &["RPOP", "jobs"][..]),
        (ForwardTo::stream("events").max_length(2), &["XTRIM", "events", "MAXLEN", "1"]),
    ] {
        for (id, became) in [("1", Forwarded::Added), ("2", Forwarded::Added), ("3", Forwarded::Full)] {
            assert_eq!(schedule.forward(&to, id, id).await.unwrap(), became, "{to:?}");
        }
        // What was put there is known, however full it is.
        assert_eq!(schedule.forward(&to, "1", "1").await.unwrap(), Forwarded::Duplicate);
        server.cmd(take).await;
        assert_eq!(schedule.forward(&to, "3", "3").await.unwrap(), Forwarded::Added, "{to:?}");
    }
}

#[tokio::test]
async fn a_reply_that_is_lost_puts_nothing_there_twice() {
    let server = Server::start().await;
    load_scripts(&server).await;
    let proxy = Proxy::before(&server).await;
    let client = Client::new(&proxy.url()).unwrap();
    let schedule = Schedule::new(client.answer_within(Duration::from_millis(300)).unwrap());
    for (id, then) in [("1", Then::Close), ("2", Then::Stall)] {
        let sha = scripts::FORWARD.sha.clone();
        proxy.lose_reply(
            move |words: &[bytes::Bytes]| words.get(1).is_some_and(|word| *word == sha.as_bytes()),
            then,
        );
        assert_eq!(schedule.forward(&ForwardTo::list("jobs"), id, id).await.unwrap(), Forwarded::Duplicate);
    }
    let all: Vec<String> = read(&server, &["LRANGE", "jobs", "0", "-1"]).await;
    assert_eq!((all, proxy.lost()), (vec!["2".to_owned(), "1".to_owned()], 2));
}

/// Nothing is remembered of what was not put there.
#[tokio::test]
async fn what_is_refused_can_be_put_there_later() {
    let (server, schedule) = server_and_schedule().await;
    for to in [ForwardTo::list("key"), ForwardTo::stream("key")] {
        server.cmd(&["SET", "key", "of somebody else"]).await;
        let error = schedule.forward(&to, "1", "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        server.cmd(&["DEL", "key"]).await;
        assert_eq!(schedule.forward(&to, "1", "x").await.unwrap(), Forwarded::Added);
        server.cmd(&["FLUSHALL"]).await;
    }
    server.cmd(&["ACL", "SETUSER", "default", "-lpush"]).await;
    let error = schedule.forward(&ForwardTo::list("jobs"), "1", "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    server.cmd(&["ACL", "SETUSER", "default", "+lpush"]).await;
    assert_eq!(schedule.forward(&ForwardTo::list("jobs"), "1", "x").await.unwrap(), Forwarded::Added);
}

#[tokio::test]
async fn however_long_an_id_is_to_be_remembered_the_server_takes_it() {
    let (server, schedule) = server_and_schedule().await;
    for (time, name) in [(Duration::MAX, "for ever"), (Duration::ZERO, "not at all")] {
        let to = ForwardTo::list("jobs").deduplicate_for(time);
        assert_eq!(schedule.forward(&to, name, name).await.unwrap(), Forwarded::Added, "{name}");
    }
    assert_eq!(read::<i64>(&server, &["LLEN", "jobs"]).await, 2);
}

/// Two of one slot remember their ids apart.
#[tokio::test]
async fn lists_with_one_hash_tag_have_each_their_own() {
    let (server, schedule) = server_and_schedule().await;
    for key in ["{shop}:jobs", "jobs:{shop}", "{}jobs", "{jobs", "jobs"] {
        let put = schedule.forward(&ForwardTo::list(key), "1", "x").await;
        assert_eq!(put.unwrap(), Forwarded::Added, "{key}");
        assert_eq!(read::<i64>(&server, &["LLEN", key]).await, 1, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_of_users_tests_takes_it_too() {
    let bed = TestBed::new();
    let (schedule, jobs) = (bed.schedule(), ForwardTo::list("jobs").max_length(1));
    assert_eq!(schedule.forward(&jobs, "1", "x").await.unwrap(), Forwarded::Added);
    assert_eq!(schedule.forward(&jobs, "1", "x").await.unwrap(), Forwarded::Duplicate);
    assert_eq!(schedule.forward(&jobs, "2", "x").await.unwrap(), Forwarded::Full);
    assert_eq!(schedule.forward(&ForwardTo::stream("events"), "1", "x").await.unwrap(), Forwarded::Added);
    assert_eq!(bed.command(["XLEN", "events"]), RedisReply::Int(1));
}
