//! A master, its replicas, and sentinels that monitor them, for tests.

mod builder;

use std::collections::HashMap;
use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::{LocalNode, failed, poll_until};
use keylapse::Result;

pub use builder::SentinelGroupBuilder;

/// The limit of methods that wait.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(30);

/// A master, two replicas and three sentinels for one test, on free ports of 127.0.0.1.
///
/// The servers publish expired events. All processes end when this value is dropped. Tests can kill, suspend and restart
/// each of them. Servers and sentinels run the binary of [`LocalServer`](super::LocalServer).
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<LocalNode>,
    sentinels: Vec<LocalNode>,
    name: String,
}

impl SentinelGroup {
    /// Starts a master, two replicas and three sentinels, two of which must agree on a failover.
    ///
    /// # Errors
    /// Returns the errors of [`SentinelGroupBuilder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Returns settings for another group.
    pub fn builder() -> SentinelGroupBuilder {
        SentinelGroupBuilder::new()
    }

    /// Returns all servers, even those that were killed. The first one was the master at the start.
    pub fn servers(&self) -> &[LocalNode] {
        &self.servers
    }

    /// Returns all sentinels, even those that were killed.
    pub fn sentinels(&self) -> &[LocalNode] {
        &self.sentinels
    }

    /// Returns the name of the master.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL of the group: all sentinels, without a password. It uses TLS if the sentinels are configured with a
    /// `tls-cert-file`.
    pub fn url(&self) -> String {
        let all: Vec<_> =
            self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.connect_port())).collect();
        let scheme = self.sentinels.first().map_or("redis", LocalNode::scheme);
        format!("{scheme}+sentinel://{}/{}", all.join(","), self.name)
    }

    /// Returns the master that all running sentinels name. It may be down.
    ///
    /// # Errors
    /// Returns an error if the sentinels disagree, or one does not reply.
    pub async fn master(&self) -> Result<LocalNode> {
        let ports = self.ports_of_master().await?;
        let port = ports.first().ok_or_else(|| failed("no sentinel runs"))?;
        if ports.iter().any(|other| other != port) {
            return Err(failed(format!("the sentinels name masters on the ports {ports:?}")));
        }
        let master = self.servers.iter().find(|server| server.connect_port() == *port);
        master.cloned().ok_or_else(|| {
            failed(format!("the sentinels name a master that is not in the group, on port {port}"))
        })
    }

    /// Requests a failover to a replica (`SENTINEL FAILOVER`), waits until all sentinels name the new master, and returns
    /// it.
    ///
    /// # Errors
    /// Returns an error if the sentinels refuse, or the failover takes more than 30 s.
    pub async fn failover(&self) -> Result<LocalNode> {
        let old = self.master().await?;
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        let sentinel = sentinel.ok_or_else(|| failed("no sentinel runs"))?;
        sentinel.execute_all(&[format!("SENTINEL FAILOVER {}", self.name)]).await?;
        self.wait_for_master_other_than(&old).await
    }

    /// Waits until all running sentinels name a master other than `old`, and it reports that it is a master. Returns it.
    ///
    /// # Errors
    /// Returns an error after 30 s.
    pub async fn wait_for_master_other_than(&self, old: &LocalNode) -> Result<LocalNode> {
        poll_until(SENTINEL_TIMEOUT, "another master", async || {
            let master = self.master().await?;
            if master == *old || !master.is_master().await? {
                return Err(failed(format!("the sentinels name {master:?}")));
            }
            Ok(master)
        })
        .await
    }

    /// Waits until all running sentinels agree on a master and see all running processes, and the running replicas are in
    /// sync with it.
    ///
    /// # Errors
    /// Returns an error with the missing condition after 30 s.
    pub async fn wait_until_ok(&self) -> Result<()> {
        poll_until(SENTINEL_TIMEOUT, "the group to be complete", async || self.check().await).await
    }
}

impl Drop for SentinelGroup {
    fn drop(&mut self) {
        // Nodes that tests still hold end, too. The sentinels end first, or they would start a failover.
        self.sentinels.iter().chain(&self.servers).for_each(LocalNode::kill);
    }
}

/// The fields of a server in a sentinel's reply.
type SentinelFields = HashMap<String, String>;

impl SentinelGroup {
    /// Returns the port of the master that each running sentinel names.
    pub(super) async fn ports_of_master(&self) -> Result<Vec<u16>> {
        let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", self.name);
        let running = running(&self.sentinels);
        let addresses: Vec<(String, u16)> = try_join_all(running.map(|node| node.ask(&command))).await?;
        Ok(addresses.into_iter().map(|(_, port)| port).collect())
    }

    /// Returns an error with the first condition that does not hold.
    pub(super) async fn check(&self) -> Result<()> {
        let master = self.master().await?;
        if !master.is_master().await? {
            return Err(failed(format!("{master:?} is not the master yet")));
        }
        try_join_all(running(&self.servers).map(|server| follows(server, &master))).await?;
        try_join_all(running(&self.sentinels).map(|sentinel| self.sees_all(sentinel))).await?;
        Ok(())
    }

    async fn sees_all(&self, sentinel: &LocalNode) -> Result<()> {
        let master: SentinelFields = sentinel.ask(&format!("SENTINEL MASTER {}", self.name)).await?;
        let replicas: Vec<SentinelFields> = sentinel.ask(&format!("SENTINEL REPLICAS {}", self.name)).await?;
        let sentinels: Vec<SentinelFields> =
            sentinel.ask(&format!("SENTINEL SENTINELS {}", self.name)).await?;
        let seen = [replicas, sentinels].map(|all| all.iter().filter(|fields| is_healthy(fields)).count());
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

/// Returns an error unless the server is the master, or a replica in sync with it.
async fn follows(server: &LocalNode, master: &LocalNode) -> Result<()> {
    server.check_replication().await?;
    if server == master || server.master_of().await? == Some(master.connect_port()) {
        return Ok(());
    }
    Err(failed(format!("{server:?} is not a replica of {master:?}")))
}

fn running(nodes: &[LocalNode]) -> impl Iterator<Item = &LocalNode> {
    nodes.iter().filter(|node| node.is_running())
}

/// Returns whether a sentinel considers a server up. The flag `master_down` of a sentinel concerns another server.
fn is_healthy(fields: &SentinelFields) -> bool {
    let failures = ["s_down", "o_down", "disconnected"];
    fields.get("flags").is_some_and(|flags| !flags.split(',').any(|flag| failures.contains(&flag)))
}
