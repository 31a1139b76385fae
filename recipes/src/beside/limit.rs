use std::time::Duration;

use anyhow::Context;
use keylapse::{Lapse, Outcome};
use redis::aio::MultiplexedConnection;

use crate::stage::World;

const PER_SECOND: u32 = 10;

/// At most ten a second for each merchant, in all listeners together. What is too much comes again a second later,
/// and uses up no attempt; `Topic::max_snoozes` says how often.
pub async fn notify(
    lapse: Lapse<()>,
    (mut redis, world): (MultiplexedConnection, World),
) -> anyhow::Result<Outcome> {
    let merchant = lapse.capture("merchant").context("a notice to nobody")?;
    let mut count = redis::pipe();
    let key = format!("limit:{merchant}");
    count.atomic().cmd("SET").arg(&key).arg(0).arg(&["NX", "EX", "1"]).ignore().incr(&key, 1);
    let (calls,): (u32,) = count.query_async(&mut redis).await?;
    if calls > PER_SECOND {
        return Ok(Outcome::Snooze(Duration::from_secs(1)));
    }
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    Ok(Outcome::Done)
}
