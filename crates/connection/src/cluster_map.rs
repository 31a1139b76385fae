//! The slots of keys, and the map of a cluster's nodes and slots.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::ops::RangeInclusive;

use redis::Value;

use crate::address::Endpoint;

/// The most nodes of a valid answer. The cluster specification recommends at most 1,000, so a larger answer is forged or
/// broken.
const MAX_NODES: usize = 10_000;
/// The longest accepted node ID. Redis uses 40 characters.
const MAX_ID_LENGTH: usize = 64;
const NO_OWNER: u16 = u16::MAX;

/// The number of slots of a cluster.
pub const CLUSTER_SLOTS: u16 = 16_384;

/// Returns the slot of a key: the CRC16 of its [hash tag](hash_tag), or of the whole key if it has none.
///
/// The [cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/) defines it.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % CLUSTER_SLOTS
}

/// Returns the hash tag of a key: the bytes between its first `{` and the next `}`. Returns `None` if there are none.
pub fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let from = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[from..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[from..from + length])
}

/// CRC-16/XMODEM: polynomial 0x1021, no reflection, from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterMember {
    /// The node ID.
    pub id: String,
    /// The address and port at which it listens.
    pub endpoint: Endpoint,
}

/// A primary and its replicas, which hold the same slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shard {
    /// The primary; `None` while it has failed.
    pub primary: Option<ClusterMember>,
    pub replicas: Vec<ClusterMember>,
    pub slots: Vec<RangeInclusive<u16>>,
    /// Failed primaries of this shard. A replica may have replaced one.
    pub failed: Vec<ClusterMember>,
    /// True if several nodes are listed as primaries, so that the slots may belong to another of them.
    pub is_disputed: bool,
}

impl Shard {
    fn is_empty(&self) -> bool {
        self.primary.is_none() && self.replicas.is_empty() && self.failed.is_empty()
    }

    fn place(&self) -> (Option<u16>, Option<&ClusterMember>, &[ClusterMember]) {
        (self.slots.first().map(|range| *range.start()), self.primary.as_ref(), &self.replicas)
    }
}

/// The role of a node, as another node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// The node is a primary, with or without slots.
    Primary,
    /// The node is a replica, or has failed and owns no slots. A former primary has been replaced then, unless the view is
    /// outdated.
    Replica,
    /// The node is not in the map, or has failed and no node has taken its slots.
    Unknown,
}

/// The nodes of a cluster and the owners of its slots, as one node sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    shards: Vec<Shard>,
    /// For each slot the index of its owner in `endpoints`, or `NO_OWNER`.
    owners: Vec<u16>,
    endpoints: Vec<Endpoint>,
}

impl Default for ClusterMap {
    /// Returns a map without nodes, in which no slot has an owner.
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl ClusterMap {
    /// Sorts the shards, so that two nodes with the same view give equal maps.
    fn of(mut shards: Vec<Shard>) -> Self {
        let nodes = shards.iter().flat_map(|shard| shard.primary.iter().chain(&shard.replicas));
        let present: BTreeSet<_> = nodes.map(|member| member.endpoint.clone()).collect();
        for shard in &mut shards {
            shard.replicas.sort();
            // A node that has lost its nodes.conf has a new ID. Its old ID is listed as failed, with the address of the
            // node.
            shard.failed.retain(|member| !present.contains(&member.endpoint));
            shard.failed.sort();
        }
        shards.sort_by(|one, other| one.place().cmp(&other.place()));
        let (mut owners, mut endpoints) = (vec![NO_OWNER; usize::from(CLUSTER_SLOTS)], Vec::new());
        for shard in &shards {
            let Some(primary) = &shard.primary else { continue };
            let place = endpoints.len() as u16; // there are at most `MAX_NODES`
            endpoints.push(primary.endpoint.clone());
            for range in &shard.slots {
                owners[usize::from(*range.start())..=usize::from(*range.end())].fill(place);
            }
        }
        Self { shards, owners, endpoints }
    }

    /// Returns the endpoint of a slot's owner, if the slot has one.
    pub fn owner(&self, slot: u16) -> Option<&Endpoint> {
        self.endpoints.get(usize::from(self.owners[usize::from(slot)]))
    }

    /// Returns the primaries that own slots.
    pub fn primaries(&self) -> impl Iterator<Item = &ClusterMember> {
        self.shards.iter().filter(|shard| !shard.slots.is_empty()).filter_map(|shard| shard.primary.as_ref())
    }

    /// Returns the owners of slots, each with its lowest slot.
    pub fn owners(&self) -> Vec<(&Endpoint, u16)> {
        self.least_of_owners(|slot| slot)
    }

    /// Returns the owners of slots, each with the smallest result of `of` for its slots.
    pub fn least_of_owners<T: Ord>(&self, of: impl Fn(u16) -> T) -> Vec<(&Endpoint, T)> {
        let mut least: Vec<Option<T>> = self.endpoints.iter().map(|_| None).collect();
        for slot in 0..CLUSTER_SLOTS {
            if let Some(least) = least.get_mut(usize::from(self.owners[usize::from(slot)])) {
                let one = of(slot);
                if least.as_ref().is_none_or(|least| one < *least) {
                    *least = Some(one);
                }
            }
        }
        self.endpoints.iter().zip(least).filter_map(|(owner, least)| Some((owner, least?))).collect()
    }

    /// Returns the number of slots with an owner.
    pub fn owned_slot_count(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NO_OWNER).count()
    }

    /// Returns the failed primaries, which may return.
    pub fn failed(&self) -> impl Iterator<Item = &ClusterMember> {
        self.shards.iter().flat_map(|shard| &shard.failed)
    }

    /// Returns all nodes, including failed ones.
    pub fn members(&self) -> impl Iterator<Item = &ClusterMember> {
        self.shards.iter().flat_map(|shard| shard.primary.iter().chain(&shard.replicas).chain(&shard.failed))
    }

    /// Returns the nodes that own a slot which they do not own in `before`.
    pub fn gained(&self, before: &Self) -> BTreeSet<Endpoint> {
        let is_new = |slot: &u16| self.owner(*slot) != before.owner(*slot);
        (0..CLUSTER_SLOTS).filter(is_new).filter_map(|slot| self.owner(slot).cloned()).collect()
    }

    /// Returns whether every slot has an owner.
    pub fn covers_all_slots(&self) -> bool {
        self.owned_slot_count() == usize::from(CLUSTER_SLOTS)
    }

    /// Returns the map after a redirect of a node has named a new owner of a slot.
    pub(crate) fn with_owner(&self, slot: u16, endpoint: &Endpoint) -> Self {
        let mut map = self.clone();
        let known = map.endpoints.iter().position(|known| known == endpoint);
        let place = known.unwrap_or(map.endpoints.len());
        if place == map.endpoints.len() && place < MAX_NODES {
            map.endpoints.push(endpoint.clone());
        }
        // The map has at most `MAX_NODES`, and the slot in a redirect may be invalid.
        match map.owners.get_mut(usize::from(slot)) {
            Some(owner) if place < map.endpoints.len() => *owner = place as u16,
            _ => {}
        }
        map
    }

    /// Reads an answer to CLUSTER SHARDS. Returns `None` for an invalid answer. Leaves out nodes without a usable address.
    pub(crate) fn read_shards(answer: &Value, asked: &Endpoint, tls: bool) -> Option<Self> {
        let shards = items(answer)?.iter().map(|shard| read_shard(shard, asked, tls));
        Self::checked(shards.collect::<Option<_>>()?)
    }

    /// Returns whether only CLUSTER SLOTS has the owners of all slots. Around a failover, CLUSTER SHARDS lists several
    /// primaries of one shard, with the slots of the first that has not failed, or of the first (Redis, cluster.c:
    /// addShardReplyForClusterShards()).
    pub(crate) fn is_disputed(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_disputed)
    }

    /// Replaces the owners in disputed shards by those in `owners`, the answer of the same node to CLUSTER SLOTS.
    pub(crate) fn resolve_owners(self, owners: &Self) -> Self {
        let (disputed, mut shards): (Vec<_>, Vec<_>) =
            self.shards.into_iter().partition(|shard| shard.is_disputed);
        for Shard { primary, replicas, mut failed, .. } in disputed {
            let nodes = primary.into_iter().chain(replicas);
            let (primaries, mut others): (Vec<_>, Vec<_>) =
                nodes.partition(|node| !owners.slots_of(node).is_empty());
            for primary in primaries {
                let (slots, replicas, failed) =
                    (owners.slots_of(&primary), mem::take(&mut others), mem::take(&mut failed));
                shards.push(Shard { primary: Some(primary), replicas, slots, failed, is_disputed: false });
            }
            let slots = failed.iter().flat_map(|node| owners.slots_of(node)).collect();
            shards.push(Shard { replicas: others, failed, slots, ..Shard::default() });
        }
        shards.retain(|shard| !shard.is_empty());
        Self::of(shards)
    }

    fn slots_of(&self, primary: &ClusterMember) -> Vec<RangeInclusive<u16>> {
        let its =
            self.shards.iter().filter(|shard| shard.primary.as_ref().is_some_and(|one| one.id == primary.id));
        its.flat_map(|shard| shard.slots.iter().cloned()).collect()
    }

    /// Reads an answer to CLUSTER SLOTS, which is used if CLUSTER SHARDS is refused. Returns `None` for an invalid answer.
    pub(crate) fn read_slots(answer: &Value, asked: &Endpoint) -> Option<Self> {
        let mut shards: Vec<Shard> = Vec::new();
        for range in items(answer)? {
            let (slots, nodes) = items(range)?.split_at_checked(2)?;
            let range = range_of(&slots[0], &slots[1])?;
            let mut nodes = nodes.iter().map(|node| read_node_of_slots(node, asked));
            let (primary, replicas) = (nodes.next()??, nodes.collect::<Option<Vec<_>>>()?);
            match shards.iter_mut().find(|shard| shard.primary == primary) {
                Some(shard) => shard.slots.push(range),
                None => {
                    let replicas = replicas.into_iter().flatten().collect();
                    shards.push(Shard { primary, replicas, slots: vec![range], ..Shard::default() });
                }
            }
        }
        Self::checked(shards)
    }

    /// Returns the role of the node with this ID.
    pub(super) fn role_of(&self, name: &str) -> NodeRole {
        let mut role = NodeRole::Unknown;
        for shard in &self.shards {
            if shard.primary.as_ref().is_some_and(|primary| primary.id == name) {
                return NodeRole::Primary;
            }
            let has_failed = shard.failed.iter().any(|failed| failed.id == name);
            let is_replaced = has_failed && (shard.primary.is_some() || shard.slots.is_empty());
            if is_replaced || shard.replicas.iter().any(|replica| replica.id == name) {
                role = NodeRole::Replica;
            }
        }
        role
    }

    /// Returns the map if it has 1 to [`MAX_NODES`] nodes. A new node that is not part of a cluster lists none.
    fn checked(shards: Vec<Shard>) -> Option<Self> {
        let map = Self::of(shards);
        let count = map.members().count();
        ((1..=MAX_NODES).contains(&count)).then_some(map)
    }
}

fn read_shard(shard: &Value, asked: &Endpoint, tls: bool) -> Option<Shard> {
    let shard = fields(shard)?;
    let ends = items(shard.get("slots")?)?;
    let slots = ends.chunks(2).map(|ends| range_of(&ends[0], ends.get(1)?)).collect::<Option<_>>()?;
    let mut read = Shard { slots, ..Shard::default() };
    for node in items(shard.get("nodes")?)? {
        let node = fields(node)?;
        let is_online = text(node.get("health")?)? == "online";
        let is_primary = matches!(text(node.get("role")?)?, "master" | "primary");
        let Some(member) = read_member(&node, asked, tls) else { continue };
        match (is_primary, is_online) {
            (true, true) if read.primary.is_none() => read.primary = Some(member),
            (true, false) => read.failed.push(member),
            (true, true) => {
                read.is_disputed = true;
                read.replicas.push(member);
            }
            (false, _) => read.replicas.push(member),
        }
    }
    read.is_disputed |= read.primary.is_some() && !read.failed.is_empty();
    Some(read)
}

/// Reads a node in CLUSTER SHARDS. Returns `None` if it has no usable address.
fn read_member(node: &HashMap<&str, &Value>, asked: &Endpoint, tls: bool) -> Option<ClusterMember> {
    let host = match node.get("endpoint").and_then(|host| text(host)) {
        // The server is configured to announce a host name, and has none.
        Some("?") => node.get("ip").and_then(|ip| text(ip)).unwrap_or_default(),
        host => host.unwrap_or_default(),
    };
    let port = node.get(if tls { "tls-port" } else { "port" }).and_then(|port| port_of(port))?;
    Some(ClusterMember { id: id_of(node.get("id")?)?, endpoint: Endpoint::of(host, port, asked)? })
}

/// Reads a node in CLUSTER SLOTS. Returns `None` for an invalid answer, and `Some(None)` for a node without a usable
/// address.
fn read_node_of_slots(node: &Value, asked: &Endpoint) -> Option<Option<ClusterMember>> {
    let [host, port, id, ..] = items(node)? else { return None };
    let host = text(host).unwrap_or_default();
    let endpoint = port_of(port).and_then(|port| Endpoint::of(host, port, asked));
    let id = id_of(id)?;
    Some(endpoint.map(|endpoint| ClusterMember { id, endpoint }))
}

fn id_of(value: &Value) -> Option<String> {
    let id = text(value)?;
    let is_id =
        (1..=MAX_ID_LENGTH).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| id.to_owned())
}

fn range_of(start: &Value, end: &Value) -> Option<RangeInclusive<u16>> {
    let slot = |value: &Value| {
        number(value).and_then(|slot| u16::try_from(slot).ok()).filter(|slot| *slot < CLUSTER_SLOTS)
    };
    let (start, end) = (slot(start)?, slot(end)?);
    (start <= end).then_some(start..=end)
}

fn port_of(value: &Value) -> Option<u16> {
    number(value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) | Value::Set(items) => Some(items),
        _ => None,
    }
}

/// Reads names and values, which are a map in RESP3 and alternate in an array in RESP2.
fn fields(value: &Value) -> Option<HashMap<&str, &Value>> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| Some((text(name)?, value))).collect(),
        other => items(other)?.chunks_exact(2).map(|pair| Some((text(&pair[0])?, &pair[1]))).collect(),
    }
}

#[cfg(test)]
mod tests;
