//! The doctor at clusters, and at servers that sentinels watch: each server is looked at by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use keylapse::{Client, Topic};
use keylapse_console::Console;
use keylapse_console::doctor::Diagnosis;
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, RedisReply};

use crate::reach::{self, as_app, cluster, sentinel_group};
use crate::replicas::set_flags;
use crate::support::PATIENCE;

fn console(url: &str) -> Console {
    Console::new(Client::new(&as_app(url)).unwrap())
}

/// Of which servers this was found.
fn nodes_with(diagnosis: &Diagnosis, code: &str) -> BTreeSet<String> {
    let of_code = diagnosis.findings.iter().filter(|finding| finding.code == code);
    of_code.map(|finding| finding.node.clone().unwrap_or_default()).collect()
}

fn names(nodes: &[LocalNode]) -> BTreeSet<String> {
    nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect()
}

async fn keys_of_the_doctor(node: &LocalNode) -> usize {
    match node.command(["KEYS", "keylapse:doctor:*"]).await {
        Ok(RedisReply::Array(keys)) => keys.len(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_of_a_cluster_is_looked_at_and_each_primary_heard() {
    let cluster = cluster().await;
    let primaries = cluster.primaries().await.unwrap();
    let diagnosis = console(&cluster.url()).doctor().measure(Duration::from_secs(2)).await;
    assert_eq!(diagnosis.errors(), 0, "{:#?}", diagnosis.findings);
    assert_eq!(nodes_with(&diagnosis, "K100"), names(&cluster.nodes()));
    assert_eq!(nodes_with(&diagnosis, "K200"), names(&cluster.nodes()));
    for code in ["K300", "K500", "K502"] {
        assert_eq!(nodes_with(&diagnosis, code), names(&primaries), "{code}");
    }
    let lateness = &diagnosis.lateness;
    assert_eq!((lateness.checked_received, lateness.checked_probes), (600, 600), "{:#?}", diagnosis.findings);
    for node in &primaries {
        eventually(PATIENCE, "nothing to be left", async || keys_of_the_doctor(node).await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_amiss_is_said_of_the_node_that_has_it() {
    let cluster = cluster().await;
    let primaries = cluster.primaries().await.unwrap();
    let replica = cluster.replica_of(&primaries[1]).await.unwrap();
    set_flags(&primaries[0], "").await;
    set_flags(&replica, "K").await;
    let diagnosis = console(&cluster.url()).doctor().await;
    assert_eq!(nodes_with(&diagnosis, "K301"), names(&primaries[..1]), "{:#?}", diagnosis.findings);
    assert_eq!(nodes_with(&diagnosis, "K303"), names(std::slice::from_ref(&replica)));
    assert_eq!(nodes_with(&diagnosis, "K300"), names(&primaries[1..]));
    replica.kill();
    let diagnosis = console(&cluster.url()).doctor().await;
    assert_eq!(
        nodes_with(&diagnosis, "K101"),
        names(std::slice::from_ref(&replica)),
        "{:#?}",
        diagnosis.findings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_with_few_partitions_are_found_where_there_are_several_primaries() {
    let cluster = cluster().await;
    let schedule = reach::schedule(&as_app(&cluster.url()));
    let few = Topic::<u64>::new("app:few:{id}").unwrap();
    let many = Topic::<u64>::new("app:many:{id}").unwrap().partitions(6);
    for topic in [&few, &many] {
        let _ = schedule.arm(topic, "1", Duration::from_secs(3600), &1).await.unwrap();
    }
    let diagnosis = console(&cluster.url()).doctor().await;
    let found: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.code == "K605").collect();
    assert_eq!(found.len(), 1, "{:#?}", diagnosis.findings);
    assert_eq!(found[0].fix.as_deref(), Some("keylapse partitions app.few --to 6"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_which_nothing_answers_is_one_finding() {
    let diagnosis = console("redis+cluster://127.0.0.1:1,127.0.0.1:2/").doctor().await;
    assert_eq!(diagnosis.findings.len(), 1, "{:#?}", diagnosis.findings);
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.code, finding.fix.as_deref()), ("K101", Some("redis-cli -h 127.0.0.1 -p 1 PING")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_that_sentinels_name_is_looked_at_with_its_replicas() {
    let group = sentinel_group().await;
    let master = group.master().await.unwrap();
    let all_seen = async || {
        let diagnosis = console(&group.url()).doctor().await;
        diagnosis.errors() == 0 && nodes_with(&diagnosis, "K100") == names(group.servers())
    };
    eventually(PATIENCE, "all servers to be looked at", all_seen).await;
    let diagnosis = console(&group.url()).doctor().await;
    assert_eq!(nodes_with(&diagnosis, "K300"), names(&[master]), "{:#?}", diagnosis.findings);
}
