//! What a cluster shall be like.

use std::path::PathBuf;
use std::time::Duration;

use crate::servers::binary;
use crate::servers::cluster::{Cluster, form};
use crate::servers::instance::{Kind, Plan};
use keylapse::Result;

/// Settings for a cluster that is about to be started; see [`Cluster::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterBuilder {
    pub(super) primaries: usize,
    pub(super) replicas_each: usize,
    node_timeout: Duration,
    notifications: String,
    config: Vec<String>,
    binary: Option<PathBuf>,
    password: Option<String>,
    pub(super) host: Option<String>,
}

impl ClusterBuilder {
    pub(super) fn new() -> Self {
        Self {
            primaries: 3,
            replicas_each: 1,
            node_timeout: Duration::from_secs(2),
            notifications: "Ex".to_owned(),
            config: Vec::new(),
            binary: None,
            password: None,
            host: None,
        }
    }

    /// How many nodes have slots. Default: 3. With fewer nobody is promoted when one fails.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// How many replicas each of them has. Default: 1.
    pub fn replicas_each(mut self, count: usize) -> Self {
        self.replicas_each = count;
        self
    }

    /// How long a node may be silent before the others call it failed: `cluster-node-timeout`. Default:
    /// 2 s.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// The flags of `notify-keyspace-events`. Default: `Ex`.
    pub fn notifications(mut self, flags: &str) -> Self {
        flags.clone_into(&mut self.notifications);
        self
    }

    /// One more line for the configuration of each node, as it stands in `redis.conf`: `appendonly
    /// yes`, or `user app on >secret ~app:* +@all`. It overrides lines before it.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// The server to run, instead of that of [`Server`](crate::Server).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// The password of the default user on all nodes. Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// How many databases there are, where the server has several in a cluster: Valkey 9 and newer.
    /// Default: 1.
    pub fn databases(self, count: u16) -> Self {
        self.config(&format!("cluster-databases {count}"))
    }

    /// What clients are told instead of 127.0.0.1: `localhost`, or `127.0.0.2` if a proxy listens
    /// there on each node's port. Nodes talk to each other as before.
    pub fn announced_host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Starts all nodes and makes them a cluster. It takes about 2.5 s, of which a node waits 2 s after its
    /// start before it accepts writes.
    ///
    /// # Errors
    /// When no server is installed, one does not start, or they do not come together within half a
    /// minute; the message holds what they said.
    pub async fn start(self) -> Result<Cluster> {
        let nodes = form::cluster(&self).await?;
        Ok(Cluster::new(nodes, self))
    }

    pub(super) fn plan(&self) -> Result<Plan> {
        let binary = binary::or_found(self.binary.as_ref())?;
        let config = self.lines();
        Ok(Plan { binary, config, password: self.password.clone(), kind: Kind::ClusterNode })
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = [
            "save \"\"",
            "appendonly no",
            "cluster-enabled yes",
            // A test says who is whose replica.
            "cluster-allow-replica-migration no",
            "repl-diskless-sync yes",
            "repl-diskless-sync-delay 0",
        ]
        .map(str::to_owned)
        .into();
        lines.push(format!("cluster-node-timeout {}", self.node_timeout.as_millis()));
        lines.push(format!("notify-keyspace-events \"{}\"", self.notifications));
        if let Some(password) = &self.password {
            lines.extend(["requirepass", "masterauth"].map(|name| format!("{name} \"{password}\"")));
        }
        if let Some(host) = &self.host {
            lines.push(format!("cluster-announce-hostname {host}"));
            lines.push("cluster-preferred-endpoint-type hostname".to_owned());
        }
        lines.extend(self.config.iter().cloned());
        lines
    }
}
