//! A queue is a topic whose timers are armed without delay, so they are due immediately.

use std::time::Duration;

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// Creates the topic, whose payload is the seller. A mail that fails is retried after 1 s, 10 s and a
/// minute. If all attempts fail, it becomes a dead letter. Later sales do not wait for it.
pub fn sales() -> keylapse::Result<Topic<String>> {
    let backoff = Backoff::table([1, 10, 60].map(Duration::from_secs));
    Ok(Topic::new("sold:{sale}")?.marker_keys(false).retry(backoff).lease(Duration::from_secs(2)))
}

/// Queues a mail to the seller, after all mails that were queued before.
pub async fn sold(schedule: &Schedule, sale: &str, seller: &str) -> keylapse::Result<()> {
    let armed = schedule.arm(&sales()?, sale, Duration::ZERO, &seller.to_owned()).await?;
    debug_assert!(armed.is_armed(), "each thing is sold once");
    Ok(())
}

/// Sends the mail of a sale. The sale stays in Redis until this function returns. If this process dies,
/// another one sends the mail. Both runs have one ID, by which the mail server recognizes a repeat.
pub async fn mail(lapse: Lapse<String>, world: World) -> anyhow::Result<Done> {
    let sale = lapse.capture("sale").unwrap_or_default();
    world.act(sale, &lapse.id()).await?;
    println!("mailed {}: sale {sale}", lapse.payload());
    Ok(Done)
}

/// Runs a listener. One listener that runs one mail at a time keeps the order (first in, first out). More
/// mails at a time, or more listeners, are faster and keep no order. The listener reconnects by itself.
pub async fn work(url: &str, world: World, at_a_time: usize) -> keylapse::Result<()> {
    Listener::builder(url)
        .concurrency(at_a_time)
        .state(world)
        .on(sales()?, mail)
        .build()?
        .run_until(shutdown_signal())
        .await
}
