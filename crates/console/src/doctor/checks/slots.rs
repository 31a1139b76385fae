//! Finds slots of a cluster that nobody serves.

use keylapse_connection::{Value, cmd};

use crate::error::Result;
use crate::{counted, show_count};

use super::super::case::Case;
use super::super::codes;
use super::super::info::Info;
use super::super::patient::Asked;
use super::url;

const SLOTS: u64 = 16_384;

/// Returns whether it is worth asking further: while the cluster is down, no call about a key is answered.
pub(super) async fn check(case: &mut Case) -> Result<bool> {
    if case.info.number("cluster_enabled") != Some(1) {
        return Ok(true);
    }
    // A user without that right goes on: calls are refused one by one then.
    let Ok(said) = case.ask("asking a node about its cluster", cmd("CLUSTER").arg("INFO")).await? else {
        return Ok(true);
    };
    let cluster = Info::read(&keylapse_connection::from_redis_value::<String>(said).unwrap_or_default());
    let number = |name| cluster.number(name).unwrap_or_default();
    let (owned, failed) = (number("cluster_slots_assigned"), number("cluster_slots_fail"));
    let is_down = cluster.get("cluster_state") == Some("fail");
    if is_down || owned < SLOTS || failed > 0 {
        unserved(case, is_down, owned, failed).await?;
        return Ok(!is_down);
    }
    let is_alone = number("cluster_size") < 2 || case.patient.asked != Asked::Server;
    if !is_alone {
        url::node(case, number("cluster_size"));
    }
    Ok(is_alone)
}

async fn unserved(case: &mut Case, is_down: bool, owned: u64, failed: u64) -> Result<()> {
    let observed = format!(
        "{} of {} have an owner, {} of these have failed; {}",
        counted(owned, "slot"),
        show_count(SLOTS),
        show_count(failed),
        if is_down { "it is down" } else { "it serves the others" }
    );
    let line = line(case, owned).await?;
    case.say_with(&codes::SLOTS_UNSERVED, observed, &[("line", &line)]);
    Ok(())
}

/// Gives away the slots that nobody owns. Those of failed nodes are served when these are back.
async fn line(case: &Case, owned: u64) -> Result<String> {
    if owned == SLOTS {
        return Ok("NODES".to_owned());
    }
    let said = case.ask("asking for the slots", cmd("CLUSTER").arg("SLOTS")).await?.ok();
    let free = said.map(|said| unowned(&said)).unwrap_or_default();
    let words: Vec<_> = free.iter().map(|(first, last)| format!(" {first} {last}")).collect();
    Ok(if words.is_empty() { "NODES".to_owned() } else { format!("ADDSLOTSRANGE{}", words.concat()) })
}

/// The slots that are in no range of an answer to CLUSTER SLOTS.
fn unowned(said: &Value) -> Vec<(u64, u64)> {
    let ranges = keylapse_connection::from_redis_value_ref::<Vec<Vec<Value>>>(said).unwrap_or_default();
    let mut owned: Vec<_> = ranges.iter().filter_map(|range| bounds(range)).collect();
    owned.sort_unstable();
    let (mut free, mut next) = (Vec::new(), 0);
    for (first, last) in owned.into_iter().chain([(SLOTS, SLOTS)]) {
        if first > next {
            free.push((next, first - 1));
        }
        next = next.max(last + 1);
    }
    free
}

fn bounds(range: &[Value]) -> Option<(u64, u64)> {
    match range {
        [Value::Int(first), Value::Int(last), ..] => {
            Some((u64::try_from(*first).ok()?, u64::try_from(*last).ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ranges: &[(i64, i64)]) -> Value {
        let range = |(first, last): &(i64, i64)| Value::Array(vec![Value::Int(*first), Value::Int(*last)]);
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn slots_without_an_owner_are_what_no_range_holds() {
        assert_eq!(unowned(&said(&[])), [(0, 16_383)]);
        assert_eq!(unowned(&said(&[(0, 16_383)])), []);
        assert_eq!(unowned(&said(&[(9, 16_382), (1, 4), (5, 6)])), [(0, 0), (7, 8), (16_383, 16_383)]);
    }
}
