//! A queue is a topic whose timers are armed at zero delay: they are due at once.

use std::time::Duration;

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// The payload is the seller. A mail that fails comes again after 1 s, 10 s and a minute, then it is a
/// dead letter; the sales behind it do not wait for that.
pub fn sales() -> keylapse::Result<Topic<String>> {
    let ladder = Backoff::table([1, 10, 60].map(Duration::from_secs));
    Ok(Topic::new("sold:{sale}")?.marker_keys(false).retry(ladder).lease(Duration::from_secs(2)))
}

/// Queues a mail to the seller, behind all that were queued before.
pub async fn sold(schedule: &Schedule, sale: &str, seller: &str) -> keylapse::Result<()> {
    let armed = schedule.arm(&sales()?, sale, Duration::ZERO, &seller.to_owned()).await?;
    debug_assert!(armed.is_armed(), "each thing is sold once");
    Ok(())
}

/// Runs for each sale; as it stays in Redis until this has returned, it runs elsewhere if this process
/// dies. `id` is the same then, so that the mail server can tell a repeat by it.
pub async fn mail(lapse: Lapse<String>, world: World) -> anyhow::Result<Done> {
    let sale = lapse.capture("sale").unwrap_or_default();
    world.act(sale, &lapse.id()).await?;
    println!("{} knows of sale {sale}", lapse.payload());
    Ok(Done)
}

/// One listener that runs one at a time is first in, first out. More at a time, or more listeners, are
/// faster and keep no order. Connections that are closed are opened again.
pub async fn work(url: &str, world: World, at_a_time: usize) -> keylapse::Result<()> {
    Listener::builder(url)
        .concurrency(at_a_time)
        .state(world)
        .on(sales()?, mail)
        .build()?
        .run_until(shutdown_signal())
        .await
}
