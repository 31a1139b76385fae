//! Servers that forget all scripts.

use futures::future::join_all;

use super::super::Stage;

pub(super) async fn strike(stage: &Stage) {
    let nodes = stage.group.nodes();
    let forget = nodes.iter().map(|node| node.command(["SCRIPT", "FLUSH"]));
    for (node, answer) in nodes.iter().zip(join_all(forget).await) {
        answer.unwrap_or_else(|error| panic!("{node:?}: {error}"));
    }
}
