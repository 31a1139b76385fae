//! Who follows whom: `INFO replication`.

use redis::InfoDict;

use crate::servers::{Node, failed};
use keylapse::Result;

/// A replica has all that its primary has, and a primary knows that its replicas have. Else an
/// error.
pub(super) async fn is_up(node: &Node) -> Result<()> {
    let info = info(node).await?;
    let replicas: usize = info.get("connected_slaves").unwrap_or_default();
    let mut states = (0..replicas).map(|at| info.get::<String>(&format!("slave{at}")).unwrap_or_default());
    let link = info.get::<String>("master_link_status");
    if link.is_some_and(|link| link != "up") || !states.all(|state| state.contains("state=online")) {
        return Err(failed(format!("replication of the node on port {} is not up", node.port())));
    }
    Ok(())
}

/// Whether it says so itself.
pub(super) async fn is_master(node: &Node) -> Result<bool> {
    Ok(info(node).await?.get::<String>("role").is_some_and(|role| role == "master"))
}

/// The port of whom it follows, if it does.
pub(super) async fn master_of(node: &Node) -> Result<Option<u16>> {
    Ok(info(node).await?.get("master_port"))
}

async fn info(node: &Node) -> Result<InfoDict> {
    node.ask("INFO replication").await
}
