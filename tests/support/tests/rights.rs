//! Tests that the user `keylapse` of `redis.conf` has the permissions that the library needs and no others, on each
//! available server. `ACL DRYRUN` checks a command without executing it.

use std::time::Duration;

use futures::StreamExt;
use keylapse_support::{APP_USER, Binary, Server, connect};
use redis::Value;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

const ALLOWED: &[&str] = &[
    "HELLO 3",
    "AUTH keylapse change-me",
    "PING",
    "SELECT 1",
    "CLIENT SETNAME listener",
    "CLIENT ID",
    "WAIT 1 0",
    "TIME",
    "ROLE",
    "INFO server",
    "CONFIG GET maxmemory-policy",
    "EVALSHA sha 1 keylapse:{topic/0}:due",
    "EVAL script 1 app:trans:notice:1",
    "MULTI",
    "EXEC",
    "SUBSCRIBE __keyevent@0__:expired",
    "UNSUBSCRIBE",
    "PSUBSCRIBE __keyspace@0__:app:order:*",
    "PSUBSCRIBE __keyspace@0__:keylapse:{heartbeat/0}:*",
    "PSUBSCRIBE __keyspace@0__:keylapse:{heartbeat/*",
    "SSUBSCRIBE keylapse:{topic/0}:wake",
    "SUNSUBSCRIBE",
    "PUBLISH keylapse:topics changed",
    "SPUBLISH keylapse:{topic/0}:wake 1",
    "SET app:trans:notice:1 value PX 1",
    "EXISTS app:trans:notice:1",
    "SCAN 0",
    "PEXPIRETIME app:unpaid:1",
    "GETRANGE app:unpaid:1 0 99",
    "DUMP app:cart:1",
    "RESTORE app:cart:1 0 dump",
    "RENAME keylapse:{topic/0}:past keylapse:{topic/0}:elder",
    "UNLINK keylapse:{topic/0}:elder",
    "ZADD keylapse:{topic/0}:due 1 member",
    "HSETNX keylapse:{topic/0}:records field value",
];

const FORBIDDEN: &[&str] = &[
    "SET other:key value",
    "GET other:key",
    "EVAL script 1 other:key",
    "PUBLISH __keyevent@0__:expired app:forged",
    "SPUBLISH __keyevent@0__:expired app:forged",
    "SUBSCRIBE __keyevent@1__:expired",
    "SUBSCRIBE other",
    "PSUBSCRIBE *",
    "PSUBSCRIBE __keyevent@*__:*",
    "PSUBSCRIBE __keyspace@0__:*",
    "UNLINK app:a",
    "RENAME app:a app:b",
    "KEYS *",
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG SET notify-keyspace-events Ex",
    "SCRIPT FLUSH",
    "SCRIPT LOAD script",
    "SCRIPT KILL",
    "CLIENT LIST",
    "CLIENT KILL ID 1",
    "CLIENT PAUSE 1",
    "ACL LIST",
    "SHUTDOWN",
    "REPLICAOF NO ONE",
    "DEBUG SLEEP 0",
];

async fn verdict(server: &Server, command: &str) -> Value {
    let words: Vec<&str> = ["ACL", "DRYRUN", APP_USER].into_iter().chain(command.split(' ')).collect();
    server.cmd(&words).await
}

#[tokio::test]
async fn the_user_has_the_least_rights() {
    for binary in Binary::all().expect("servers") {
        let server = Server::builder().binary(binary).start().await;
        for command in ALLOWED {
            assert_eq!(verdict(&server, command).await, Value::Okay, "{command} on {}", server.version());
        }
        for command in FORBIDDEN {
            assert_ne!(verdict(&server, command).await, Value::Okay, "{command} on {}", server.version());
        }
    }
}

#[tokio::test]
async fn scripts_do_not_widen_the_rights() {
    for binary in Binary::all().expect("servers") {
        let server = Server::builder().binary(binary).start().await;
        let mut app = connect(&server.app_url()).await.expect("the password is known");
        let mut run = async |script: &str| -> redis::RedisResult<Value> {
            redis::cmd("EVAL").arg(script).arg(0).query_async(&mut app).await
        };
        assert!(run("return redis.call('publish', 'keylapse:topics', 'x')").await.is_ok());
        assert!(run("return redis.call('publish', '__keyevent@0__:expired', 'app:x')").await.is_err());
        assert!(run("return redis.call('set', 'other:key', 'x')").await.is_err());
    }
}

#[tokio::test]
async fn a_client_that_introduces_itself_is_refused_nothing() {
    for binary in Binary::all().expect("servers") {
        let server = Server::builder().binary(binary).start().await;
        for protocol in ["", "?protocol=resp3"] {
            let url = format!("{}{protocol}", server.app_url());
            connect(&url).await.expect("the password is known");
        }
        assert_eq!(server.cmd(&["ACL", "LOG"]).await, Value::Array(vec![]), "{}", server.version());
    }
}

#[tokio::test]
async fn expired_keys_are_announced_to_the_user() {
    for binary in Binary::all().expect("servers") {
        let server = Server::builder().binary(binary).start().await;
        let client = redis::Client::open(server.app_url()).expect("a URL");
        let mut events = client.get_async_pubsub().await.expect("connected");
        events.subscribe("__keyevent@0__:expired").await.expect("allowed");
        server.cmd(&["SET", "app:key", "value", "PX", "1"]).await;

        let mut messages = events.on_message();
        let event = timeout(PATIENCE, messages.next()).await.expect("an event").expect("an open connection");
        assert_eq!(event.get_payload::<String>().expect("text"), "app:key", "{}", server.version());
    }
}
