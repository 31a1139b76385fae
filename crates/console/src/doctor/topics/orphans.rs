//! Names in an index without records: a sample of the first that are due.

use keylapse::inside::ClientInside as _;
use keylapse_connection::{Pipeline, Value, cmd, pipe};

use crate::connection::Seat;
use crate::error::Result;
use crate::wire::PartitionNames;

use super::super::codes;
use super::Topics;
use super::look::Seen;

/// Of each partition.
const SAMPLE: usize = 100;
/// More partitions than these are not looked at.
const MOST: usize = 500;

pub(super) async fn check(topics: &mut Topics<'_>, seen: &[Seen]) -> Result<()> {
    let mut left = MOST;
    for seen in seen.iter().filter(|seen| seen.timers > 0) {
        let mut orphans = 0;
        for at in seen.partitions.iter().take(left) {
            orphans += count(topics, at).await?;
        }
        left = left.saturating_sub(seen.partitions.len());
        if orphans > 0 {
            let observed = format!("{orphans} among the first {SAMPLE} of each partition");
            topics.say(&codes::ORPHANS, &seen.entry.name, &observed);
        }
    }
    Ok(())
}

/// A timer may end between two looks, so index and records are looked at in one moment.
async fn count(topics: &Topics<'_>, at: &PartitionNames) -> Result<usize> {
    let (due, rec) = (at.key("due"), at.key("rec"));
    let first = cmd("ZRANGE").arg(due).arg(0).arg(SAMPLE - 1).clone();
    let call = |seat: Seat| {
        let first = first.clone();
        async move { seat.call("looking for orphans", &first).await }
    };
    let names: Vec<Vec<u8>> =
        keylapse_connection::from_redis_value(topics.client.store().topology().at(at.slot, call).await?)
            .unwrap_or_default();
    if names.is_empty() {
        return Ok(0);
    }
    let mut both = pipe();
    both.atomic().cmd("ZMSCORE").arg(due).arg(&names);
    // Not the records themselves, which may be large.
    names.iter().for_each(|name| _ = both.cmd("HEXISTS").arg(rec).arg(name));
    Ok(without_record(ask_at_once(topics, at, both).await?))
}

async fn ask_at_once(topics: &Topics<'_>, at: &PartitionNames, both: Pipeline) -> Result<Vec<Value>> {
    let call = |seat: Seat| {
        let both = both.clone();
        async move { seat.call_all("looking for orphans", &both).await }
    };
    topics.client.store().topology().at(at.slot, call).await
}

/// How many have a score and no record, in the answer of the transaction.
fn without_record(mut answers: Vec<Value>) -> usize {
    let Some(Value::Array(mut all)) = answers.pop() else { return 0 };
    let records = all.split_off(all.len().min(1));
    let Some(Value::Array(scores)) = all.pop() else { return 0 };
    let pairs = scores.iter().zip(&records);
    pairs.filter(|(score, record)| !matches!(score, Value::Nil) && matches!(record, Value::Int(0))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_has_a_score_and_no_record() {
        let scores = Value::Array(vec![Value::Double(1.0), Value::Nil, Value::BulkString(b"2".to_vec())]);
        let answer = |records: [i64; 3]| {
            let records = records.map(Value::Int).into_iter();
            vec![Value::Array([scores.clone()].into_iter().chain(records).collect())]
        };
        for (records, orphans) in [([1, 1, 1], 0), ([0, 0, 1], 1), ([0, 0, 0], 2)] {
            assert_eq!(without_record(answer(records)), orphans, "{records:?}");
        }
        assert_eq!(without_record(vec![Value::Nil]), 0, "a transaction that was given up");
    }
}
