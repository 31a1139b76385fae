//! A database other than 0, which clusters of Valkey 9 can have.

use keylapse::{Client, Servers};
use keylapse_support::{app_user_line, connect};
use keylapse_testing::{LocalCluster, LocalNode};

use crate::reach::{FLAGS, as_app, assert_nothing_refused, valkey_9};
use crate::through::Through;

/// How many keys a node has in a database.
async fn size(node: &LocalNode, database: u32) -> usize {
    let mut connection = connect(&format!("{}{database}", node.url())).await.unwrap();
    redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_and_keys_of_a_clusters_database_1_are_heard_there_and_database_0_stays_empty() {
    let Some(able) = valkey_9("has databases in a cluster") else { return };
    let user = app_user_line().replace("@0__", "@1__");
    let builder = LocalCluster::builder().binary(able.path()).replicas_per_primary(0).databases(2);
    let cluster = builder.config(&user).notifications(FLAGS).start().await.unwrap();
    let url = as_app(&cluster.url());
    let producer = Client::new(&format!("{url}1")).unwrap();
    let listener = Servers::at(&url).database(1).try_into().unwrap();
    let mut through = Through::begin(producer, listener).await;
    through.timers().await;
    through
        .keys(async |key, life| {
            let owner = cluster.owner_of_key(key).await.unwrap();
            let mut connection = connect(&format!("{}1", owner.url())).await.unwrap();
            let mut set = redis::cmd("SET");
            set.arg(key).arg(key).arg("PX").arg(life);
            set.exec_async(&mut connection).await.unwrap();
        })
        .await;
    for node in cluster.nodes() {
        assert!(size(&node, 1).await > 0, "{node:?}");
        assert_eq!(size(&node, 0).await, 0, "{node:?}");
    }
    through.end().await;
    assert_nothing_refused(&cluster.nodes()).await;
}
