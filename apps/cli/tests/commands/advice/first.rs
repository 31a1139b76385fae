//! A reason that keeps everything else from being looked at is the only finding. Other commands give the same reason.

use keylapse_support::{Server, eventually};
use keylapse_testing::{LocalCluster, SentinelGroup};
use serde_json::Value;

use super::findings;
use crate::commands::scene::{PATIENCE, run_at};

fn codes(found: &[Value]) -> Vec<&str> {
    found.iter().map(|finding| finding["code"].as_str().expect("a code")).collect()
}

/// The only finding; of a command that asks for topics a line with this.
fn is_alone(url: &str, code: &str, says: &str) {
    let doctor = run_at(url, &["--json", "doctor"], b"");
    let found = findings(&doctor.out);
    assert!(found.len() == 1 && found[0]["code"] == code && doctor.code == 3, "{url}: {code}: {doctor:?}");
    let topics = run_at(url, &["--timeout", "2s", "topics"], b"");
    assert!(topics.code == 3 && topics.err.contains(says), "{url}: {topics:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_used_has_one_finding() {
    let server = Server::start().await;
    let at = format!("127.0.0.1:{}", server.port());
    is_alone("redis://127.0.0.1:1/", "K101", "nothing listens there");
    is_alone("redis://nobody.invalid/", "K101", "does not resolve");
    is_alone(&format!("redis://keylapse:wrong@{at}/"), "K102", "refused the user or password");
    is_alone(&format!("redis://{at}/99"), "K120", "fewer databases");
    is_alone(&format!("rediss://{at}/"), "K120", "no TLS is spoken at this port");
    is_alone(&format!("redis+cluster://{at}/"), "K120", "is not part of a cluster");
    is_alone(&format!("redis+sentinel://{at}/shop"), "K120", "is not a sentinel");
    server.cmd(&["CONFIG", "SET", "requirepass", "secret"]).await;
    is_alone(&format!("redis://{at}/"), "K121", "check user and password");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_is_no_server_whatever_the_url_says() {
    let group = SentinelGroup::start().await.expect("sentinels");
    let (at, name) = (format!("127.0.0.1:{}", group.sentinels()[0].port()), group.name());
    let right = format!("use redis+sentinel://{at}/{name}");
    is_alone(&format!("redis://{at}/"), "K120", &right);
    is_alone(&format!("redis+cluster://{at}/"), "K120", "redis+sentinel://");
    // The primary that it names is looked at.
    is_alone(&format!("redis+sentinel://{at}/{name}/99"), "K120", "fewer databases");
    is_alone(&format!("redis+sentinel://keylapse:wrong@{at}/{name}"), "K102", "refused the user or password");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keylapse.toml");
    let topic = "[topics.orders]\npattern = \"order:{id}\"\n[topics.orders.forward]\nlist = \"jobs\"\n";
    std::fs::write(&file, topic).expect("a file");
    let relay = ["run", "--config", file.to_str().expect("UTF-8")];
    for command in [&["arm", "order:unpaid:1", "--when", "1h"][..], &relay] {
        let ran = run_at(&format!("redis://{at}/"), command, b"");
        assert!(ran.code == 3 && ran.err.contains(&right), "{command:?}: {ran:?}");
    }
}

/// A node that has lost the others, as whose slots nobody serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_has_one_finding() {
    let cluster = LocalCluster::builder().replicas_per_primary(0).start().await.expect("a cluster");
    let primaries = cluster.primaries().await.expect("primaries");
    primaries[0].kill();
    let url = format!("redis+cluster://127.0.0.1:{}/", primaries[1].port());
    let mut found = Vec::new();
    // Nodes find out one after the other.
    eventually(PATIENCE, "all nodes to say so", async || {
        found = findings(&run_at(&url, &["--json", "--timeout", "1s", "doctor"], b"").out);
        codes(&found) == ["K119", "K101"]
    })
    .await;
    assert!(found[0]["fix"].as_str().expect("a line").ends_with(" CLUSTER NODES"), "{found:#?}");
    let topics = run_at(&url, &["topics"], b"");
    assert!(topics.code == 3 && topics.err.contains("CLUSTERDOWN"), "{topics:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_has_one_finding() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("key-load-delay", "500")
        .config("loading-process-events-interval-bytes", "1024")
        .start()
        .await;
    let many = "for n = 1, 20000 do redis.call('SET', 'other:' .. n, 'x') end";
    server.cmd(&["EVAL", many, "0"]).await;
    server.kill().await;
    let url = server.plain_url();
    let restarted = tokio::spawn(async move {
        server.restart().await;
        server
    });
    eventually(PATIENCE, "the server to load", async || {
        run_at(&url, &["--json", "doctor"], b"").out.contains("K118")
    })
    .await;
    is_alone(&url, "K118", "LOADING");
    restarted.await.expect("a server");
    let loaded = run_at(&url, &["--json", "doctor"], b"");
    assert!(!loaded.out.contains("K118"), "it passes by itself: {loaded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_has_one_finding_beside_that_it_answers() {
    let primary = Server::start().await;
    let replica =
        Server::builder().config("replicaof", &format!("127.0.0.1 {}", primary.port())).start().await;
    let doctor = run_at(&replica.plain_url(), &["--json", "doctor"], b"");
    let found = findings(&doctor.out);
    assert_eq!((codes(&found), doctor.code), (vec!["K100", "K104"], 1), "{doctor:?}");
}
