//! What one server has, as it is read there, not by way of the library.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use futures::future::select_all;
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, RedisReply};
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use super::Group;
use crate::clock::now;
use crate::harness::announcements;
use crate::job::{ORDER, number_of, shard, shards_of_orders};
use crate::ledger::{Entry, Held, Ledger};

const LOOK_AGAIN: Duration = Duration::from_millis(50);
const TO_BEGIN: Duration = Duration::from_secs(60);
/// An order lives for much longer.
const ENROLMENTS: Duration = Duration::from_millis(200);
/// A replica takes in what its primary had sent in less than this.
const LOOKS: usize = 200;

/// The armings that a replica of a primary that has fallen has in these partitions, and the orders that live there, once
/// nothing more comes from that one. Returns none if the replica follows another, or none, before that is seen: the
/// machine was too busy.
///
/// # Panics
/// If it does not answer for ten seconds.
pub(super) async fn held(replica: &LocalNode, fallen: &LocalNode, partitions: &[u32]) -> Option<Held> {
    let (mut before, mut why) = (None, None);
    for _ in 0..LOOKS {
        match look(replica, partitions).await {
            Ok((followed, _)) if followed.primary != Some(fallen.port()) => return None,
            Ok((followed, held)) if before == Some(followed.offset) => return Some(held),
            Ok((followed, _)) => before = Some(followed.offset),
            Err(error) => why = Some(error),
        }
        sleep(LOOK_AGAIN).await;
    }
    panic!("{replica:?} does not say what it has: {why:?}");
}

/// At once, of one that goes on to serve.
pub(super) async fn held_now(node: &LocalNode, partitions: &[u32]) -> Held {
    for _ in 0..LOOKS {
        if let Ok((_, held)) = look(node, partitions).await {
            return held;
        }
        sleep(LOOK_AGAIN).await;
    }
    panic!("{node:?} does not say what it has");
}

/// Waits until each primary that has orders has so many subscribed listeners. An order that expires earlier is lost, unless a
/// listener has enrolled it.
///
/// # Panics
/// If they are not within a minute.
pub(super) async fn until_heard(group: &Group, listeners: usize) {
    for partition in shards_of_orders() {
        let all = async || match group.owner(partition).await {
            Some(owner) => is_heard(&owner, listeners).await,
            None => false,
        };
        eventually(TO_BEGIN, "the listeners to subscribe", all).await;
    }
}

async fn is_heard(owner: &LocalNode, listeners: usize) -> bool {
    subscribed(owner).await.is_some_and(|count| count >= listeners)
}

/// How many listeners are subscribed to a server, if it answers.
async fn subscribed(node: &LocalNode) -> Option<usize> {
    let Ok(RedisReply::Bulk(clients)) = node.command(["CLIENT", "LIST", "TYPE", "PUBSUB"]).await else {
        return None;
    };
    let clients = String::from_utf8_lossy(&clients);
    // For attached keys a listener subscribes to patterns. Its connection for wake-ups does not, nor does a plain subscriber.
    Some(clients.lines().filter(|client| !client.contains(" psub=0 ")).count())
}

/// Notes how many listeners are subscribed to each server, whenever that changes, for ever.
pub(super) async fn subscriptions(group: &Group, ledger: &Ledger) -> Infallible {
    let mut known = HashMap::new();
    loop {
        for node in group.nodes() {
            let (port, listeners) = (node.port(), subscribed(&node).await.unwrap_or_default());
            if known.insert(port, listeners) != Some(listeners) {
                ledger.write(Entry::Subscribed { node: port, listeners });
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Writes down which orders are seen to be expected, for ever.
pub(super) async fn enrolments(group: &Group, ledger: &Ledger) -> Infallible {
    let mut known = HashSet::new();
    loop {
        let mut seen = HashSet::new();
        for partition in shards_of_orders() {
            let Some(owner) = group.owner(partition).await else { continue };
            let keys = owner.command(["HKEYS", shard(partition).key("tracked")]).await;
            let Ok(RedisReply::Array(keys)) = keys else { continue };
            seen.extend(keys.into_iter().filter_map(|key| match key {
                RedisReply::Bulk(key) => String::from_utf8(key.to_vec()).ok(),
                _ => None,
            }));
        }
        let new = seen.iter().filter(|key| !known.contains(*key));
        new.for_each(|key| ledger.write(Entry::Enrolled { key: key.clone() }));
        known = seen;
        sleep(ENROLMENTS).await;
    }
}

/// Notes each expiry of an order that a server announces, for ever.
pub(super) async fn expiries(group: &Group, ledger: &Ledger) -> Infallible {
    let all = group
        .nodes()
        .into_iter()
        .map(|node| async move { announcements(&node.url(), ORDER, Some(node.port()), ledger).await });
    let (never, ..) = select_all(all.map(Box::pin)).await;
    never
}

/// The primary that a server follows, and how far it has come in what that one sends.
struct Followed {
    primary: Option<u16>,
    offset: Option<u64>,
}

/// Whom a server follows, and what it has.
async fn look(node: &LocalNode, partitions: &[u32]) -> RedisResult<(Followed, Held)> {
    let mut connection = keylapse_support::connect(&node.url()).await?;
    // Without it a replica in a cluster sends readers elsewhere. Other servers refuse it.
    let _ = redis::cmd("READONLY").exec_async(&mut connection).await;
    let info: redis::InfoDict = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
    let followed = Followed { primary: info.get("master_port"), offset: info.get("slave_repl_offset") };
    let looked = now();
    let keys = redis::cmd("KEYS").arg(format!("{ORDER}*")).query_async(&mut connection).await?;
    let (mut numbers, mut enrolled) = (Vec::new(), Vec::new());
    for partition in partitions {
        enrolled.extend(keys_in(&mut connection, *partition, "tracked").await?);
        for hash in ["timers", "queued"] {
            let keys = keys_in(&mut connection, *partition, hash).await?;
            numbers.extend(keys.iter().filter_map(|key| number_of(key)));
        }
    }
    Ok((followed, Held { numbers, keys, enrolled, looked }))
}

/// The keys that this hash of a partition is about.
async fn keys_in(
    connection: &mut MultiplexedConnection,
    partition: u32,
    hash: &str,
) -> RedisResult<Vec<String>> {
    redis::cmd("HKEYS").arg(shard(partition).key(hash).to_owned()).query_async(connection).await
}
