//! The settings and the start of a group with sentinels.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::instance::{Kind, ServerSpec, Settings};
use crate::servers::sentinel::SentinelGroup;
use crate::servers::{LocalNode, bounded, poll_until, server};
use keylapse::Result;

/// The settings of a [`SentinelGroup`]; see [`SentinelGroup::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SentinelGroupBuilder {
    pub(super) replicas: usize,
    pub(super) sentinels: usize,
    pub(super) name: String,
    down_after: Duration,
    failover_timeout: Duration,
    pub(super) production_timing: bool,
    servers: Settings,
    sentinel_config: Vec<String>,
    sentinel_password: Option<String>,
}

impl SentinelGroupBuilder {
    pub(super) fn new() -> Self {
        Self {
            replicas: 2,
            sentinels: 3,
            name: "mymaster".to_owned(),
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(3),
            production_timing: false,
            servers: Settings::default(),
            sentinel_config: Vec::new(),
            sentinel_password: None,
        }
    }

    /// Sets the number of replicas. Default: 2.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// Sets the number of sentinels. More than half of them must agree on a failover. Default: 3.
    pub fn sentinels(mut self, count: usize) -> Self {
        self.sentinels = count;
        self
    }

    /// Sets the name of the master. Default: `mymaster`.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets how long a server may be silent before a sentinel considers it down (`down-after-milliseconds`). Default: 1 s.
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// Sets how long a failover may take before it is tried again (`failover-timeout`). Default: 3 s.
    pub fn failover_timeout(mut self, timeout: Duration) -> Self {
        self.failover_timeout = timeout;
        self
    }

    /// Gives the sentinels the intervals of production, and sets [`down_after`](Self::down_after) to 3 s. A shorter silence
    /// would often be a false alarm. A sentinel that restarts always has the intervals of production.
    ///
    /// | interval | production | default |
    /// | --- | --- | --- |
    /// | PING to the servers | 1 s | 0.2 s |
    /// | INFO from the servers | 10 s | 1 s |
    /// | messages between sentinels | 2 s | 0.5 s |
    /// | a master that has returned is left alone | at least 8 s | 2 s |
    pub fn production_timing(mut self) -> Self {
        self.production_timing = true;
        self.down_after(Duration::from_secs(3))
    }

    /// Sets the flags of `notify-keyspace-events` on the servers. Default: `Ex`.
    pub fn notifications(mut self, flags: &str) -> Self {
        flags.clone_into(&mut self.servers.notifications);
        self
    }

    /// Adds a line to the configuration of each server, in the format of `redis.conf`.
    pub fn config(mut self, line: &str) -> Self {
        self.servers.config.push(line.to_owned());
        self
    }

    /// Adds a line to the configuration of each sentinel.
    pub fn sentinel_config(mut self, line: &str) -> Self {
        self.sentinel_config.push(line.to_owned());
        self
    }

    /// Sets the binary of servers and sentinels. Default: the binary of [`LocalServer`](crate::LocalServer).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.servers.binary = Some(path.into());
        self
    }

    /// Sets the password of the servers' default user. Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.servers.password = Some(password.to_owned());
        self
    }

    /// Sets the password of the sentinels' default user. Default: none.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Starts the servers and sentinels, and waits until the sentinels have found each other and all servers. This takes
    /// about 3 s.
    ///
    /// # Errors
    /// Returns an error if no binary is installed, a process does not start, or the group is not complete within 30 s. The
    /// message has the cause.
    pub async fn start(self) -> Result<SentinelGroup> {
        group(self).await
    }

    /// Returns the settings of sentinels for the master on this port.
    pub(super) fn sentinel_spec(&self, master: u16) -> Result<ServerSpec> {
        let (name, quorum) = (&self.name, self.sentinels / 2 + 1);
        let mut config = vec![
            format!("sentinel monitor {name} 127.0.0.1 {master} {quorum}"),
            format!("sentinel down-after-milliseconds {name} {}", self.down_after.as_millis()),
            format!("sentinel failover-timeout {name} {}", self.failover_timeout.as_millis()),
            format!("sentinel parallel-syncs {name} {}", self.replicas.max(1)),
        ];
        if let Some(password) = &self.servers.password {
            config.push(format!("sentinel auth-pass {name} \"{password}\""));
        }
        if let Some(password) = &self.sentinel_password {
            config.extend(
                ["requirepass", "sentinel sentinel-pass"].map(|name| format!("{name} \"{password}\"")),
            );
        }
        config.extend(self.sentinel_config.iter().cloned());
        let password = self.sentinel_password.clone();
        Ok(ServerSpec {
            binary: server::or_found(self.servers.binary.as_ref())?,
            config,
            password,
            kind: Kind::Sentinel,
        })
    }
}

const SENTINEL_START_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn group(builder: SentinelGroupBuilder) -> Result<SentinelGroup> {
    let servers = bounded("servers", builder.replicas.saturating_add(1))?;
    bounded("sentinels", builder.sentinels)?;
    let spec = builder.servers.server_spec(Kind::Server, Vec::new())?;
    let servers = try_join_all((0..servers).map(|_| LocalNode::start(spec.clone()))).await?;
    let (master, replicas) = (&servers[0], &servers[1..]);
    // CONFIG REWRITE, which sentinels also send, makes the servers replicas again after a restart.
    let follow = [format!("REPLICAOF 127.0.0.1 {}", master.connect_port()), "CONFIG REWRITE".to_owned()];
    try_join_all(replicas.iter().map(|replica| replica.execute_all(&follow))).await?;
    poll_until(SENTINEL_START_TIMEOUT, "the replicas to be in sync", async || {
        try_join_all(servers.iter().map(LocalNode::check_replication)).await
    })
    .await?;

    let spec = builder.sentinel_spec(master.connect_port())?;
    let short_intervals = ["SENTINEL DEBUG PING-PERIOD 200 INFO-PERIOD 1000 PUBLISH-PERIOD 500".to_owned()];
    let sentinels = try_join_all((0..builder.sentinels).map(|_| LocalNode::start(spec.clone()))).await?;
    if !builder.production_timing {
        try_join_all(sentinels.iter().map(|sentinel| sentinel.execute_all(&short_intervals))).await?;
    }
    let group = SentinelGroup { servers, sentinels, name: builder.name };
    group.wait_until_ok().await?;
    Ok(group)
}
