//! Whether a cluster is well, by what all running nodes say.

use futures::future::try_join_all;
use redis::InfoDict;

use crate::error::Result;
use crate::testing::servers::cluster::view::View;
use crate::testing::servers::{Node, failed};

/// Each running node serves, all believe the same of who has which slots, and replicas are linked to
/// running primaries. Else an error that says what is not so.
pub(super) async fn check(nodes: &[Node]) -> Result<()> {
    let running: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
    try_join_all(running.iter().map(|node| serves(node))).await?;
    let views = try_join_all(running.iter().map(|node| View::of(node))).await?;
    match views.windows(2).find(|pair| pair[0].owners() != pair[1].owners()) {
        Some(pair) => Err(failed(format!("nodes disagree on the owners of slots: {pair:?}"))),
        None => Ok(()),
    }
}

async fn serves(node: &Node) -> Result<()> {
    let info: String = node.ask("CLUSTER INFO").await?;
    if !info.contains("cluster_state:ok") {
        return Err(failed(format!("the node on port {} says {info}", node.port())));
    }
    is_linked(node).await
}

/// A replica has all of its primary, and a primary knows that its replicas have.
async fn is_linked(node: &Node) -> Result<()> {
    let info: InfoDict = node.ask("INFO replication").await?;
    let replicas: usize = info.get("connected_slaves").unwrap_or_default();
    let states = (0..replicas).map(|at| info.get::<String>(&format!("slave{at}")).unwrap_or_default());
    let link = info.get::<String>("master_link_status");
    if link.is_some_and(|link| link != "up")
        || !states.into_iter().all(|state| state.contains("state=online"))
    {
        return Err(failed(format!("replication of the node on port {} is not up", node.port())));
    }
    Ok(())
}
