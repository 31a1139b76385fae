//! What calls cost. Nothing is asserted: `cargo test --release -p keylapse-testserver --test testserver cost -- --ignored --nocapture`.

use std::time::Instant;

use keylapse_testserver::TestServer;

fn measure(what: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 20_000;
    (0..1000).for_each(|_| call());
    let began = Instant::now();
    (0..CALLS).for_each(|_| call());
    println!("{what}: {:.2} µs", began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
}

#[test]
#[ignore = "measures, and proves nothing"]
fn what_calls_cost() {
    let server = TestServer::new();
    measure("SET with an expiry", || _ = server.command(["SET", "a", "1", "PX", "100000"]));
    measure("GET", || _ = server.command(["GET", "a"]));
    for (what, text) in [
        ("an empty script", "return 1"),
        ("a script of one call", "return redis.call('GET', KEYS[1])"),
        ("a script of ten calls", "for i = 1, 10 do redis.call('HSET', 'h', i, ARGV[1]) end"),
    ] {
        let sha = redis::Script::new(text).get_hash().to_owned();
        server.command(["SCRIPT", "LOAD", text]);
        measure(what, || _ = server.command(["EVALSHA", &sha, "1", "a", "x"]));
    }
}

#[tokio::test]
#[ignore = "measures, and proves nothing"]
async fn what_a_round_trip_costs() {
    let server = TestServer::new();
    let info = redis::RedisConnectionInfo::default();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let stream = server.connect();
    let (mut connection, driver) = redis::aio::MultiplexedConnection::new_with_config(&info, stream, config)
        .await
        .expect("a connection");
    tokio::spawn(driver);
    const CALLS: u32 = 20_000;
    let began = Instant::now();
    for _ in 0..CALLS {
        redis::cmd("SET").arg("a").arg(1).exec_async(&mut connection).await.expect("an answer");
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS);
    println!("SET over a connection: {each:.2} µs");
}
