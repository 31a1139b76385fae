//! Whether a cluster is well, by what all running nodes say.

use futures::future::try_join_all;

use crate::servers::cluster::view::View;
use crate::servers::{Node, failed, replication};
use keylapse::Result;

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
    replication::is_up(node).await
}
