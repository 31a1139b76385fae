//! Check-ins in a bitmap for each user and year, and a timer that ends a streak after a day without a visit.

use anyhow::Context;
use jiff::{civil::Date, tz::TimeZone};
use keylapse::{Lapse, Listener, Outcome, Schedule, Topic, When, shutdown_signal};
use redis::{AsyncCommands, aio::MultiplexedConnection as Redis};

use crate::stage::World;

/// Returns the topic: one timer for each user. The payload is the day of the last visit.
pub fn streaks() -> keylapse::Result<Topic<Date>> {
    Topic::new("check_in:lapses:{user}")
}

/// Returns the key of the year's bitmap, and the bit of a day: 0 to 365 in a leap year.
fn bit(user: &str, day: Date) -> (String, usize) {
    (format!("check_in:days:{user}:{}", day.year()), day.day_of_year().unsigned_abs() as usize - 1)
}

/// Returns the key with the length of the streak that ends on this day.
fn streak(user: &str, day: Date) -> String {
    format!("check_in:streak:{user}:{day}")
}

/// Returns the time at which a streak lapses: the end of the next day, in the user's time zone.
pub fn lapses(day: Date, zone: &TimeZone) -> anyhow::Result<When> {
    let midnight = day.tomorrow()?.tomorrow()?.to_zoned(zone.clone())?;
    Ok(When::At(midnight.timestamp().into()))
}

/// Records a visit. Returns the length of the streak: yesterday's plus one, also after several visits in one day.
/// `OVERFLOW SAT` keeps a streak at 255 days instead of wrapping around to 0.
pub async fn check_in(
    redis: &mut Redis,
    schedule: &Schedule,
    user: &str,
    day: Date,
    lapses: When,
) -> anyhow::Result<u8> {
    let ((days, offset), today) = (bit(user, day), streak(user, day));
    let mut visit = redis::pipe();
    visit.atomic().setbit(days, offset, true).ignore();
    visit.del(&today).ignore().cmd("COPY").arg(streak(user, day.yesterday()?)).arg(&today).ignore();
    visit.cmd("BITFIELD").arg(&today).arg(&["OVERFLOW", "SAT", "INCRBY", "u8", "#0", "1"]);
    visit.expire(&today, 3 * 86_400).ignore();
    let ([length],): ([u8; 1],) = visit.query_async(redis).await?;
    let _replaced = schedule.arm(&streaks()?, user, lapses, &day).await?;
    Ok(length)
}

/// Counts the days with a visit from `first` to `last`, both in one year. `BIT` requires Redis 7.0.
pub async fn visits(redis: &mut Redis, user: &str, first: Date, last: Date) -> anyhow::Result<u32> {
    let ((days, from), (_, to)) = (bit(user, first), bit(user, last));
    Ok(redis::cmd("BITCOUNT").arg(days).arg(from).arg(to).arg("BIT").query_async(redis).await?)
}

/// Ends a streak, unless the bitmap has a visit on the next day.
pub async fn end(lapse: Lapse<Date>, (mut redis, world): (Redis, World)) -> anyhow::Result<Outcome> {
    let (user, last) = (lapse.capture("user").context("the key has no user")?, *lapse.payload());
    let (days, next) = bit(user, last.tomorrow()?);
    if redis.getbit(days, next).await? {
        return Ok(Outcome::Drop);
    }
    world.act(user, &lapse.id()).await?; // "your streak has ended"
    redis.del::<_, ()>(streak(user, last)).await?;
    Ok(Outcome::Done)
}

/// Ends streaks when they lapse, until SIGTERM or Ctrl-C.
pub async fn watch(url: &str, world: World) -> anyhow::Result<()> {
    let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let listener = Listener::builder(url).state((redis, world)).on(streaks()?, end).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
