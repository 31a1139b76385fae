//! Whether topics are spread over the primaries of a cluster.

use crate::counted;
use crate::error::Result;
use keylapse::inside::ClientInside as _;

use super::super::codes;
use super::Topics;
use super::look::Seen;

/// Partitions for each primary: with fewer, some primaries have none of a topic by chance.
const EACH: usize = 2;

pub(super) async fn check(topics: &mut Topics<'_>, seen: &[Seen]) -> Result<()> {
    let primaries = topics.client.store().topology().slots().await?.len();
    if primaries < 2 {
        return Ok(());
    }
    let enough = (primaries * EACH).to_string();
    for seen in seen.iter().filter(|seen| seen.partitions.len() < primaries * EACH) {
        let partitions = counted(seen.partitions.len() as u64, "partition");
        let observed = format!("{partitions}, {primaries} primaries");
        topics.say_with(&codes::FEW_PARTITIONS, &seen.entry.name, &observed, &[("partitions", &enough)]);
    }
    Ok(())
}
