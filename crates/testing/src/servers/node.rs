//! One server of several, as tests hold it, and whom it follows.

use std::fmt;
use std::sync::{Arc, OnceLock};

use redis::InfoDict;

use crate::RedisReply;
use crate::servers::instance::{Instance, ServerSpec};
use crate::servers::{ask, failed};
use keylapse::Result;

/// One server of a [`Cluster`](super::Cluster), or a server or sentinel of a
/// [`SentinelGroup`](super::SentinelGroup): a process that can be killed,
/// stopped and started again where it was.
///
/// Cheap to clone; each clone is the same server, and two of them are equal. It ends with what
/// it is a part of.
#[derive(Clone)]
pub struct LocalNode(Arc<Inner>);

struct Inner {
    instance: Instance,
    id: OnceLock<String>,
}

impl LocalNode {
    pub(super) async fn start(plan: ServerSpec) -> Result<Self> {
        let instance = Instance::start(plan).await?;
        Ok(Self(Arc::new(Inner { instance, id: OnceLock::new() })))
    }

    /// Starts one with cluster mode on, which is a cluster of its own as yet.
    pub(super) async fn start_in_cluster_mode(plan: ServerSpec) -> Result<Self> {
        let node = Self::start(plan).await?;
        let _ = node.0.id.set(node.ask("CLUSTER MYID").await?); // it is new, and has none
        Ok(node)
    }

    /// Where its default user connects, with that user's password if it has one.
    pub fn url(&self) -> String {
        self.0.instance.url()
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.instance.port()
    }

    /// Its id in its cluster; none if it is not in one.
    pub fn id(&self) -> Option<&str> {
        self.0.id.get().map(String::as_str)
    }

    /// The id of its process; none if it has been ended.
    pub fn pid(&self) -> Option<u32> {
        self.0.instance.pid()
    }

    /// Whether it can answer: it has not been ended, and is not stopped.
    pub fn is_running(&self) -> bool {
        self.0.instance.is_running()
    }

    /// Ends it at once, as a crash does (SIGKILL), also if it is stopped.
    pub fn kill(&self) {
        self.0.instance.kill();
    }

    /// Makes it hang (SIGSTOP): connections stay open, and the kernel still accepts new ones.
    ///
    /// # Errors
    /// When it has ended, or there is no shell to send the signal with.
    pub fn suspend(&self) -> Result<()> {
        self.0.instance.suspend()
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    pub fn resume(&self) -> Result<()> {
        self.0.instance.resume()
    }

    /// Starts it again with the same ports, configuration and directory, and waits until it
    /// answers; kills it first if it runs. What it held in memory is gone, unless it was told to keep
    /// an append-only file.
    ///
    /// # Errors
    /// When it does not start within 20 s; the message holds what it said.
    pub async fn restart(&self) -> Result<()> {
        self.0.instance.restart().await
    }

    /// Like [`restart`](Self::restart), on other ports: the others find it by itself calling
    /// them.
    ///
    /// # Errors
    /// As for [`restart`](Self::restart).
    pub async fn restart_elsewhere(&self) -> Result<()> {
        self.0.instance.restart_elsewhere().await
    }

    /// What it answers to a command; an error of the server is a [`Reply::Error`].
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn command<A: AsRef<[u8]>>(&self, command: impl IntoIterator<Item = A>) -> Result<RedisReply> {
        let words: Vec<A> = command.into_iter().collect();
        ask::reply(&self.url(), &words).await
    }

    /// Asks one question, whose words have no spaces.
    pub(super) async fn ask<T: redis::FromRedisValue>(&self, line: &str) -> Result<T> {
        self.send(&ask::words(line)).await
    }

    pub(super) async fn send<T: redis::FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> Result<T> {
        ask::ask(&self.url(), words).await
    }

    /// Sends all of these at once, and is content if none is refused.
    pub(super) async fn execute_all(&self, commands: &[String]) -> Result<()> {
        ask::execute_all(&self.url(), commands).await
    }

    pub(super) fn bus_port(&self) -> u16 {
        self.0.instance.bus_port().unwrap_or_default()
    }

    /// Where clients and others of its kind call it.
    pub(super) fn connect_port(&self) -> u16 {
        self.0.instance.tls_port().unwrap_or_else(|| self.port())
    }

    /// The scheme of a URL that leads there.
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
        f.debug_struct("Node").field("port", &self.port()).field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// Whom it follows, as `INFO replication` has it.
impl LocalNode {
    /// A replica has all that its primary has, and a primary knows that its replicas have. Else an
    /// error.
    pub(super) async fn check_replication(&self) -> Result<()> {
        let info = self.info().await?;
        let replicas: usize = info.get("connected_slaves").unwrap_or_default();
        let mut states =
            (0..replicas).map(|at| info.get::<String>(&format!("slave{at}")).unwrap_or_default());
        let link = info.get::<String>("master_link_status");
        if link.is_some_and(|link| link != "up") || !states.all(|state| state.contains("state=online")) {
            return Err(failed(format!("replication of the node on port {} is not up", self.port())));
        }
        Ok(())
    }

    /// Whether it says so itself.
    pub(super) async fn is_master(&self) -> Result<bool> {
        Ok(self.info().await?.get::<String>("role").is_some_and(|role| role == "master"))
    }

    /// The port of whom it follows, if it does.
    pub(super) async fn master_of(&self) -> Result<Option<u16>> {
        Ok(self.info().await?.get("master_port"))
    }

    async fn info(&self) -> Result<InfoDict> {
        self.ask("INFO replication").await
    }
}
