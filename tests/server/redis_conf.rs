//! redis.conf is a safe start for production: what it sets, and nothing else.

const CONF: &str = include_str!("../../redis.conf");

#[test]
fn redis_conf_sets_what_it_explains_and_nothing_else() {
    let lines = CONF.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let settings: Vec<_> = lines.filter(|line| !line.starts_with("user ")).collect();
    let expected = [
        // Who can connect.
        "bind 127.0.0.1 -::1",
        "port 6379",
        "protected-mode yes",
        "tcp-keepalive 60",
        // Expired keys: no more than is asked for.
        "notify-keyspace-events Ex",
        // Memory: nothing is evicted, and a slow subscriber is cut off.
        "maxmemory-policy noeviction",
        "client-output-buffer-limit pubsub 32mb 8mb 60",
        // What survives a crash.
        "appendonly yes",
        "appendfsync everysec",
    ];
    assert_eq!(settings, expected);
}

/// Tests turn some of it off: a server has to take the file as it stands, too.
#[tokio::test]
async fn a_server_takes_redis_conf_as_it_stands() {
    let server = keylapse_support::Server::builder().config("appendonly", "yes").start().await;
    let of = async |name: &str| -> Vec<String> {
        redis::from_redis_value(server.cmd(&["CONFIG", "GET", name]).await).unwrap()
    };
    for (name, value) in [
        ("protected-mode", "yes"),
        ("tcp-keepalive", "60"),
        ("notify-keyspace-events", "xE"),
        ("maxmemory-policy", "noeviction"),
        ("appendfsync", "everysec"),
    ] {
        assert_eq!(of(name).await[1], value, "{name}");
    }
    let limits = of("client-output-buffer-limit").await.remove(1);
    assert!(limits.contains("pubsub 33554432 8388608 60"), "{limits}");
}
