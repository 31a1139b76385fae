//! Closes orders that are not paid in time.
//!
//! No other program needs their keys, so the topic has no marker keys (`marker_keys(false)`). The deadlines
//! are in a sorted set, as in the design by hand.

use std::time::{Duration, SystemTime};

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// Creates the topic. A failed attempt is retried after 1 s, then after 2 s; keylapse counts the attempts.
/// If a process dies, another one runs its orders when their leases end.
pub fn orders() -> keylapse::Result<Topic<()>> {
    let backoff = Backoff::table([Duration::from_secs(1), Duration::from_secs(2)]);
    Ok(Topic::new("order:unpaid:{order}")?.marker_keys(false).retry(backoff).lease(Duration::from_secs(2)))
}

/// Arms the timer of an order that must be paid before `due`.
pub async fn place(schedule: &Schedule, order: &str, due: SystemTime) -> keylapse::Result<()> {
    let armed = schedule.arm(&orders()?, order, due, &()).await?;
    debug_assert!(armed.is_armed(), "order numbers are used once");
    Ok(())
}

/// Closes an order at its deadline. It may run twice, for example after a crash. All runs have one ID, by
/// which the receiver recognizes a repeat.
pub async fn close(lapse: Lapse<()>, world: World) -> anyhow::Result<Done> {
    let order = lapse.capture("order").unwrap_or_default();
    world.act(order, &lapse.id()).await?;
    Ok(Done)
}

/// Runs a listener, which sleeps until the next deadline. You can run several: each order goes to one.
pub async fn watch(url: &str, world: World) -> keylapse::Result<()> {
    Listener::builder(url).state(world).on(orders()?, close).build()?.run_until(shutdown_signal()).await
}
