//! A master, its replicas, and sentinels that watch them, to throw away.

mod builder;

use std::collections::HashMap;
use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::{LocalNode, failed, poll_until};
use keylapse::Result;

pub use builder::SentinelGroupBuilder;

/// How long waiting methods wait.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(30);

/// A master, two replicas and three sentinels of a test's own, on free ports of 127.0.0.1, expired
/// events on. They end with this value.
///
/// Each can be killed, stopped and started again. The binary is that of [`Server`](super::Server), which
/// is a sentinel if it is told to.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<LocalNode>,
    sentinels: Vec<LocalNode>,
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
    pub fn servers(&self) -> &[LocalNode] {
        &self.servers
    }

    /// All sentinels, also those that have ended.
    pub fn sentinels(&self) -> &[LocalNode] {
        &self.sentinels
    }

    /// What the sentinels call the master.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where to connect: all sentinels, without a password; over TLS if they are configured with a `tls-cert-file`.
    pub fn url(&self) -> String {
        let all: Vec<_> =
            self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.connect_port())).collect();
        let scheme = self.sentinels.first().map_or("redis", LocalNode::scheme);
        format!("{scheme}+sentinel://{}/{}", all.join(","), self.name)
    }

    /// The master, as all running sentinels name it. It may be down.
    ///
    /// # Errors
    /// When they disagree, or do not answer.
    pub async fn master(&self) -> Result<LocalNode> {
        let ports = self.ports_of_master().await?;
        let port = ports.first().ok_or_else(|| failed("no sentinel runs"))?;
        if ports.iter().any(|other| other != port) {
            return Err(failed(format!("the sentinels name masters on the ports {ports:?}")));
        }
        let master = self.servers.iter().find(|server| server.connect_port() == *port);
        master.cloned().ok_or_else(|| failed(format!("the sentinels name a stranger on port {port}")))
    }

    /// Has the sentinels give the master's place to a replica (`SENTINEL FAILOVER`), waits until all of
    /// them know it, and answers who it is.
    ///
    /// # Errors
    /// When they refuse it, or it is not done within half a minute.
    pub async fn failover(&self) -> Result<LocalNode> {
        let old = self.master().await?;
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        let sentinel = sentinel.ok_or_else(|| failed("no sentinel runs"))?;
        sentinel.execute_all(&[format!("SENTINEL FAILOVER {}", self.name)]).await?;
        self.wait_for_master_other_than(&old).await
    }

    /// Waits until all running sentinels name another master than this one, and that is one.
    ///
    /// # Errors
    /// When that is not so within half a minute.
    pub async fn wait_for_master_other_than(&self, old: &LocalNode) -> Result<LocalNode> {
        poll_until(SENTINEL_TIMEOUT, "another master", async || {
            let master = self.master().await?;
            if master == *old || !master.is_master().await? {
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
        poll_until(SENTINEL_TIMEOUT, "the sentinels and their servers", async || self.check().await).await
    }
}

impl Drop for SentinelGroup {
    fn drop(&mut self) {
        // Those that tests still hold end, too: the sentinels first, or they would call for help.
        self.sentinels.iter().chain(&self.servers).for_each(LocalNode::kill);
    }
}

/// What a sentinel knows of a server, by the names of its fields.
type SentinelFields = HashMap<String, String>;

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
async fn follows(server: &LocalNode, master: &LocalNode) -> Result<()> {
    server.check_replication().await?;
    if server == master || server.master_of().await? == Some(master.connect_port()) {
        return Ok(());
    }
    Err(failed(format!("{server:?} does not follow {master:?}")))
}

fn running(nodes: &[LocalNode]) -> impl Iterator<Item = &LocalNode> {
    nodes.iter().filter(|node| node.is_running())
}

/// Whether nothing is the matter with it. A sentinel's own `master_down` is what it thinks of another.
fn is_well(fields: &SentinelFields) -> bool {
    let ill = ["s_down", "o_down", "disconnected"];
    fields.get("flags").is_some_and(|flags| !flags.split(',').any(|flag| ill.contains(&flag)))
}
