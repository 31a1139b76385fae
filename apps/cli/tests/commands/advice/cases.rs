//! A server, or several, for each finding.

use std::path::Path;
use std::time::Duration;

use futures::future::{FutureExt, LocalBoxFuture};
use keylapse::{Schedule, Topic};
use keylapse_support::{Authority, Builder, Fsync, Reach, Server, eventually, write};
use keylapse_testing::{LocalCluster, SentinelGroup};

use super::Shown;
use crate::commands::scene::PATIENCE;

pub(super) enum Case {
    /// A server with these settings.
    Set(&'static [(&'static str, &'static str)]),
    /// A user like that of `redis.conf`, with these rules besides.
    Less(&'static [&'static str]),
    /// Anything else; none where the server at hand cannot show it.
    Own(fn() -> LocalBoxFuture<'static, Option<Shown>>),
}

use Case::{Less, Own, Set};

macro_rules! own {
    ($show:expr) => {
        Own(|| $show.boxed_local())
    };
}

pub(super) const CASES: [(&str, Case); 48] = [
    ("K102", own!(wrong_password())),
    ("K104", own!(replica(true, &[]))),
    ("K112", Set(&[("maxmemory", "1kb")])),
    ("K112", Set(&[("min-replicas-to-write", "1")])),
    ("K112", own!(disk_that_fails())),
    ("K113", Set(&[("client-output-buffer-limit", "normal 256kb 128kb 10")])),
    ("K114", Set(&[("maxmemory-clients", "4mb")])),
    ("K115", Set(&[("proto-max-bulk-len", "1mb")])),
    ("K115", Set(&[("client-query-buffer-limit", "1mb")])),
    ("K116", Set(&[("timeout", "1")])),
    ("K119", own!(cluster_without_slots())),
    ("K120", own!(url(|port| format!("redis://127.0.0.1:{port}/99")))),
    ("K120", own!(url(|port| format!("redis+sentinel://127.0.0.1:{port}/shop")))),
    ("K120", own!(url(|port| format!("redis+cluster://127.0.0.1:{port}/")))),
    ("K120", own!(url(|port| format!("rediss://127.0.0.1:{port}/")))),
    ("K120", own!(port_of_tls())),
    ("K120", own!(sentinel(|at| format!("redis://{at}/")))),
    ("K120", own!(sentinel(|at| format!("redis+cluster://{at}/")))),
    ("K120", own!(sentinel(|at| format!("redis+sentinel://{at}/another")))),
    ("K120", own!(database_behind_sentinels())),
    ("K120", own!(node())),
    ("K121", own!(no_password())),
    ("K201", Less(&["-hset", "-zscore"])),
    ("K202", Less(&["resetkeys", "~app:*"])),
    ("K203", Less(&["resetchannels", "&keylapse:*"])),
    ("K204", Less(&["-spublish"])),
    ("K204", Less(&["-ssubscribe"])),
    ("K205", Less(&["-scan"])),
    ("K206", Less(&["-config|get"])),
    ("K207", Less(&["-lpush", "-xadd"])),
    ("K208", own!(other_database())),
    ("K301", Set(&[("notify-keyspace-events", "")])),
    ("K301", Set(&[("notify-keyspace-events", "AK")])),
    ("K302", own!(unreadable_flags())),
    ("K303", own!(replica(false, &[("notify-keyspace-events", "")]))),
    ("K304", Set(&[("client-output-buffer-limit", "pubsub 1mb 512kb 60")])),
    ("K401", Set(&[("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")])),
    ("K402", Set(&[("maxmemory", "100mb"), ("maxmemory-policy", "volatile-ttl")])),
    ("K403", Set(&[("appendonly", "no")])),
    ("K404", Set(&[("appendonly", "no"), ("save", "3600 1")])),
    ("K405", Set(&[])),
    ("K406", own!(disk_that_has_room_again())),
    ("K408", own!(replica(false, &[]))),
    ("K409", Set(&[("maxmemory", "1kb")])),
    ("K501", own!(keys(20_000, &[]))),
    ("K503", own!(keys(5_000, &["--measure", "6s"]))),
    ("K605", own!(few_partitions())),
    ("K608", own!(paused())),
];

impl Case {
    pub(super) async fn show(&self) -> Option<Shown> {
        let server = match self {
            Set(settings) => {
                settings.iter().fold(well(), |server, (name, value)| server.config(name, value)).start().await
            }
            Less(_) => well().start().await,
            Own(show) => return show().await,
        };
        match self {
            Less(rules) => Some(Shown::at(server.poor_user(rules).await, server)),
            _ => Some(Shown::at(server.plain_url(), server)),
        }
    }
}

fn well() -> Builder {
    Server::builder().aof(Fsync::EverySecond)
}

async fn url(of_port: fn(u16) -> String) -> Option<Shown> {
    let server = well().start().await;
    Some(Shown::at(of_port(server.port()), server))
}

async fn wrong_password() -> Option<Shown> {
    let server = well().start().await;
    Some(Shown { password: "wrong", ..Shown::at(server.url_for("keylapse", "wrong"), server) })
}

async fn no_password() -> Option<Shown> {
    let server = well().start().await;
    server.cmd(&["CONFIG", "SET", "requirepass", "secret"]).await;
    Some(Shown::at(server.plain_url(), server))
}

/// A primary and its replica, which is what the URL names where it is `given`.
async fn replica(given: bool, settings: &[(&str, &str)]) -> Option<Shown> {
    let primary = well().start().await;
    let of_primary = format!("127.0.0.1 {}", primary.port());
    let builder = well().config("replicaof", &of_primary);
    let replica =
        settings.iter().fold(builder, |server, (name, value)| server.config(name, value)).start().await;
    eventually(PATIENCE, "the replica to be linked", async || {
        let redis::Value::BulkString(info) = replica.cmd(&["INFO", "replication"]).await else {
            return false;
        };
        String::from_utf8_lossy(&info).contains("master_link_status:up")
    })
    .await;
    let url = if given { replica.plain_url() } else { primary.plain_url() };
    Some(Shown::at(url, (primary, replica)))
}

/// A snapshot that cannot be written, as something stands in its place.
async fn disk_that_fails() -> Option<Shown> {
    let server = Server::builder().config("save", "3600 1").start().await;
    let snapshot = folder_of(&server).await;
    std::fs::create_dir_all(Path::new(&snapshot).join("dump.rdb/in/the/way")).expect("a folder");
    server.cmd(&["BGSAVE"]).await;
    eventually(PATIENCE, "the snapshot to fail", async || {
        let redis::Value::BulkString(info) = server.cmd(&["INFO", "persistence"]).await else { return false };
        String::from_utf8_lossy(&info).contains("rdb_last_bgsave_status:err")
    })
    .await;
    Some(Shown::at(server.plain_url(), server))
}

async fn disk_that_has_room_again() -> Option<Shown> {
    let shown = disk_that_fails().await?;
    let server = shown.kept.downcast_ref::<Server>().expect("a server");
    std::fs::remove_dir_all(Path::new(&folder_of(server).await).join("dump.rdb")).expect("room");
    Some(shown)
}

async fn folder_of(server: &Server) -> String {
    let answer = server.cmd(&["CONFIG", "GET", "dir"]).await;
    redis::from_redis_value::<Vec<String>>(answer).expect("a folder").pop().expect("a folder")
}

async fn cluster_without_slots() -> Option<Shown> {
    let server = well().config("cluster-enabled", "yes").start().await;
    Some(Shown::at(format!("redis+cluster://127.0.0.1:{}/", server.port()), server))
}

async fn sentinel(of: fn(&str) -> String) -> Option<Shown> {
    let group = SentinelGroup::start().await.expect("sentinels");
    let at = format!("127.0.0.1:{}", group.sentinels()[0].port());
    Some(Shown::at(of(&at), group))
}

async fn database_behind_sentinels() -> Option<Shown> {
    let group = SentinelGroup::start().await.expect("sentinels");
    Some(Shown::at(format!("{}/99", group.url()), group))
}

async fn node() -> Option<Shown> {
    let cluster = LocalCluster::start().await.expect("a cluster");
    let node = cluster.primaries().await.expect("primaries").remove(0);
    Some(Shown::at(format!("redis://127.0.0.1:{}/", node.port()), cluster))
}

/// None of a server without TLS.
async fn port_of_tls() -> Option<Shown> {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("the CA of this test");
    write(folder.path(), "ca.pem", &authority.pem);
    authority.issue(folder.path(), "server", &["127.0.0.1"]);
    let server = well().reach(Reach::over_tls(folder.path())).try_start().await.ok()?;
    let environment = vec![("SSL_CERT_FILE", folder.path().join("ca.pem").display().to_string())];
    let url = format!("redis://127.0.0.1:{}/", server.door().port());
    Some(Shown { environment, ..Shown::at(url, (server, folder)) })
}

/// Valkey has such users since 9.1.
async fn other_database() -> Option<Shown> {
    let server = well().start().await;
    let version = server.version();
    if !version.is_valkey || version.number < (9, 1, 0) {
        return None;
    }
    Some(Shown::at(server.poor_user(&["db=3"]).await, server))
}

async fn unreadable_flags() -> Option<Shown> {
    let server = well().config("notify-keyspace-events", "").start().await;
    Some(Shown::at(server.poor_user(&["-config|get"]).await, server))
}

/// Keys with a time to live, of which there are so many that nobody who only subscribes hears of them in time.
async fn keys(count: u32, options: &'static [&'static str]) -> Option<Shown> {
    let server = well().start().await;
    let many = format!("for n = 1, {count} do redis.call('SET', 'app:' .. n, '', 'PX', 3600000) end");
    server.cmd(&["EVAL", &many, "0"]).await;
    Some(Shown { options, ..Shown::at(server.plain_url(), server) })
}

async fn few_partitions() -> Option<Shown> {
    let cluster = LocalCluster::start().await.expect("a cluster");
    let schedule = Schedule::connect(&cluster.url()).await.expect("a schedule");
    let few = Topic::<u64>::new("app:few:{id}").expect("a topic");
    assert!(schedule.arm(&few, "1", Duration::from_secs(3600), &1).await.expect("an arming").is_armed());
    Some(Shown::at(cluster.url(), cluster))
}

async fn paused() -> Option<Shown> {
    let server = well().start().await;
    let schedule = Schedule::connect(&server.plain_url()).await.expect("a schedule");
    let topic = Topic::<u64>::new("app:order:{id}").expect("a topic");
    assert!(schedule.arm(&topic, "1", Duration::from_secs(3600), &1).await.expect("an arming").is_armed());
    schedule.pause(&topic, "the bank is down").await.expect("a pause");
    Some(Shown::at(server.plain_url(), server))
}
