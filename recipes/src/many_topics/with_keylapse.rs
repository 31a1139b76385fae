//! An order that is not paid within five seconds is closed. The rest of a red packet is paid back after
//! a day. Each kind of timer has a topic, which is defined in code.

use std::time::{Duration, SystemTime};

use keylapse::{Cancelled, Done, Lapse, Listener, NewArm, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// The time to pay an order.
pub const UNPAID: Duration = Duration::from_secs(5);
/// The time to open a red packet.
pub const UNOPENED: Duration = Duration::from_secs(24 * 3600);

/// Returns the topic of orders. Four partitions share the orders, each with its own index. A listener
/// handles up to 200 orders at a time, and claims many in one call.
pub fn orders() -> keylapse::Result<Topic<()>> {
    Ok(Topic::new("order:unpaid:{order}")?.partitions(4).concurrency(200))
}

/// Returns the topic of red packets. The payload is the rest of the amount, in cents.
pub fn packets() -> keylapse::Result<Topic<u64>> {
    Topic::new("packet:unopened:{packet}")
}

/// Places orders, each with a deadline for its payment. A refused order does not stop the others.
pub async fn place(schedule: &Schedule, placed: &[(String, SystemTime)]) -> keylapse::Result<()> {
    let topic = orders()?;
    let arms = placed.iter().map(|(order, due)| NewArm::new(order, *due, ()));
    schedule.arm_many(&topic, arms).await?.into_iter().try_for_each(|armed| armed.map(drop))
}

/// Cancels the timer of a paid order. Returns true if the order will not be closed. Otherwise it has no timer or a
/// listener has claimed it: check the database, as `close` should.
pub async fn pay(schedule: &Schedule, order: &str) -> keylapse::Result<bool> {
    Ok(schedule.cancel(&orders()?, order).await? == Cancelled::Cancelled)
}

/// Sends a red packet.
pub async fn send(schedule: &Schedule, packet: &str, cents: u64) -> keylapse::Result<()> {
    schedule.arm(&packets()?, packet, UNOPENED, &cents).await.map(drop)
}

/// Closes an order at its deadline. Deadlines have a precision of 1 ms, and there is no tick.
pub async fn close(lapse: Lapse<()>, world: World) -> anyhow::Result<Done> {
    world.act(lapse.capture("order").unwrap_or_default(), &lapse.id()).await?;
    Ok(Done)
}

/// Pays back the rest of a red packet after a day.
pub async fn pay_back(lapse: Lapse<u64>, world: World) -> anyhow::Result<Done> {
    let packet = lapse.capture("packet").unwrap_or_default();
    world.act(&format!("{packet}:{}", lapse.payload()), &lapse.id()).await?;
    Ok(Done)
}

/// Serves both topics. A topic is created with its first timer, and is not removed when it is empty.
pub async fn serve(url: &str, world: World) -> keylapse::Result<()> {
    let listener = Listener::builder(url).state(world).on(orders()?, close).on(packets()?, pay_back);
    listener.build()?.run_until(shutdown_signal()).await
}
