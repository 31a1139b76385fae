//! Tests of imitated services: they refuse the listed commands and forward all others.

use keylapse_support::{Provider, Reach, Server, connect};
use redis::{RedisResult, Value, aio::MultiplexedConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn service(name: &str) -> (Server, MultiplexedConnection) {
    let server = Server::builder().reach(Reach::through(Provider::named(name))).start().await;
    let client = connect(&format!("redis://{}/", server.door())).await.expect("connected");
    (server, client)
}

/// Returns the reply, or the text of an error.
async fn said(client: &mut MultiplexedConnection, words: &[&str]) -> Result<Value, String> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    let answer: RedisResult<Value> = command.query_async(client).await;
    answer.and_then(Value::extract_error).map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_is_refused_is_answered_in_its_place() {
    let (_server, mut client) = service("elasticache-nodes").await;
    let mut commands = redis::pipe();
    commands.cmd("INCR").arg("n");
    commands.cmd("CONFIG").arg("GET").arg("save");
    commands.cmd("INCR").arg("n");
    let answers = client.send_packed_commands(&commands, 0, 3).await.expect("answers");
    let [first, refused, last] = <[Value; 3]>::try_from(answers).expect("three");
    assert_eq!((first, last), (Value::Int(1), Value::Int(2)));
    let refused = refused.extract_error().expect_err("it is refused").to_string();
    assert!(refused.contains("unknown command 'CONFIG'"), "{refused}");
    assert!(said(&mut client, &["ACL", "WHOAMI"]).await.is_ok());
    let refused = said(&mut client, &["acl", "setuser", "x"]).await.expect_err("a subcommand");
    assert!(refused.contains("'ACL SETUSER'"), "{refused}");
}

#[tokio::test]
async fn scripts_use_the_keys_that_their_calls_name() {
    let (_server, mut client) = service("elasticache-serverless").await;
    let set = "#!lua flags=allow-oom\nlocal set = redis.call('SET', KEYS[1] .. ARGV[1], '1') return set.ok";
    assert_eq!(said(&mut client, &["EVAL", set, "1", "{a}", ""]).await, Ok(Value::BulkString(b"OK".into())));
    for (words, why) in [
        (&["EVAL", set, "1", "{a}", "b"][..], "undeclared key"),
        (&["EVAL", "return 1", "0"], "without any input keys"),
    ] {
        let refused = said(&mut client, words).await.expect_err(why);
        assert!(refused.contains(why), "{refused}");
    }
    let pcall = "return redis.pcall('GET', 'b').err";
    let Ok(Value::BulkString(refused)) = said(&mut client, &["EVAL", pcall, "1", "a"]).await else {
        panic!("an answer")
    };
    assert!(String::from_utf8_lossy(&refused).contains("undeclared key"));
    let time = "return #redis.call('TIME')";
    assert_eq!(said(&mut client, &["EVAL", time, "1", "a"]).await, Ok(Value::Int(2)));
}

#[tokio::test]
async fn a_script_is_called_by_the_hash_of_its_own_text() {
    let (server, mut client) = service("elasticache-serverless").await;
    let text = "return ARGV[1]";
    let hash = redis::Script::new(text).get_hash().to_owned();
    server.cmd(&["SCRIPT", "LOAD", text]).await;
    let refused =
        said(&mut client, &["EVALSHA", &hash, "1", "a", "x"]).await.expect_err("nobody has loaded it here");
    assert!(refused.contains("No matching script"), "{refused}");
    said(&mut client, &["SCRIPT", "LOAD", text]).await.expect("loaded");
    let answer = said(&mut client, &["EVALSHA", &hash, "1", "a", "x"]).await;
    assert_eq!(answer, Ok(Value::BulkString(b"x".into())));
}

#[tokio::test]
async fn requests_have_so_many_words() {
    let (_server, mut client) = service("elasticache-serverless").await;
    for (words, is_taken) in [(3999, true), (4000, false)] {
        let mut many = vec!["RPUSH", "list"];
        many.resize(words, "x");
        assert_eq!(said(&mut client, &many).await.is_ok(), is_taken, "{words}");
    }
}

#[tokio::test]
async fn one_address_of_several_shards_takes_keys_of_one_slot() {
    let (_server, mut client) = service("redis-enterprise").await;
    assert_eq!(
        said(&mut client, &["MGET", "{a}1", "{a}2"]).await,
        Ok(Value::Array(vec![Value::Nil, Value::Nil]))
    );
    let refused = said(&mut client, &["EVAL", "return 1", "2", "a", "b"]).await.expect_err("two slots");
    assert!(refused.contains("CROSSSLOT") || refused.contains("CrossSlot"), "{refused}");
    assert!(said(&mut client, &["CLUSTER", "SHARDS"]).await.is_err(), "nobody sees that it is several");
}

#[tokio::test]
async fn some_close_the_connection() {
    let server = Server::builder().reach(Reach::through(Provider::named("twemproxy"))).start().await;
    let mut plain = TcpStream::connect(server.door()).await.expect("connected");
    let mut answer = Vec::new();
    plain.write_all(b"*1\r\n$4\r\nINFO\r\n").await.expect("sent");
    plain.read_to_end(&mut answer).await.expect("closed");
    assert!(answer.is_empty(), "{answer:?}");
}
