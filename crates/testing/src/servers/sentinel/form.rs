//! From processes to a group.

use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::sentinel::SentinelGroup;
use crate::servers::sentinel::builder::SentinelGroupBuilder;
use crate::servers::until::until;
use crate::servers::{Node, bounded, replication};
use keylapse::Result;

const READY: Duration = Duration::from_secs(30);

pub(super) async fn group(builder: SentinelGroupBuilder) -> Result<SentinelGroup> {
    let servers = bounded("servers", builder.replicas.saturating_add(1))?;
    bounded("sentinels", builder.sentinels)?;
    let plan = builder.server_plan()?;
    let servers = try_join_all((0..servers).map(|_| Node::start(plan.clone()))).await?;
    let (master, replicas) = (&servers[0], &servers[1..]);
    // Written to their configuration, as sentinels do it: so they are replicas also when they start again.
    let follow = [format!("REPLICAOF 127.0.0.1 {}", master.door()), "CONFIG REWRITE".to_owned()];
    try_join_all(replicas.iter().map(|replica| replica.tell(&follow))).await?;
    until(READY, "replicas to be linked", async || {
        try_join_all(servers.iter().map(replication::is_up)).await
    })
    .await?;

    let plan = builder.sentinel_plan(master.door())?;
    let hurry = ["SENTINEL DEBUG PING-PERIOD 200 INFO-PERIOD 1000 PUBLISH-PERIOD 500".to_owned()];
    let sentinels = try_join_all((0..builder.sentinels).map(|_| Node::start(plan.clone()))).await?;
    if !builder.keeps_pace {
        try_join_all(sentinels.iter().map(|sentinel| sentinel.tell(&hurry))).await?;
    }
    let group = SentinelGroup { servers, sentinels, name: builder.name };
    group.wait_until_ok().await?;
    Ok(group)
}
