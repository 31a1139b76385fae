//! Check-ins in a bitmap for each user and year, and a timer that ends a streak when a day went by.

use anyhow::Context;
use jiff::{civil::Date, tz::TimeZone};
use keylapse::{Lapse, Listener, Outcome, Schedule, Topic, When, shutdown_signal};
use redis::{AsyncCommands, aio::MultiplexedConnection as Redis};

use crate::stage::World;

/// One timer for each user. Its payload is the day of the last visit.
pub fn streaks() -> keylapse::Result<Topic<Date>> {
    Topic::new("check_in:lapses:{user}")
}

/// The bitmap of a year, and a day's place in it: 0 to 365, so that 29 February has one.
fn bit(user: &str, day: Date) -> (String, usize) {
    (format!("check_in:days:{user}:{}", day.year()), day.day_of_year().unsigned_abs() as usize - 1)
}

/// The length of a streak whose last day is this one.
fn streak(user: &str, day: Date) -> String {
    format!("check_in:streak:{user}:{day}")
}

/// A streak lapses when all of the next day went by without a visit: at midnight of the user's own zone.
pub fn lapses(day: Date, zone: &TimeZone) -> anyhow::Result<When> {
    let midnight = day.tomorrow()?.tomorrow()?.to_zoned(zone.clone())?;
    Ok(When::At(midnight.timestamp().into()))
}

/// Notes a visit. How long the streak is now: a day longer than yesterday's, however often the user comes today.
/// `OVERFLOW SAT`: after 255 days it stays there, instead of beginning anew.
pub async fn check_in(
    redis: &mut Redis,
    schedule: &Schedule,
    user: &str,
    day: Date,
    lapses: When,
) -> anyhow::Result<u8> {
    let ((days, place), today) = (bit(user, day), streak(user, day));
    let mut visit = redis::pipe();
    visit.atomic().setbit(days, place, true).ignore();
    visit.del(&today).ignore().cmd("COPY").arg(streak(user, day.yesterday()?)).arg(&today).ignore();
    visit.cmd("BITFIELD").arg(&today).arg(&["OVERFLOW", "SAT", "INCRBY", "u8", "#0", "1"]);
    visit.expire(&today, 3 * 86_400).ignore();
    let ([length],): ([u8; 1],) = visit.query_async(redis).await?;
    let _replaces_that_of_the_last_visit = schedule.arm(&streaks()?, user, lapses, &day).await?;
    Ok(length)
}

/// On how many days a user came, from the first to the last of them, in one year. `BIT` is new in Redis 7.0.
pub async fn visits(redis: &mut Redis, user: &str, first: Date, last: Date) -> anyhow::Result<u32> {
    let ((days, from), (_, to)) = (bit(user, first), bit(user, last));
    Ok(redis::cmd("BITCOUNT").arg(days).arg(from).arg(to).arg("BIT").query_async(redis).await?)
}

/// Ends a streak, unless the user came after all while this was on its way.
pub async fn end(lapse: Lapse<Date>, (mut redis, world): (Redis, World)) -> anyhow::Result<Outcome> {
    let (user, last) = (lapse.capture("user").context("a streak of nobody")?, *lapse.payload());
    let (days, next) = bit(user, last.tomorrow()?);
    if redis.getbit(days, next).await? {
        return Ok(Outcome::Drop);
    }
    world.act(user, &lapse.id()).await?; // "your streak has ended"
    redis.del::<_, ()>(streak(user, last)).await?;
    Ok(Outcome::Done)
}

/// Ends streaks as they lapse, for ever.
pub async fn watch(url: &str, world: World) -> anyhow::Result<()> {
    let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let listener = Listener::builder(url).state((redis, world)).on(streaks()?, end).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
