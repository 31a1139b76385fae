//! A master, its replicas, and sentinels that watch them, to throw away.

mod builder;
mod form;
mod watch;

use std::time::Duration;

use crate::servers::until::until;
use crate::servers::{Node, failed, replication};
use keylapse::Result;

pub use builder::SentinelGroupBuilder;

/// How long waiting methods wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A master, two replicas and three sentinels of a test's own, on free ports of 127.0.0.1, expired
/// events on. They end with this value.
///
/// Each can be killed, stopped and started again. The binary is that of [`Server`](super::Server), which
/// is a sentinel if it is told to.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<Node>,
    sentinels: Vec<Node>,
    name: String,
}

impl SentinelGroup {
    /// Starts a master, two replicas and three sentinels, two of which must agree.
    ///
    /// # Errors
    /// As for [`SentinelGroupBuilder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Settings for a group that differs from that.
    pub fn builder() -> SentinelGroupBuilder {
        SentinelGroupBuilder::new()
    }

    /// All servers, also those that have ended; the first was the master at first.
    pub fn servers(&self) -> &[Node] {
        &self.servers
    }

    /// All sentinels, also those that have ended.
    pub fn sentinels(&self) -> &[Node] {
        &self.sentinels
    }

    /// What the sentinels call the master.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where to connect: all sentinels, without a password; over TLS if they are configured with a `tls-cert-file`.
    pub fn url(&self) -> String {
        let all: Vec<_> = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.door())).collect();
        let scheme = self.sentinels.first().map_or("redis", Node::scheme);
        format!("{scheme}+sentinel://{}/{}", all.join(","), self.name)
    }

    /// The master, as all running sentinels name it. It may be down.
    ///
    /// # Errors
    /// When they disagree, or do not answer.
    pub async fn master(&self) -> Result<Node> {
        let ports = self.ports_of_master().await?;
        let port = ports.first().ok_or_else(|| failed("no sentinel runs"))?;
        if ports.iter().any(|other| other != port) {
            return Err(failed(format!("the sentinels name masters on the ports {ports:?}")));
        }
        let master = self.servers.iter().find(|server| server.door() == *port);
        master.cloned().ok_or_else(|| failed(format!("the sentinels name a stranger on port {port}")))
    }

    /// Has the sentinels give the master's place to a replica (`SENTINEL FAILOVER`), waits until all of
    /// them know it, and answers who it is.
    ///
    /// # Errors
    /// When they refuse it, or it is not done within half a minute.
    pub async fn failover(&self) -> Result<Node> {
        let old = self.master().await?;
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        let sentinel = sentinel.ok_or_else(|| failed("no sentinel runs"))?;
        sentinel.tell(&[format!("SENTINEL FAILOVER {}", self.name)]).await?;
        self.wait_for_master_other_than(&old).await
    }

    /// Waits until all running sentinels name another master than this one, and that is one.
    ///
    /// # Errors
    /// When that is not so within half a minute.
    pub async fn wait_for_master_other_than(&self, old: &Node) -> Result<Node> {
        until(PATIENCE, "another master", async || {
            let master = self.master().await?;
            if master == *old || !replication::is_master(&master).await? {
                return Err(failed(format!("they name {master:?}")));
            }
            Ok(master)
        })
        .await
    }

    /// Waits until all running sentinels agree on a master and see all that runs, and the running
    /// replicas are linked to it.
    ///
    /// # Errors
    /// When that is not so within half a minute; the message says what is missing.
    pub async fn wait_until_ok(&self) -> Result<()> {
        until(PATIENCE, "the sentinels and their servers", async || self.check().await).await
    }
}

impl Drop for SentinelGroup {
    fn drop(&mut self) {
        // Those that tests still hold end, too: the sentinels first, or they would call for help.
        self.sentinels.iter().chain(&self.servers).for_each(Node::kill);
    }
}
