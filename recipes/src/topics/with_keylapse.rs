//! An order that is not paid within five seconds is closed; of a red packet what nobody took within a
//! day is paid back. Two kinds of timer, so two topics: code says what there is, no set in Redis.

use std::time::{Duration, SystemTime};

use keylapse::{Cancelled, Done, Lapse, Listener, NewArm, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// For how long an order waits to be paid.
pub const UNPAID: Duration = Duration::from_secs(5);
/// For how long a red packet waits to be opened.
pub const UNOPENED: Duration = Duration::from_secs(24 * 3600);

/// There are many orders: four partitions share them, each with an index of its own, and a listener
/// runs up to 200 at a time. One call claims as many as are due and have a place.
pub fn orders() -> keylapse::Result<Topic<()>> {
    Ok(Topic::new("order:unpaid:{order}")?.partitions(4).concurrency(200))
}

/// With a red packet goes how much of it is left, in cents.
pub fn packets() -> keylapse::Result<Topic<u64>> {
    Topic::new("packet:unopened:{packet}")
}

/// Places orders, each with the time until which it is to be paid. Each has its own answer.
pub async fn place(schedule: &Schedule, placed: &[(String, SystemTime)]) -> keylapse::Result<()> {
    let topic = orders()?;
    let arms = placed.iter().map(|(order, due)| NewArm::new(order, *due, ()));
    schedule.arm_many(&topic, arms).await?.into_iter().try_for_each(|armed| armed.map(drop))
}

/// An order was paid. If this is true, it will not be closed. Otherwise it has been, or a listener has it in hand: ask
/// the database, as `close` should.
pub async fn pay(schedule: &Schedule, order: &str) -> keylapse::Result<bool> {
    Ok(schedule.cancel(&orders()?, order).await? == Cancelled::Cancelled)
}

/// A red packet is sent.
pub async fn send(schedule: &Schedule, packet: &str, cents: u64) -> keylapse::Result<()> {
    schedule.arm(&packets()?, packet, UNOPENED, &cents).await.map(drop)
}

/// Runs when an order's time is over, to the millisecond: there is no tick.
pub async fn close(lapse: Lapse<()>, world: World) -> anyhow::Result<Done> {
    world.act(lapse.capture("order").unwrap_or_default(), &lapse.id()).await?;
    Ok(Done)
}

/// Runs when a red packet's day is over.
pub async fn pay_back(lapse: Lapse<u64>, world: World) -> anyhow::Result<Done> {
    let packet = lapse.capture("packet").unwrap_or_default();
    world.act(&format!("{packet}:{}", lapse.payload()), &lapse.id()).await?;
    Ok(Done)
}

/// Serves both. Redis knows a topic from its first timer on, and it is never taken out between two.
pub async fn serve(url: &str, world: World) -> keylapse::Result<()> {
    let listener = Listener::builder(url).state(world).on(orders()?, close).on(packets()?, pay_back);
    listener.build()?.run_until(shutdown_signal()).await
}
