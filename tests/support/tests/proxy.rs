//! Tests of the proxy: it causes the requested faults and no others.

use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use keylapse_support::{Denial, Direction, Proxy, Server, Then, any, command, connect, eventually};
use redis::{RedisResult, Value, aio::MultiplexedConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SECONDS: Duration = Duration::from_secs(10);

/// Returns a server, a proxy before it, and a client of the proxy.
async fn line() -> (Server, Proxy, MultiplexedConnection) {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let client = connect(&proxy.url()).await.expect("connected");
    (server, proxy, client)
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<i64> {
    redis::cmd("INCR").arg("n").query_async(connection).await
}

/// Returns how often the server has executed INCR, on a direct connection.
async fn count(server: &Server) -> i64 {
    redis::from_redis_value(server.cmd(&["INCRBY", "n", "0"]).await).expect("a number")
}

#[tokio::test]
async fn a_lost_reply_leaves_the_work_done_and_the_client_in_doubt() {
    let (server, proxy, mut client) = line().await;
    assert_eq!(incr(&mut client).await.expect("an answer"), 1);

    proxy.lose_reply(command("INCR"), Then::Close);
    assert!(incr(&mut client).await.is_err());
    proxy.until_lost(1).await;
    assert_eq!(count(&server).await, 2, "it was executed once");

    let mut client = connect(&proxy.url()).await.expect("connected again");
    assert_eq!(incr(&mut client).await.expect("only one was to be lost"), 3);
    assert_eq!(proxy.lost(), 1);
}

#[tokio::test]
async fn a_reply_can_be_lost_without_a_sign() {
    let (server, proxy, mut client) = line().await;

    proxy.lose_reply(command("INCR"), Then::Stall);
    let mut other = client.clone();
    let answer = tokio::spawn(async move { incr(&mut other).await });
    proxy.until_lost(1).await;
    let later = tokio::spawn(async move { incr(&mut client).await });
    eventually(SECONDS, "the later request to be executed", async || count(&server).await == 2).await;
    assert!(!answer.is_finished() && !later.is_finished());

    proxy.cut();
    assert!(answer.await.expect("no panic").is_err());
    assert!(later.await.expect("no panic").is_err());
}

#[tokio::test]
async fn in_a_pipeline_only_the_chosen_reply_and_later_ones_are_lost() {
    let (server, proxy, client) = line().await;
    proxy.lose_reply(|words| words.get(1).is_some_and(|key| key == "lost"), Then::Close);

    let answers = ["before", "lost", "after"].map(|key| {
        let mut client = client.clone();
        async move { redis::cmd("INCR").arg(key).query_async::<i64>(&mut client).await.ok() }
    });
    let [before, lost, after] = answers;
    assert_eq!(tokio::join!(before, lost, after), (Some(1), None, None));
    assert_eq!(server.cmd(&["EXISTS", "before", "lost"]).await, Value::Int(2));
}

#[tokio::test]
async fn as_many_replies_are_lost_as_were_ordered() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.lose_replies(3, command("incr"), Then::Close);
    for expected in 1..=5 {
        let mut client = connect(&proxy.url()).await.expect("connected");
        assert_eq!(incr(&mut client).await.ok(), (expected > 3).then_some(expected));
    }
    assert_eq!(proxy.lost(), 3);
}

#[tokio::test]
async fn what_is_denied_does_not_reach_the_server_and_is_answered_in_its_turn() {
    let (server, proxy, mut client) = line().await;
    proxy.deny(command("INCR"), Denial::Error("ERR no"));
    let mut both = redis::pipe();
    both.cmd("SET").arg("n").arg(7).cmd("INCR").arg("n").cmd("GET").arg("n");
    let answers = client.send_packed_commands(&both, 0, 3).await.expect("answers");
    let refused = answers[1].clone().extract_error().expect_err("it is denied");
    assert_eq!((refused.code(), refused.detail()), (Some("ERR"), Some("no")));
    assert_eq!((&answers[0], &answers[2]), (&Value::Okay, &Value::BulkString(b"7".to_vec())));

    proxy.heal().await;
    assert_eq!(incr(&mut client).await.expect("nothing is denied"), 8);
    proxy.deny(command("INCR"), Denial::Close);
    assert!(incr(&mut client).await.expect_err("it hangs up").is_connection_dropped());
    assert_eq!(server.cmd(&["GET", "n"]).await, Value::BulkString(b"8".to_vec()));
}

#[tokio::test]
async fn pushes_do_not_confuse_replies() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    for protocol in ["", "?protocol=resp3"] {
        let url = format!("{}{protocol}", proxy.url());
        let mut pubsub =
            redis::Client::open(url).expect("a URL").get_async_pubsub().await.expect("connected");
        pubsub.subscribe(&["a", "b"]).await.expect("subscribed");
        server.cmd(&["PUBLISH", "a", "heard"]).await;

        proxy.lose_reply(command("UNSUBSCRIBE"), Then::Close);
        assert!(pubsub.unsubscribe("b").await.is_err(), "with {protocol:?}");
    }
    assert_eq!(proxy.lost(), 2);
}

#[tokio::test]
async fn refused_connections_do_not_disturb_open_ones() {
    let (_server, proxy, mut open) = line().await;

    proxy.refuse().await;
    let refused = connect(&proxy.url()).await.expect_err("refused");
    assert!(refused.is_connection_refusal(), "{refused}");
    assert_eq!(incr(&mut open).await.expect("still open"), 1);

    proxy.accept().await;
    assert!(connect(&proxy.url()).await.is_ok());
}

#[tokio::test]
async fn a_cut_ends_open_connections_only() {
    let (_server, proxy, mut client) = line().await;
    proxy.cut();
    assert!(incr(&mut client).await.is_err());
    assert!(connect(&proxy.url()).await.is_ok());
}

#[tokio::test]
async fn a_stalled_line_delivers_nothing_until_it_is_resumed() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    for (direction, is_executed) in [(Direction::Requests, false), (Direction::Replies, true)] {
        server.cmd(&["SET", "n", "0"]).await;
        let mut client = connect(&proxy.url()).await.expect("connected");
        proxy.reset_counts();
        proxy.stall(direction);
        let answer = tokio::spawn(async move { incr(&mut client).await });
        eventually(SECONDS, "the proxy to see it", async || proxy.requests().contains_key("INCR")).await;
        if is_executed {
            eventually(SECONDS, "the server to see it", async || count(&server).await == 1).await;
        }
        assert_eq!(count(&server).await, i64::from(is_executed), "{direction:?}");
        assert!(!answer.is_finished());

        proxy.resume();
        assert_eq!(answer.await.expect("no panic").expect("an answer"), 1);
    }
}

#[tokio::test]
async fn a_delay_is_a_latency_and_no_limit() {
    let (_server, proxy, client) = line().await;
    let delay = Duration::from_millis(50);
    proxy.delay(Direction::Both, delay);

    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut client = client.clone();
        tasks.spawn(async move { incr(&mut client).await.expect("an answer") });
    }
    tasks.join_all().await;

    let took = started.elapsed();
    assert!(took >= 2 * delay, "{took:?}");
    assert!(took < 60 * delay, "{took:?}: one after the other would have been {:?}", 100 * delay);
}

#[tokio::test]
async fn requests_are_counted_by_name_and_batches_apart() {
    let (_server, proxy, mut client) = line().await;
    incr(&mut client).await.expect("an answer");
    proxy.reset_counts();

    let mut pipeline = redis::pipe();
    for _ in 0..100 {
        pipeline.cmd("incr").arg("n");
    }
    pipeline.cmd("GET").arg("n");
    pipeline.exec_async(&mut client).await.expect("answers");
    let counts: Vec<(String, u64)> = proxy.requests().into_iter().collect();
    assert_eq!(counts, [("GET".to_owned(), 1), ("INCR".to_owned(), 100)]);
    assert!((1..=5).contains(&proxy.batches()), "{}", proxy.batches());
}

#[tokio::test]
async fn the_proxy_follows_a_restart_and_heals() {
    let (mut server, proxy, mut client) = line().await;
    server.kill().await;
    assert!(incr(&mut client).await.is_err());
    assert!(connect(&proxy.url()).await.is_err());
    server.restart().await;

    proxy.lose_replies(usize::MAX, any, Then::Close);
    proxy.stall(Direction::Both);
    proxy.refuse().await;
    proxy.heal().await;
    let mut client = connect(&proxy.url()).await.expect("connected");
    assert_eq!(incr(&mut client).await.expect("an answer"), 1);
}

#[tokio::test]
async fn a_large_value_passes_unharmed() {
    let (_server, _proxy, mut client) = line().await;
    let value: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let _: () = redis::cmd("SET").arg("v").arg(&value).query_async(&mut client).await.expect("set");
    let read: Vec<u8> = redis::cmd("GET").arg("v").query_async(&mut client).await.expect("got");
    assert!(read == value);
}

#[tokio::test]
async fn a_reply_can_be_torn_in_the_middle() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    for (after, expected) in [(0, ""), (2, ":2"), (99, ":3\r")] {
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("connected");
        proxy.lose_reply(command("INCR"), Then::Tear(after));
        client.write_all(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n").await.expect("sent");
        let mut arrived = String::new();
        client.read_to_string(&mut arrived).await.expect("closed in order");
        assert_eq!(arrived, expected, "{after} bytes of it, and never all");
    }
    assert_eq!(count(&server).await, 3, "each was executed");
}

#[tokio::test]
async fn connections_can_be_torn_behind_a_byte_of_all_that_they_carry() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let open = async || TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("connected");
    let (mut first, mut arrived) = (open().await, String::new());
    first.write_all(b"*1\r\n$4\r\nPING\r\n").await.expect("sent");
    first.read_exact(&mut [0; 7]).await.expect("an answer");
    proxy.tear(Some(9));
    first.write_all(b"*1\r\n$4\r\nPING\r\n").await.expect("sent");
    first.read_to_string(&mut arrived).await.expect("closed in order");
    assert_eq!((arrived.as_str(), proxy.lost()), ("+P", 1));
    proxy.heal().await;
    assert!(connect(&proxy.url()).await.is_ok());
}

#[tokio::test]
async fn a_reply_can_stop_in_the_middle() {
    let (_server, proxy, _) = line().await;
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("connected");
    proxy.lose_reply(command("PING"), Then::Halt(3));
    client.write_all(b"*1\r\n$4\r\nPING\r\n").await.expect("sent");
    let mut arrived = [0; 3];
    client.read_exact(&mut arrived).await.expect("a part of it");
    assert_eq!(&arrived, b"+PO");
    let more = tokio::time::timeout(Duration::from_millis(50), client.read_u8()).await;
    assert!(more.is_err(), "it stays open: {more:?}");
}

#[tokio::test]
async fn a_reset_is_no_orderly_end() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let reset = async |fault: &dyn Fn()| {
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("connected");
        client.write_all(b"*1\r\n$4\r\nPING\r\n").await.expect("sent");
        let mut pong = [0; 7];
        client.read_exact(&mut pong).await.expect("an answer: the connection is open on both sides");
        fault();
        client.write_all(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n").await.ok(); // it may be closed already
        client.read_to_end(&mut Vec::new()).await.expect_err("a reset").kind()
    };
    assert_eq!(reset(&|| proxy.reset()).await, ErrorKind::ConnectionReset);
    assert_eq!(reset(&|| proxy.lose_reply(command("INCR"), Then::Reset)).await, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_is_split_arrives_whole() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.split(Direction::Both, NonZeroUsize::new(1));
    let mut client = connect(&proxy.url()).await.expect("connected");
    let text = "x".repeat(3000);
    let echo: String = redis::cmd("ECHO").arg(&text).query_async(&mut client).await.expect("an answer");
    assert_eq!(echo, text);
    proxy.heal().await;
    assert_eq!(incr(&mut client).await.expect("an answer"), 1);
}
