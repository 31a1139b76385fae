//! The views that nodes have of their cluster (`CLUSTER NODES`), and the checks that the cluster is ready.
//!
//! If two nodes claim a slot, the other nodes accept the one with the higher epoch.
//!
//! A node that gets a slot takes a new epoch: the highest that it has seen, plus one. If it has not seen the latest, the
//! old owner of the slot may have a higher epoch. The other nodes then accept the old owner, which has given the slot up,
//! and the slot has no owner.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Hash slots configuration
//! propagation" and "Configuration epochs conflicts resolution algorithm".

use std::ops::RangeInclusive;

use futures::future::try_join_all;

use crate::servers::{LocalNode, failed};
use keylapse::Result;

/// The entries of all nodes in the view of one node.
#[derive(Debug)]
pub(super) struct ClusterView(Vec<Entry>);

/// A line of `CLUSTER NODES`: `id address flags primary ping pong epoch link slots…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: String,
    flags: Vec<String>,
    /// The ID of its primary, if it is a replica.
    pub(super) primary: Option<String>,
    pub(super) epoch: u64,
    is_connected: bool,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl ClusterView {
    pub(super) async fn of(node: &LocalNode) -> Result<Self> {
        let text: String = node.ask("CLUSTER NODES").await?;
        let entries: Option<_> = text.lines().map(Entry::read).collect();
        entries.map(Self).ok_or_else(|| failed(format!("cannot parse CLUSTER NODES: {text}")))
    }

    /// Returns the entry of the node that returned the view.
    pub(super) fn myself(&self) -> Result<&Entry> {
        let myself = self.0.iter().find(|entry| entry.is("myself"));
        myself.ok_or_else(|| failed("CLUSTER NODES has no line `myself`"))
    }

    /// Returns whether the node has met the node `id`, and considers it reachable.
    pub(super) fn has_met(&self, id: &str) -> bool {
        self.0.iter().any(|entry| entry.id == id && entry.is_reachable())
    }

    pub(super) fn epoch_of(&self, id: &str) -> Option<u64> {
        self.0.iter().find(|entry| entry.id == id).map(|entry| entry.epoch)
    }

    /// Returns the slots of each node that has some, sorted, for comparison with other views.
    pub(super) fn owners(&self) -> Vec<(&str, &[RangeInclusive<u16>])> {
        let owners = self.0.iter().filter(|entry| !entry.slots.is_empty());
        let mut owners: Vec<_> = owners.map(|entry| (&*entry.id, &*entry.slots)).collect();
        owners.sort_by_key(|(id, _)| *id);
        owners
    }
}

impl Entry {
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, _address, flags, primary, _ping, _pong, epoch, link, slots @ ..] = &words[..] else {
            return None;
        };
        Some(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            primary: (*primary != "-").then(|| (*primary).to_owned()),
            epoch: epoch.parse().ok()?,
            is_connected: *link == "connected",
            slots: slots.iter().filter_map(|word| range(word)).collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    pub(super) fn is_primary(&self) -> bool {
        self.is("master")
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    fn is_reachable(&self) -> bool {
        let failures = ["fail", "fail?", "handshake", "noaddr"];
        self.is_connected && !failures.iter().any(|flag| self.is(flag))
    }
}

/// Parses `93` or `0-5460`. Returns `None` for `[93->-id]`, a slot that is moving.
fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Checks that each running node serves commands, all agree on the owners of slots, and replicas are in sync. The error
/// has the missing condition.
pub(super) async fn check(nodes: &[LocalNode]) -> Result<()> {
    let running: Vec<&LocalNode> = nodes.iter().filter(|node| node.is_running()).collect();
    try_join_all(running.iter().map(|node| serves(node))).await?;
    let views = try_join_all(running.iter().map(|node| ClusterView::of(node))).await?;
    match views.windows(2).find(|pair| pair[0].owners() != pair[1].owners()) {
        Some(pair) => Err(failed(format!("nodes disagree on the owners of slots: {pair:?}"))),
        None => Ok(()),
    }
}

async fn serves(node: &LocalNode) -> Result<()> {
    let info: String = node.ask("CLUSTER INFO").await?;
    if !info.contains("cluster_state:ok") {
        return Err(failed(format!("the node on port {} reports {info}", node.port())));
    }
    node.check_replication().await
}

/// The epoch of nodes that never had a slot.
const EPOCH_WITHOUT_SLOTS: u64 = 0;

/// Returns an error unless each primary has the epochs of all others, and the epochs are unique.
pub(super) fn check_epochs(views: &[ClusterView]) -> Result<()> {
    let mut primaries = Vec::new();
    for view in views {
        let myself = view.myself()?;
        if myself.is_primary() {
            primaries.push((view, myself));
        }
    }
    let mut epochs: Vec<u64> = primaries.iter().map(|(_, myself)| myself.epoch).collect();
    epochs.sort_unstable();
    if let Some(pair) = epochs.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != EPOCH_WITHOUT_SLOTS) {
        return Err(failed(format!("two primaries have epoch {}: {views:?}", pair[0])));
    }
    for (view, myself) in &primaries {
        let unknown = primaries.iter().find(|(_, other)| view.epoch_of(&other.id) != Some(other.epoch));
        if let Some((_, other)) = unknown {
            return Err(failed(format!("{} does not have the epoch of {}: {views:?}", myself.id, other.id)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_slots_on_their_way_are_not_counted() {
        let line =
            "07c3 127.0.0.1:7001@17001,host myself,master - 0 1426238316232 2 connected 0-9 93 [94->-0a]";
        let entry = Entry::read(line).unwrap();
        assert!(
            entry.is_primary() && entry.is_reachable() && entry.has(5) && entry.has(93) && !entry.has(94)
        );
        assert_eq!((entry.id.as_str(), entry.epoch, entry.primary), ("07c3", 2, None));
        let line = "a1 127.0.0.1:7004@17004 slave,fail? 07c3 0 1426238317239 4 disconnected";
        let entry = Entry::read(line).unwrap();
        assert!(!entry.is_primary() && !entry.is_reachable());
        assert_eq!(entry.primary.as_deref(), Some("07c3"));
    }
}
