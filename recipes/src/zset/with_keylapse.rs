//! Orders that are not paid in time are closed. Nobody else looks at their keys, so there are none
//! (`triggers(false)`): only deadlines in a sorted set, as in the design by hand.

use std::time::{Duration, SystemTime};

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// A failed attempt comes again 1 s and 2 s later; the attempt is counted for us. What a process had
/// claimed when it died runs elsewhere when its lease is over.
pub fn orders() -> keylapse::Result<Topic<()>> {
    let ladder = Backoff::table([Duration::from_secs(1), Duration::from_secs(2)]);
    Ok(Topic::new("order:unpaid:{order}")?.marker_keys(false).retry(ladder).lease(Duration::from_secs(2)))
}

/// Gives an order until `due` to be paid.
pub async fn place(schedule: &Schedule, order: &str, due: SystemTime) -> keylapse::Result<()> {
    let armed = schedule.arm(&orders()?, order, due, &()).await?;
    debug_assert!(armed.is_armed(), "order numbers are used once");
    Ok(())
}

/// Runs when the time is over. `id` is the same however often it runs: whoever closes orders can tell
/// a repeat by it.
pub async fn close(lapse: Lapse<()>, world: World) -> anyhow::Result<Done> {
    let order = lapse.capture("order").unwrap_or_default();
    world.act(order, &lapse.id()).await?;
    Ok(Done)
}

/// Sleeps until exactly the next deadline, for ever.
pub async fn watch(url: &str, world: World) -> keylapse::Result<()> {
    Listener::builder(url).state(world).on(orders()?, close).build()?.run_until(shutdown_signal()).await
}
