//! What the sentinels of a group say.

use std::collections::HashMap;

use futures::future::try_join_all;

use crate::servers::sentinel::SentinelGroup;
use crate::servers::{Node, failed, replication};
use keylapse::Result;

/// What a sentinel knows of a server, by the names of its fields.
type Fields = HashMap<String, String>;

impl SentinelGroup {
    /// Whom each running sentinel names.
    pub(super) async fn ports_of_master(&self) -> Result<Vec<u16>> {
        let question = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", self.name);
        let running = running(&self.sentinels);
        let addresses: Vec<(String, u16)> = try_join_all(running.map(|node| node.ask(&question))).await?;
        Ok(addresses.into_iter().map(|(_, port)| port).collect())
    }

    /// An error that says what is not as it shall be.
    pub(super) async fn check(&self) -> Result<()> {
        let master = self.master().await?;
        if !replication::is_master(&master).await? {
            return Err(failed(format!("{master:?} is not the master yet")));
        }
        try_join_all(running(&self.servers).map(|server| follows(server, &master))).await?;
        try_join_all(running(&self.sentinels).map(|sentinel| self.sees_all(sentinel))).await?;
        Ok(())
    }

    async fn sees_all(&self, sentinel: &Node) -> Result<()> {
        let master: Fields = sentinel.ask(&format!("SENTINEL MASTER {}", self.name)).await?;
        let replicas: Vec<Fields> = sentinel.ask(&format!("SENTINEL REPLICAS {}", self.name)).await?;
        let sentinels: Vec<Fields> = sentinel.ask(&format!("SENTINEL SENTINELS {}", self.name)).await?;
        let seen = [replicas, sentinels].map(|all| all.iter().filter(|one| is_well(one)).count());
        let expected = [running(&self.servers).count() - 1, running(&self.sentinels).count() - 1];
        if master.get("flags").is_none_or(|flags| flags != "master") || seen != expected {
            let port = sentinel.port();
            return Err(failed(format!(
                "the sentinel on port {port} sees {seen:?} of {expected:?} replicas and sentinels, and {master:?}"
            )));
        }
        Ok(())
    }
}

/// A server that is not the master is a replica of it, and has all it has.
async fn follows(server: &Node, master: &Node) -> Result<()> {
    replication::is_up(server).await?;
    if server == master || replication::master_of(server).await? == Some(master.door()) {
        return Ok(());
    }
    Err(failed(format!("{server:?} does not follow {master:?}")))
}

fn running(nodes: &[Node]) -> impl Iterator<Item = &Node> {
    nodes.iter().filter(|node| node.is_running())
}

/// Whether nothing is the matter with it. A sentinel's own `master_down` is what it thinks of another.
fn is_well(fields: &Fields) -> bool {
    let ill = ["s_down", "o_down", "disconnected"];
    fields.get("flags").is_some_and(|flags| !flags.split(',').any(|flag| ill.contains(&flag)))
}
