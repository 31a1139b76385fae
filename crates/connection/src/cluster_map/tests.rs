use proptest::prelude::*;

use super::*;
use crate::cluster_map::NodeRole;

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn endpoint(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.into(), port }
}

fn asked() -> Endpoint {
    endpoint("seed.internal", 7000)
}

/// Returns a node of an answer to CLUSTER SHARDS in RESP2.
fn node(id: &str, host: &str, port: i64, role: &str, health: &str) -> Value {
    let fields = [
        ("id", bulk(id)),
        ("port", Value::Int(port)),
        ("tls-port", Value::Int(port + 1000)),
        ("ip", bulk("10.0.0.9")),
        ("endpoint", bulk(host)),
        ("role", bulk(role)),
        ("replication-offset", Value::Int(7)),
        ("health", bulk(health)),
    ];
    Value::Array(fields.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect())
}

fn shard(slots: &[i64], nodes: Vec<Value>) -> Value {
    let slots = slots.iter().map(|slot| Value::Int(*slot)).collect();
    Value::Array(vec![bulk("slots"), Value::Array(slots), bulk("nodes"), Value::Array(nodes)])
}

fn read(shards: Vec<Value>) -> Option<ClusterMap> {
    ClusterMap::read_shards(&Value::Array(shards), &asked(), false)
}

#[test]
fn each_slot_has_the_primary_that_is_online() {
    let failed_over = vec![
        node("a", "h1", 7000, "master", "failed"),
        node("b", "h2", 7001, "master", "online"),
        node("c", "h3", 7002, "replica", "loading"),
    ];
    let orphaned = vec![node("d", "h4", 7003, "master", "failed")];
    let map = read(vec![shard(&[0, 99, 200, 16_383], failed_over), shard(&[100, 199], orphaned)]).unwrap();
    for (slot, owner) in [(0, Some("h2")), (99, Some("h2")), (100, None), (199, None), (16_383, Some("h2"))] {
        assert_eq!(map.owner(slot), owner.map(|host| endpoint(host, 7001)).as_ref(), "{slot}");
    }
    assert!(!map.covers_all_slots());
    assert_eq!(map.primaries().map(|member| &member.id[..]).collect::<Vec<_>>(), ["b"]);
    assert_eq!(map.members().map(|member| &member.id[..]).collect::<Vec<_>>(), ["b", "c", "a", "d"]);
    assert_eq!(map.failed().map(|member| &member.id[..]).collect::<Vec<_>>(), ["a", "d"]);
    let standings = [NodeRole::Replica, NodeRole::Primary, NodeRole::Replica, NodeRole::Unknown];
    assert_eq!(["a", "b", "c", "d"].map(|name| map.role_of(name)), standings);
}

/// Since Redis 7.2, nodes that were once in one shard stay in it, and the listed slots are those of the first node.
#[test]
fn where_a_shard_has_two_primaries_the_other_command_says_who_owns_its_slots() {
    let owner = Value::Array(vec![bulk("h2"), Value::Int(7001), bulk("b"), Value::Array(vec![])]);
    let slots = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_383), owner])]);
    let slots = ClusterMap::read_slots(&slots, &asked()).unwrap();
    for health in ["online", "fail"] {
        let nodes = vec![
            node("a", "h1", 7000, "master", health),
            node("b", "h2", 7001, "master", "online"),
            node("c", "h3", 7002, "replica", "online"),
        ];
        let map = read(vec![shard(&[], nodes)]).unwrap();
        assert!(map.is_disputed(), "{health}");
        let map = map.resolve_owners(&slots);
        assert_eq!((map.covers_all_slots(), map.owner(7)), (true, Some(&endpoint("h2", 7001))), "{health}");
        let standings = [NodeRole::Replica, NodeRole::Primary, NodeRole::Replica];
        assert_eq!(["a", "b", "c"].map(|name| map.role_of(name)), standings, "{health}");
        assert!(!map.is_disputed(), "{health}");
    }
}

/// A node that has lost its nodes.conf has a new ID for the other nodes, at the same address.
#[test]
fn a_failed_node_whose_address_another_has_is_left_out() {
    let nodes = vec![node("a", "h1", 7000, "master", "failed"), node("b", "h1", 7000, "master", "online")];
    let map = read(vec![shard(&[0, 16_383], nodes)]).unwrap();
    assert_eq!(map.members().map(|member| &member.id[..]).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn hosts_that_are_not_named_and_ports_of_tls_are_found() {
    let nodes = |host| vec![node("a", host, 7001, "master", "online")];
    for (host, tls, found) in [
        ("", false, endpoint("seed.internal", 7001)),
        ("?", false, endpoint("10.0.0.9", 7001)),
        ("redis-1.internal", true, endpoint("redis-1.internal", 8001)),
    ] {
        let answer = Value::Array(vec![shard(&[0, 16_383], nodes(host))]);
        let map = ClusterMap::read_shards(&answer, &asked(), tls).unwrap();
        assert_eq!(map.owner(7), Some(&found), "{host:?}");
        assert!(map.covers_all_slots());
    }
}

#[test]
fn both_commands_tell_the_same() {
    let member =
        |host: Value, port, id| Value::Array(vec![host, Value::Int(port), bulk(id), Value::Array(vec![])]);
    let range =
        |from, to, nodes: Vec<Value>| Value::Array([vec![Value::Int(from), Value::Int(to)], nodes].concat());
    let nodes = || vec![member(bulk("h1"), 7000, "a"), member(Value::Nil, 7001, "b")];
    let other = || vec![member(bulk("h3"), 7002, "c")];
    let slots =
        Value::Array(vec![range(0, 9, nodes()), range(10, 16_382, other()), range(16_383, 16_383, nodes())]);
    let shards = vec![
        shard(
            &[0, 9, 16_383, 16_383],
            vec![node("a", "h1", 7000, "master", "online"), node("b", "", 7001, "replica", "online")],
        ),
        shard(&[10, 16_382], vec![node("c", "h3", 7002, "master", "online")]),
    ];
    assert_eq!(ClusterMap::read_slots(&slots, &asked()), read(shards));
}

#[test]
fn forged_and_broken_answers_are_none() {
    let fine = || vec![node("a", "h", 7000, "master", "online")];
    for (what, shards) in [
        ("nobody", vec![]),
        ("a slot too high", vec![shard(&[0, 16_384], fine())]),
        ("a range that ends before it begins", vec![shard(&[9, 3], fine())]),
        ("half a range", vec![shard(&[9], fine())]),
        ("a negative slot", vec![shard(&[-1, 3], fine())]),
        ("no port", vec![shard(&[0, 9], vec![node("a", "h", 0, "master", "online")])]),
        (
            "a host of control characters",
            vec![shard(&[0, 9], vec![node("a", "h\r\n", 7000, "master", "online")])],
        ),
        ("an id that is none", vec![shard(&[0, 9], vec![node("a b", "h", 7000, "master", "online")])]),
        ("no shard", vec![Value::Int(7)]),
    ] {
        assert_eq!(read(shards), None, "{what}");
    }
}

#[test]
fn an_answer_that_names_more_than_ten_thousand_nodes_is_none_and_no_further_owner_is_believed() {
    let primary = |port| shard(&[], vec![node("a", "h", port, "master", "online")]);
    let shards = |count| read((1..=count).map(primary).collect());
    let slots = |count| {
        let member = |port| Value::Array(vec![bulk("h"), Value::Int(port), bulk("a")]);
        let nodes = (1..=count).map(member);
        let range = [Value::Int(0), Value::Int(16_383)].into_iter().chain(nodes).collect();
        ClusterMap::read_slots(&Value::Array(vec![Value::Array(range)]), &asked())
    };
    assert!(shards(10_001).is_none() && slots(10_001).is_none());
    assert_eq!(slots(10_000).map(|map| map.members().count()), Some(10_000));
    let full = shards(10_000).expect("a map");
    let known = endpoint("h", 10_000);
    assert_eq!(full.with_owner(7, &known).owner(7), Some(&known));
    assert!(full.with_owner(7, &endpoint("h", 10_001)) == full, "it has no room");
}

#[test]
fn a_node_that_knows_better_is_believed_of_one_slot() {
    let map = read(vec![shard(&[0, 16_383], vec![node("a", "h", 7000, "master", "online")])]).unwrap();
    let moved = map.with_owner(7, &endpoint("new", 7009));
    assert_eq!((moved.owner(7), moved.owner(8)), (Some(&endpoint("new", 7009)), Some(&endpoint("h", 7000))));
    assert_eq!(moved.owners(), [(&endpoint("h", 7000), 0), (&endpoint("new", 7009), 7)]);
    let back = moved.with_owner(7, &endpoint("h", 7000));
    assert_eq!(back.owner(7), map.owner(7));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        (-2..20_000_i64).prop_map(Value::Int),
        prop::sample::select(vec![
            "slots", "nodes", "id", "port", "endpoint", "role", "master", "health", "online", "h"
        ])
        .prop_map(bulk),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(Value::BulkString),
    ];
    leaf.prop_recursive(5, 60, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::Array),
            prop::collection::vec((inner.clone(), inner), 0..8).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn no_answer_panics(answer in any_value(), tls: bool, slot in 0..CLUSTER_SLOTS) {
        for map in [ClusterMap::read_shards(&answer, &asked(), tls), ClusterMap::read_slots(&answer, &asked())] {
            prop_assert!(map.is_none_or(|map| map.owner(slot).is_none_or(|owner| owner.to_string().ends_with(char::is_numeric))));
        }
    }
}

/// The check value is that of the specification. The slots are the answers to `CLUSTER KEYSLOT`.
#[test]
fn slots_are_those_of_the_servers() {
    assert_eq!(crc16(b"123456789"), 0x31C3);
    for (key, slot) in [("foo", 12_182), ("bar", 5061), ("", 0), ("{user1000}.following", 3443)] {
        assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
    }
}

#[test]
fn the_first_tag_decides_unless_it_is_empty() {
    for (key, like) in [
        ("keylapse:{orders/0}:due", "orders/0"),
        ("a{b}{c}", "b"),
        ("a{{b}}c", "{b"),
        ("a{}{b}", "a{}{b}"),
        ("a{b", "a{b"),
        ("}a{b}", "b"),
    ] {
        assert_eq!(slot_of(key.as_bytes()), slot_of(like.as_bytes()), "{key}");
    }
}
