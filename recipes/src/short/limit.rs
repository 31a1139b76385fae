use std::time::Duration;

use anyhow::Context;
use keylapse::{Lapse, Outcome};
use redis::aio::MultiplexedConnection;

use crate::stage::World;

const PER_SECOND: u32 = 10;

/// Sends at most ten notices per merchant in each window of one second, over all listeners. Other notices are snoozed
/// for a second, which uses up no attempt. `Topic::max_snoozes` limits the number of snoozes.
pub async fn notify(
    lapse: Lapse<()>,
    (mut redis, world): (MultiplexedConnection, World),
) -> anyhow::Result<Outcome> {
    let merchant = lapse.capture("merchant").context("the key has no merchant")?;
    let mut pipe = redis::pipe();
    let key = format!("limit:{merchant}");
    pipe.atomic().cmd("SET").arg(&key).arg(0).arg(&["NX", "EX", "1"]).ignore().incr(&key, 1);
    let (calls,): (u32,) = pipe.query_async(&mut redis).await?;
    if calls > PER_SECOND {
        return Ok(Outcome::Snooze(Duration::from_secs(1)));
    }
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    Ok(Outcome::Done)
}
