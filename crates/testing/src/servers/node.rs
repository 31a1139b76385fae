//! A server of a cluster or of a group with sentinels.

use std::fmt;
use std::sync::{Arc, OnceLock};

use redis::InfoDict;

use crate::RedisReply;
use crate::servers::instance::{Instance, ServerSpec};
use crate::servers::{ask, failed};
use keylapse::Result;

/// A server of a [`LocalCluster`](super::LocalCluster), or a server or sentinel of a
/// [`SentinelGroup`](super::SentinelGroup). Tests can kill, suspend and restart it.
///
/// A node is cheap to clone. Clones are the same server, and compare equal. The process ends when the cluster or group is
/// dropped.
#[derive(Clone)]
pub struct LocalNode(Arc<Inner>);

struct Inner {
    instance: Instance,
    id: OnceLock<String>,
}

impl LocalNode {
    pub(super) async fn start(spec: ServerSpec) -> Result<Self> {
        let instance = Instance::start(spec).await?;
        Ok(Self(Arc::new(Inner { instance, id: OnceLock::new() })))
    }

    /// Starts a node in cluster mode, which is not in a cluster with other nodes yet.
    pub(super) async fn start_in_cluster_mode(spec: ServerSpec) -> Result<Self> {
        let node = Self::start(spec).await?;
        let _ = node.0.id.set(node.ask("CLUSTER MYID").await?); // succeeds, because a new node has no ID
        Ok(node)
    }

    /// Returns the URL for the default user, with its password.
    pub fn url(&self) -> String {
        self.0.instance.url()
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.instance.port()
    }

    /// Returns the node's ID in its cluster. `None` if it is not in a cluster.
    pub fn id(&self) -> Option<&str> {
        self.0.id.get().map(String::as_str)
    }

    /// Returns the ID of the process. `None` after [`kill`](Self::kill).
    pub fn pid(&self) -> Option<u32> {
        self.0.instance.pid()
    }

    /// Returns whether the server was neither killed nor suspended.
    pub fn is_running(&self) -> bool {
        self.0.instance.is_running()
    }

    /// Ends the process with SIGKILL, as a crash does, even if it is suspended.
    pub fn kill(&self) {
        self.0.instance.kill();
    }

    /// Suspends the process with SIGSTOP. Its connections stay open, and the kernel still accepts new ones.
    ///
    /// # Errors
    /// Returns an error if the server was killed, or if no shell is installed to send the signal.
    pub fn suspend(&self) -> Result<()> {
        self.0.instance.suspend()
    }

    /// Resumes the process with SIGCONT after [`suspend`](Self::suspend).
    ///
    /// # Errors
    /// Returns an error if the server was killed, or if no shell is installed to send the signal.
    pub fn resume(&self) -> Result<()> {
        self.0.instance.resume()
    }

    /// Starts the server again with the same ports, configuration and directory, and waits until it replies. Kills it first
    /// if it runs. Its data is lost, unless its configuration turns persistence on.
    ///
    /// # Errors
    /// Returns an error with the server's log if it does not start within 20 s.
    pub async fn restart(&self) -> Result<()> {
        self.0.instance.restart().await
    }

    /// Starts the server again as [`restart`](Self::restart) does, but on other ports. The other servers learn the new ports
    /// when it connects to them.
    ///
    /// # Errors
    /// Returns an error with the server's log if it does not start within 20 s.
    pub async fn restart_elsewhere(&self) -> Result<()> {
        self.0.instance.restart_elsewhere().await
    }

    /// Sends a command and returns the reply. An error reply is a [`RedisReply::Error`].
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or does not reply within 5 s.
    pub async fn command<A: AsRef<[u8]>>(&self, command: impl IntoIterator<Item = A>) -> Result<RedisReply> {
        let words: Vec<A> = command.into_iter().collect();
        ask::reply(&self.url(), &words).await
    }

    /// Sends a command whose arguments have no spaces.
    pub(super) async fn ask<T: redis::FromRedisValue>(&self, line: &str) -> Result<T> {
        self.send(&ask::words(line)).await
    }

    pub(super) async fn send<T: redis::FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> Result<T> {
        ask::ask(&self.url(), words).await
    }

    /// Sends all commands in one pipeline. Returns an error if the server refuses one.
    pub(super) async fn execute_all(&self, commands: &[String]) -> Result<()> {
        ask::execute_all(&self.url(), commands).await
    }

    pub(super) fn bus_port(&self) -> u16 {
        self.0.instance.bus_port().unwrap_or_default()
    }

    /// Returns the port for clients and other servers: that for TLS, if the server has one.
    pub(super) fn connect_port(&self) -> u16 {
        self.0.instance.tls_port().unwrap_or_else(|| self.port())
    }

    /// Returns the URL scheme for [`connect_port`](Self::connect_port).
    pub(super) fn scheme(&self) -> &'static str {
        if self.0.instance.tls_port().is_some() { "rediss" } else { "redis" }
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.0.instance.password()
    }
}

impl PartialEq for LocalNode {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LocalNode {}

impl fmt::Debug for LocalNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNode")
            .field("port", &self.port())
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

/// The replication state, from `INFO replication`.
impl LocalNode {
    /// Returns an error unless a replica is in sync with its primary, and a primary has all its replicas online.
    pub(super) async fn check_replication(&self) -> Result<()> {
        let info = self.info().await?;
        let replicas: usize = info.get("connected_slaves").unwrap_or_default();
        let mut states =
            (0..replicas).map(|at| info.get::<String>(&format!("slave{at}")).unwrap_or_default());
        let link = info.get::<String>("master_link_status");
        if link.is_some_and(|link| link != "up") || !states.all(|state| state.contains("state=online")) {
            return Err(failed(format!(
                "the replication of the node on port {} is not in sync",
                self.port()
            )));
        }
        Ok(())
    }

    /// Returns whether the server reports that it is a master.
    pub(super) async fn is_master(&self) -> Result<bool> {
        Ok(self.info().await?.get::<String>("role").is_some_and(|role| role == "master"))
    }

    /// Returns the port of its master, if it is a replica.
    pub(super) async fn master_of(&self) -> Result<Option<u16>> {
        Ok(self.info().await?.get("master_port"))
    }

    async fn info(&self) -> Result<InfoDict> {
        self.ask("INFO replication").await
    }
}
