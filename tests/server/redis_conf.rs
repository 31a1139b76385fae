//! redis.conf is a safe start for production: what it sets, and nothing else.

use keylapse::Schedule;
use keylapse_support::{Reach, Server, tls_lines};

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

#[test]
fn what_redis_conf_says_of_tls_stands_behind_hash_signs() {
    let expected = [
        ("tls-port", "6380"),
        ("tls-cert-file", "/etc/redis/tls/server.pem"),
        ("tls-key-file", "/etc/redis/tls/server.key"),
        ("tls-ca-cert-file", "/etc/redis/tls/ca.pem"),
        ("tls-auth-clients", "no"),
        ("tls-replication", "yes"),
        ("tls-cluster", "yes"),
    ];
    assert_eq!(tls_lines().collect::<Vec<_>>(), expected);
    assert!(!CONF.lines().any(|line| line.starts_with("tls-")), "a server without TLS takes the file, too");
}

/// Whoever says how tests reach their servers is believed by all of them.
#[tokio::test]
async fn clients_come_in_as_this_run_says() {
    let server = Server::start().await;
    let reach = Reach::of_this_run();
    let _schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let clients: String = redis::from_redis_value(server.cmd(&["CLIENT", "LIST"]).await).unwrap();
    let ours: Vec<_> = clients.lines().filter(|client| client.contains(" user=keylapse ")).collect();
    let door = format!(" laddr={} ", server.door());
    assert!(!ours.is_empty() && ours.iter().all(|client| client.contains(&door)), "{clients}");
    assert_eq!(server.door().port() != server.port(), reach.is_over_tls());
    let cluster: String = redis::from_redis_value(server.cmd(&["INFO", "cluster"]).await).unwrap();
    assert_eq!(cluster.contains("cluster_enabled:1"), reach.is_cluster());
}

/// Tests turn some of it off: a server has to take the file as it stands, too.
#[tokio::test]
async fn a_server_takes_redis_conf_as_it_stands() {
    let server = Server::builder().config("appendonly", "yes").start().await;
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
