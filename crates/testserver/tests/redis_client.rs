//! The `redis` crate talks to the server, over memory and over a port, in time that is paused.

use std::time::{Duration, SystemTime};

use keylapse_testserver::{Intervention, RedisReply, TestServer};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// A connection in RESP3, and what is pushed on it.
async fn connect(server: &TestServer) -> (MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>) {
    connect_over(server.connect()).await
}

pub(crate) async fn connect_over(
    stream: DuplexStream,
) -> (MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>) {
    let (pushes, pushed) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_push_sender(move |push| pushes.send(push).map_err(|_| redis::aio::SendError));
    let info = redis::RedisConnectionInfo::default().set_protocol(redis::ProtocolVersion::RESP3);
    let connected = MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (connection, driver) = connected.expect("a connection");
    tokio::spawn(driver);
    (connection, pushed)
}

pub(crate) async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    line: &str,
) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().expect("a name"));
    words.for_each(|word| _ = command.arg(word));
    command.query_async(connection).await
}

pub(crate) fn message(push: &PushInfo) -> Option<(String, String)> {
    (push.kind == PushKind::Message).then_some(())?;
    let [channel, payload] = &push.data[..] else { return None };
    Some((redis::from_redis_value(channel.clone()).ok()?, redis::from_redis_value(payload.clone()).ok()?))
}

#[tokio::test(start_paused = true)]
async fn fifteen_minutes_pass_at_once_and_the_expiry_is_heard_before_the_answer() {
    let server = TestServer::builder().expires_within(Duration::from_secs(3600)).build();
    server.command(["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
    let (mut connection, mut pushed) = connect(&server).await;
    connection.subscribe("__keyevent@0__:expired").await.unwrap();
    assert_eq!(pushed.recv().await.unwrap().kind, PushKind::Subscribe);
    server.command(["SET", "order:42", "unpaid", "EX", "900"]);

    let before = server.now();
    tokio::time::sleep(Duration::from_secs(901)).await;
    assert_eq!(server.now().duration_since(before).unwrap(), Duration::from_secs(901));

    assert!(pushed.try_recv().is_err(), "nobody has read the key, and the server has not found it yet");
    assert_eq!(ask::<i64>(&mut connection, "EXISTS order:42").await, Ok(0));
    let push = pushed.try_recv().expect("the message stands before the answer");
    assert_eq!(message(&push), Some(("__keyevent@0__:expired".into(), "order:42".into())));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_expires_a_little_late_and_then_the_clock_stands_still() {
    let server =
        TestServer::builder().start(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).build();
    server.command(["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
    let (mut connection, mut pushed) = connect(&server).await;
    connection.subscribe("__keyevent@0__:expired").await.unwrap();
    pushed.recv().await;
    server.command(["SET", "a", "1", "PX", "500"]);
    let push = pushed.recv().await.unwrap();
    assert_eq!(message(&push).unwrap().1, "a");
    let late = server.now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(late.as_millis(), 1_700_000_000_600);
    assert_eq!(server.command(["DBSIZE"]), RedisReply::Int(0));
}

#[tokio::test(start_paused = true)]
async fn scripts_are_loaded_and_publish_to_shards() {
    let server = TestServer::new();
    let (mut connection, mut pushed) = connect(&server).await;
    redis::cmd("SSUBSCRIBE").arg("a").arg("b").exec_async(&mut connection).await.unwrap();
    let script = redis::Script::new("redis.call('SPUBLISH', KEYS[1], ARGV[1]) return {KEYS[1], #ARGV, 1.9}");
    let answer: (String, i64, i64) =
        script.key("b").arg("hello").invoke_async(&mut connection).await.unwrap();
    assert_eq!(answer, ("b".into(), 1, 1));
    let kinds: Vec<_> = std::iter::from_fn(|| pushed.try_recv().ok()).map(|push| push.kind).collect();
    assert_eq!(kinds, [PushKind::SSubscribe, PushKind::SSubscribe, PushKind::SMessage]);
}

#[tokio::test]
async fn a_port_serves_clients_of_any_kind_until_the_server_is_gone() {
    let server = TestServer::new();
    let address = server.listen().await.unwrap();
    let client = redis::Client::open(format!("redis://{address}/")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    assert_eq!(ask(&mut connection, "SET a 1").await, Ok("OK".to_owned()));
    assert_eq!(server.command(["GET", "a"]), RedisReply::Bulk("1".into()));
    drop(server);
    assert!(ask::<String>(&mut connection, "GET a").await.is_err());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn commands_can_be_refused_lost_and_left_hanging() {
    let server = TestServer::new();
    server.intercept(|request| match request.args.get(1).map(|arg| &arg[..]) {
        Some(b"refused") => Intervention::Refuse("LOADING Redis is loading the dataset in memory".into()),
        Some(b"lost") => Intervention::Unanswered,
        Some(b"hangs") => Intervention::Hang,
        _ => Intervention::Execute,
    });
    let (mut connection, _pushed) = connect(&server).await;
    let refused = ask::<Value>(&mut connection, "SET refused 1").await.unwrap_err();
    assert_eq!(refused.code(), Some("LOADING"));
    assert_eq!(ask(&mut connection, "SET done 1").await, Ok("OK".to_owned()));
    assert!(ask::<Value>(&mut connection, "SET lost 1").await.unwrap_err().is_connection_dropped());

    let (mut connection, _pushed) = connect(&server).await;
    let hanging = tokio::time::timeout(Duration::from_secs(60), ask::<Value>(&mut connection, "SET hangs 1"));
    assert!(hanging.await.is_err());
    let all = server.command(["MGET", "refused", "done", "lost", "hangs"]);
    assert_eq!(all.to_string(), "[(nil), \"1\", \"1\", \"1\"]");
}
