//! TLS with all nodes of a cluster, and with servers and sentinels.

use std::path::PathBuf;

use keylapse::{Client, ErrorKind, Schedule, Servers, Tls};
use keylapse_support::{APP_USER, Authority, eventually, skipped, tls_settings, write};
use keylapse_testing::{LocalNode, RedisReply};
use tempfile::TempDir;

use crate::load::{FIRST, impatient};
use crate::reach::{as_app, assert_nothing_refused, cluster_builder, sentinel_builder};
use crate::support::PATIENCE;
use crate::through::{Through, set};

/// A CA that nobody knows, and a certificate of it for this host.
struct Certificates(TempDir);

impl Certificates {
    fn of(host: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("the CA of this test");
        write(folder.path(), "ca.pem", &authority.pem);
        authority.issue(folder.path(), "server", &[host]);
        Self(folder)
    }

    /// The lines of redis.conf, with these files.
    fn lines(&self) -> Vec<String> {
        let settings = tls_settings(self.0.path(), 0).into_iter().filter(|(name, _)| name != "tls-port");
        settings.map(|(name, value)| format!("{name} {value}")).collect()
    }

    /// A client that has come in by this URL, as the user with the least rights, and trusts that CA alone.
    fn client(&self, url: &str) -> Client {
        let ca: PathBuf = self.0.path().join("ca.pem");
        Servers::at(&as_app(url)).tls(Tls::new().ca_file(ca)).try_into().unwrap()
    }
}

/// None, and said, where the server was built without TLS.
fn unless_without_tls<T>(started: keylapse::Result<T>) -> Option<T> {
    match started {
        Err(error) if error.to_string().contains("Failed finding TLS support") => {
            skipped("this server was built without TLS");
            None
        }
        started => Some(started.unwrap()),
    }
}

/// Waits until a node has a connection like that, and fails if one of them is plain.
async fn until_over_tls(node: &LocalNode, word: &str) {
    let plain = format!(" laddr=127.0.0.1:{} ", node.port());
    eventually(PATIENCE, "a connection", async || {
        let Ok(RedisReply::Bulk(clients)) = node.command(["CLIENT", "LIST"]).await else {
            panic!("an answer")
        };
        let clients = String::from_utf8_lossy(&clients);
        let ours: Vec<_> = clients.lines().filter(|line| line.contains(word)).collect();
        assert!(!ours.iter().any(|line| line.contains(&plain)), "{ours:?}");
        !ours.is_empty()
    })
    .await;
}

/// Nodes are known by a name, which is all that the certificate has.
#[tokio::test(flavor = "multi_thread")]
async fn timers_and_keys_go_through_a_cluster_over_tls_and_follow_a_slot_that_moves() {
    let certificates = Certificates::of("localhost");
    let builder = cluster_builder().announced_host("localhost");
    let builder = certificates.lines().iter().fold(builder, |builder, line| builder.config(line));
    let Some(cluster) = unless_without_tls(builder.start().await) else { return };
    let client = certificates.client(&cluster.url());
    let mut through = Through::begin(client.clone(), client).await;
    through.timers().await;
    through.keys(async |key, life| set(&cluster.owner_of_key(key).await.unwrap(), key, life).await).await;
    for node in cluster.nodes() {
        until_over_tls(&node, &format!(" user={APP_USER} ")).await;
    }

    let (slot, owner) = (cluster.slot_of(FIRST).await.unwrap(), cluster.owner_of_key(FIRST).await.unwrap());
    let primaries = cluster.primaries().await.unwrap();
    let to = primaries.iter().find(|node| **node != owner).unwrap();
    cluster.move_slot(slot, to).await.unwrap();
    through.timers().await;
    through.end().await;
    assert_nothing_refused(&cluster.nodes()).await;
}

/// They are known by their address, which the certificate has.
#[tokio::test(flavor = "multi_thread")]
async fn timers_and_keys_go_through_servers_and_sentinels_over_tls_and_follow_a_failover() {
    let certificates = Certificates::of("127.0.0.1");
    let lines = certificates.lines();
    let builder = lines.iter().fold(sentinel_builder(), |builder, line| builder.config(line));
    let builder = lines.iter().fold(builder, |builder, line| builder.sentinel_config(line));
    let Some(group) = unless_without_tls(builder.start().await) else { return };
    let client = certificates.client(&group.url());
    let mut through = Through::begin(client.clone(), client).await;
    through.timers().await;
    let master = group.master().await.unwrap();
    through.keys(async |key, life| set(&master, key, life).await).await;
    until_over_tls(&master, &format!(" user={APP_USER} ")).await;
    for sentinel in group.sentinels() {
        until_over_tls(sentinel, " sub=2 ").await; // nobody else subscribes there
    }

    let successor = group.failover().await.unwrap();
    group.wait_until_ok().await.unwrap();
    through.timers().await;
    until_over_tls(&successor, &format!(" user={APP_USER} ")).await;
    through.end().await;
    assert_nothing_refused(group.servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_no_tls_is_told_which_port_of_a_cluster_does_and_which_is_closed() {
    let certificates = Certificates::of("localhost");
    let builder = cluster_builder().primaries(1).replicas_per_primary(0).announced_host("localhost");
    let builder = certificates.lines().iter().fold(builder, |builder, line| builder.config(line));
    let Some(cluster) = unless_without_tls(builder.start().await) else { return };
    let node = &cluster.nodes()[0];
    let said = async |url: String| impatient(&as_app(&url)).await.unwrap_err().to_string();
    let at_tls_port = said(cluster.url().replacen("rediss", "redis", 1)).await;
    assert!(at_tls_port.contains("use rediss://"), "{at_tls_port}");

    let plain = format!("redis+cluster://localhost:{}/", node.port());
    impatient(&as_app(&plain)).await.expect("both ports are open");
    // Then nodes name the ports where they speak no TLS, and no others.
    node.command(["CONFIG", "SET", "tls-cluster", "no"]).await.unwrap();
    let unnamed = Schedule::connect(certificates.client(&cluster.url())).await.unwrap_err();
    assert!(unnamed.kind() == ErrorKind::Tls && unnamed.to_string().contains("tls-cluster yes"), "{unnamed}");
    node.command(["CONFIG", "SET", "tls-cluster", "yes"]).await.unwrap();

    node.command(["CONFIG", "SET", "port", "0"]).await.unwrap();
    let closed = said(plain).await;
    assert!(closed.contains(&format!("localhost:{}: Connection refused", node.port())), "{closed}");
    Schedule::connect(certificates.client(&cluster.url())).await.expect("that of TLS is open");
}

/// A sentinel has one second to answer: the silence after the greeting and the answer to a PING must both fit in it.
#[tokio::test(flavor = "multi_thread")]
async fn timed_a_sentinel_that_speaks_no_tls_is_told_as_such() {
    let (group, certificates) = (sentinel_builder().start().await.unwrap(), Certificates::of("127.0.0.1"));
    let url = group.url().replacen("redis", "rediss", 1);
    let refused = Schedule::connect(certificates.client(&url)).await.unwrap_err();
    assert!(
        refused.kind() == ErrorKind::Tls && refused.to_string().contains("no TLS is spoken"),
        "{refused}"
    );
}
