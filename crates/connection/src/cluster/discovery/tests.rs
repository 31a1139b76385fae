use redis::Value;

use super::*;

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn at(port: u16) -> Endpoint {
    Endpoint::Tcp { host: "h".into(), port }
}

/// Returns the answer of the node on port `by`: `primary` has all slots, and this health.
fn told(by: u16, epoch: u64, primary: u16, health: &str) -> Told {
    let node = [
        ("id", text(&primary.to_string())),
        ("port", Value::Int(primary.into())),
        ("endpoint", text("h")),
        ("role", text("master")),
        ("health", text(health)),
    ];
    let node = Value::Array(node.into_iter().flat_map(|(name, value)| [text(name), value]).collect());
    let slots = Value::Array(vec![Value::Int(0), Value::Int(16_383)]);
    let shard = vec![text("slots"), slots, text("nodes"), Value::Array(vec![node])];
    let answer = Value::Array(vec![Value::Array(shard)]);
    let map = ClusterMap::read_shards(&answer, &at(by), false).expect("a map");
    Told { by: at(by), epoch, map }
}

#[test]
fn a_node_that_another_of_the_same_epoch_calls_failed_is_vouched_for_by_a_third_alone() {
    for (one, other, taken) in [
        (told(1, 7, 9, "online"), told(2, 8, 9, "fail"), 2),
        (told(1, 8, 9, "online"), told(2, 8, 9, "fail"), 1),
        (told(9, 8, 9, "online"), told(2, 8, 9, "fail"), 2),
        (told(9, 9, 9, "online"), told(2, 8, 9, "fail"), 9),
        (told(1, 8, 9, "online"), told(2, 8, 9, "online"), 1),
    ] {
        let (one_by, other_by) = (one.by.clone(), other.by.clone());
        assert_eq!(one.or_later(other).by, at(taken), "{one_by} and {other_by}");
    }
    assert_eq!(told(2, 8, 9, "fail").or_later(told(1, 8, 9, "online")).by, at(1));
    assert_eq!(told(2, 8, 9, "fail").or_later(told(9, 8, 9, "online")).by, at(2));
}
