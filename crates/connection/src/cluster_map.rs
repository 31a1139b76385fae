//! In which of a cluster's 16,384 slots a key lies, and who owns which, as one of its nodes sees it.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::ops::RangeInclusive;

use redis::Value;

use crate::address::Endpoint;

/// More nodes than any cluster has (the specification's advice is 1,000 at most): an answer is forged or broken.
const MOST_NODES: usize = 10_000;
/// Ids have 40 characters.
const LONGEST_ID: usize = 64;
const NOBODY: u16 = u16::MAX;

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// Returns the slot of a key: CRC16 of the key or of its hash tag, as the
/// [cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/) has it. What stands between its first `{` and the next `}` decides alone, unless that is nothing.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// The part of a key that decides where it lies, where that is not the whole.
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
pub struct Member {
    /// The name that its cluster gives it.
    pub id: String,
    /// Where it listens.
    pub endpoint: Endpoint,
}

/// Nodes that hold the same slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shard {
    /// None while it has failed.
    pub primary: Option<Member>,
    /// Nodes that copy the primary.
    pub replicas: Vec<Member>,
    /// The ranges of slots that they hold.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Primaries of it that have failed. A replica may have replaced one.
    pub failed: Vec<Member>,
    /// Several of its nodes are called primaries, so that the slots may be another one's.
    pub is_disputed: bool,
}

impl Shard {
    fn is_empty(&self) -> bool {
        self.primary.is_none() && self.replicas.is_empty() && self.failed.is_empty()
    }

    fn place(&self) -> (Option<u16>, Option<&Member>, &[Member]) {
        (self.slots.first().map(|range| *range.start()), self.primary.as_ref(), &self.replicas)
    }
}

/// What another node says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a primary, of whatever slots.
    Primary,
    /// It is a replica, or has failed and no slots are its own any more: it was replaced if it was a primary before, unless
    /// who says so is late.
    Replica,
    /// It is not known, or has failed and nobody has its slots.
    Unknown,
}

/// All of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    shards: Vec<Shard>,
    /// For each slot the endpoint of its owner.
    owners: Vec<u16>,
    endpoints: Vec<Endpoint>,
}

impl Default for ClusterMap {
    /// Of nothing: no slot has an owner.
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl ClusterMap {
    /// In one order, whichever node names them: what is the same is equal.
    fn of(mut shards: Vec<Shard>) -> Self {
        let nodes = shards.iter().flat_map(|shard| shard.primary.iter().chain(&shard.replicas));
        let present: BTreeSet<_> = nodes.map(|member| member.endpoint.clone()).collect();
        for shard in &mut shards {
            shard.replicas.sort();
            // A node that has lost its nodes.conf has another name, and the one that it had has failed.
            shard.failed.retain(|member| !present.contains(&member.endpoint));
            shard.failed.sort();
        }
        shards.sort_by(|one, other| one.place().cmp(&other.place()));
        let (mut owners, mut endpoints) = (vec![NOBODY; usize::from(SLOTS)], Vec::new());
        for shard in &shards {
            let Some(primary) = &shard.primary else { continue };
            let place = endpoints.len() as u16; // there are at most `MOST_NODES`
            endpoints.push(primary.endpoint.clone());
            for range in &shard.slots {
                owners[usize::from(*range.start())..=usize::from(*range.end())].fill(place);
            }
        }
        Self { shards, owners, endpoints }
    }

    /// Where a slot's owner listens; none while nobody owns it.
    pub fn owner(&self, slot: u16) -> Option<&Endpoint> {
        self.endpoints.get(usize::from(self.owners[usize::from(slot)]))
    }

    /// The primaries that own slots.
    pub fn primaries(&self) -> impl Iterator<Item = &Member> {
        self.shards.iter().filter(|shard| !shard.slots.is_empty()).filter_map(|shard| shard.primary.as_ref())
    }

    /// Who owns slots, and the lowest of each.
    pub fn owners(&self) -> Vec<(&Endpoint, u16)> {
        self.least_of_owners(|slot| slot)
    }

    /// Who owns slots, and what is least of each one's.
    pub fn least_of_owners<T: Ord>(&self, of: impl Fn(u16) -> T) -> Vec<(&Endpoint, T)> {
        let mut least: Vec<Option<T>> = self.endpoints.iter().map(|_| None).collect();
        for slot in 0..SLOTS {
            if let Some(least) = least.get_mut(usize::from(self.owners[usize::from(slot)])) {
                let one = of(slot);
                if least.as_ref().is_none_or(|least| one < *least) {
                    *least = Some(one);
                }
            }
        }
        self.endpoints.iter().zip(least).filter_map(|(owner, least)| Some((owner, least?))).collect()
    }

    /// How many slots have an owner.
    pub fn owned(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }

    /// Primaries that have failed and may return.
    pub fn failed(&self) -> impl Iterator<Item = &Member> {
        self.shards.iter().flat_map(|shard| &shard.failed)
    }

    /// All nodes, whether they have failed or not.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.shards.iter().flat_map(|shard| shard.primary.iter().chain(&shard.replicas).chain(&shard.failed))
    }

    /// Who owns slots that were others' before, or nobody's.
    pub fn gained(&self, before: &Self) -> BTreeSet<Endpoint> {
        let is_new = |slot: &u16| self.owner(*slot) != before.owner(*slot);
        (0..SLOTS).filter(is_new).filter_map(|slot| self.owner(slot).cloned()).collect()
    }

    /// Whether each slot has an owner.
    pub fn is_whole(&self) -> bool {
        self.owned() == usize::from(SLOTS)
    }

    /// The same, after a node has said who owns a slot now.
    pub(crate) fn with_owner(&self, slot: u16, endpoint: &Endpoint) -> Self {
        let mut map = self.clone();
        let known = map.endpoints.iter().position(|known| known == endpoint);
        let place = known.unwrap_or(map.endpoints.len());
        if place == map.endpoints.len() && place < MOST_NODES {
            map.endpoints.push(endpoint.clone());
        }
        // There are at most `MOST_NODES`, and a node may say what cannot be.
        match map.owners.get_mut(usize::from(slot)) {
            Some(owner) if place < map.endpoints.len() => *owner = place as u16,
            _ => {}
        }
        map
    }

    /// The answer to CLUSTER SHARDS. What is no such answer is none; a node that cannot be reached by what is said of it
    /// is left out.
    pub(crate) fn read_shards(answer: &Value, asked: &Endpoint, tls: bool) -> Option<Self> {
        let shards = items(answer)?.iter().map(|shard| read_shard(shard, asked, tls));
        Self::checked(shards.collect::<Option<_>>()?)
    }

    /// Returns true if only CLUSTER SLOTS can tell the owners of slots. Around a failover, CLUSTER SHARDS names several
    /// primaries of one shard, and the slots of the first that has not failed, or of the first (Redis, cluster.c:
    /// addShardReplyForClusterShards()).
    pub(crate) fn is_disputed(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_disputed)
    }

    /// The same, with the owners that the same node has named in its answer to CLUSTER SLOTS.
    pub(crate) fn settled_by(self, owners: &Self) -> Self {
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

    fn slots_of(&self, primary: &Member) -> Vec<RangeInclusive<u16>> {
        let its =
            self.shards.iter().filter(|shard| shard.primary.as_ref().is_some_and(|one| one.id == primary.id));
        its.flat_map(|shard| shard.slots.iter().cloned()).collect()
    }

    /// The answer to CLUSTER SLOTS, of servers that may not be asked for their shards.
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

    /// What it says of a node.
    pub(super) fn standing_of(&self, name: &str) -> Standing {
        let mut standing = Standing::Unknown;
        for shard in &self.shards {
            if shard.primary.as_ref().is_some_and(|primary| primary.id == name) {
                return Standing::Primary;
            }
            let has_failed = shard.failed.iter().any(|failed| failed.id == name);
            let is_replaced = has_failed && (shard.primary.is_some() || shard.slots.is_empty());
            if is_replaced || shard.replicas.iter().any(|replica| replica.id == name) {
                standing = Standing::Replica;
            }
        }
        standing
    }

    /// A map that names nobody is no answer: a node that has just been made knows of none.
    fn checked(shards: Vec<Shard>) -> Option<Self> {
        let map = Self::of(shards);
        let count = map.members().count();
        ((1..=MOST_NODES).contains(&count)).then_some(map)
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

/// A node of CLUSTER SHARDS; none if nobody could connect there.
fn read_member(node: &HashMap<&str, &Value>, asked: &Endpoint, tls: bool) -> Option<Member> {
    let host = match node.get("endpoint").and_then(|host| text(host)) {
        // The server is to announce a hostname, and has none.
        Some("?") => node.get("ip").and_then(|ip| text(ip)).unwrap_or_default(),
        host => host.unwrap_or_default(),
    };
    let port = node.get(if tls { "tls-port" } else { "port" }).and_then(|port| port_of(port))?;
    Some(Member { id: id_of(node.get("id")?)?, endpoint: Endpoint::of(host, port, asked)? })
}

/// A node of CLUSTER SLOTS: an answer of another shape is none at all, and one that nobody could connect to is left out.
fn read_node_of_slots(node: &Value, asked: &Endpoint) -> Option<Option<Member>> {
    let [host, port, id, ..] = items(node)? else { return None };
    let host = text(host).unwrap_or_default();
    let endpoint = port_of(port).and_then(|port| Endpoint::of(host, port, asked));
    let id = id_of(id)?;
    Some(endpoint.map(|endpoint| Member { id, endpoint }))
}

fn id_of(value: &Value) -> Option<String> {
    let id = text(value)?;
    let is_id = (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| id.to_owned())
}

fn range_of(start: &Value, end: &Value) -> Option<RangeInclusive<u16>> {
    let slot =
        |value: &Value| number(value).and_then(|slot| u16::try_from(slot).ok()).filter(|slot| *slot < SLOTS);
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

/// Names and values, as a map in RESP3, one after the other in RESP2.
fn fields(value: &Value) -> Option<HashMap<&str, &Value>> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| Some((text(name)?, value))).collect(),
        other => items(other)?.chunks_exact(2).map(|pair| Some((text(&pair[0])?, &pair[1]))).collect(),
    }
}

#[cfg(test)]
mod tests;
