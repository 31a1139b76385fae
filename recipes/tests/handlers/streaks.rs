use std::time::Duration;

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use keylapse::{Listener, Schedule, When};
use keylapse_support::{Server, eventually};
use recipes::stage::ledger::Event;
use recipes::streaks::{by_hand, with_keylapse};
use redis::aio::MultiplexedConnection;
use with_keylapse::{check_in, end, lapses, streaks, visits};

use crate::handlers::support::Notes;

const FAR: When = When::In(Duration::from_secs(3600));

async fn stage() -> (Server, MultiplexedConnection, Schedule) {
    let server = Server::start().await;
    let schedule = Schedule::connect(server.url()).await.expect("a schedule");
    let redis = server.conn().await;
    (server, redis, schedule)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streak_grows_by_one_a_day_over_leap_days_and_new_year() -> anyhow::Result<()> {
    let (_server, mut redis, schedule) = stage().await;
    for first in [date(2028, 2, 27), date(2026, 12, 30), date(2027, 2, 27)] {
        let user = first.to_string();
        for (length, day) in (1..).zip(first.series(1.day()).take(4)) {
            for _ in 0..2 {
                assert_eq!(check_in(&mut redis, &schedule, &user, day, FAR).await?, length, "{day}");
            }
        }
        let after_a_gap = first + 6.days();
        assert_eq!(check_in(&mut redis, &schedule, &user, after_a_gap, FAR).await?, 1);
    }
    let leap = date(2028, 2, 29);
    assert_eq!(visits(&mut redis, "2028-02-27", leap, leap).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streak_stays_at_255_days() -> anyhow::Result<()> {
    let (_server, mut redis, schedule) = stage().await;
    let mut longest = 0;
    for day in date(2026, 1, 1).series(1.day()).take(260) {
        longest = check_in(&mut redis, &schedule, "ada", day, FAR).await?;
    }
    assert_eq!(longest, 255);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_count_equal_visits_in_the_first_ten_days() -> anyhow::Result<()> {
    let (_server, mut redis, schedule) = stage().await;
    for (user, days) in
        [("none", &[][..]), ("all", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), ("edges", &[1, 7, 8, 10, 11, 15, 31])]
    {
        for day in days {
            by_hand::check_in(&mut redis, user, "2026-01", usize::try_from(*day)?).await?;
            let _length = check_in(&mut redis, &schedule, user, date(2026, 1, *day), FAR).await?;
        }
        let expected = u32::try_from(days.iter().filter(|day| **day <= 10).count())?;
        assert_eq!(by_hand::first_ten(&mut redis, user, "2026-01").await?, expected, "{user}");
        assert_eq!(visits(&mut redis, user, date(2026, 1, 1), date(2026, 1, 10)).await?, expected, "{user}");
    }
    Ok(())
}

#[test]
fn a_streak_lapses_at_midnight_of_the_users_zone_also_when_clocks_change() {
    let midnights = [
        (date(2026, 3, 28), "Europe/Berlin", "2026-03-29T22:00:00Z"),
        (date(2026, 3, 27), "Europe/Berlin", "2026-03-28T23:00:00Z"),
        (date(2028, 2, 28), "UTC", "2028-03-01T00:00:00Z"),
        // This day has no midnight: the clocks go from 23:59 to 01:00.
        (date(2026, 4, 22), "Africa/Cairo", "2026-04-23T22:00:00Z"),
    ];
    for (day, zone, expected) in midnights {
        let zone = TimeZone::get(zone).expect("a zone");
        let expected: Timestamp = expected.parse().expect("a time");
        assert_eq!(lapses(day, &zone).expect("a time"), When::At(expected.into()), "{day}");
    }
    assert!(lapses(Date::MAX, &TimeZone::UTC).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streak_ends_without_a_visit_and_not_after_one() -> anyhow::Result<()> {
    let (server, mut redis, schedule) = stage().await;
    let notes = Notes::new();
    let now = When::In(Duration::ZERO);
    check_in(&mut redis, &schedule, "leaves", date(2026, 5, 1), now).await?;
    check_in(&mut redis, &schedule, "stays", date(2026, 5, 1), now).await?;
    // The second visit is in the bitmap, but its program died before it replaced the timer.
    let _: i64 =
        redis::cmd("SETBIT").arg("check_in:days:stays:2026").arg(121).arg(1).query_async(&mut redis).await?;
    let state = (redis.clone(), notes.world(&[]));
    let listener = Listener::builder(server.url()).state(state).on(streaks()?, end).build()?;
    let both_have_ended = async || {
        let mut timers = [true; 2];
        for (timer, user) in timers.iter_mut().zip(["leaves", "stays"]) {
            *timer = schedule.look_up(&streaks().expect("a topic"), user).await.expect("an answer").is_some();
        }
        timers == [false; 2]
    };
    listener.run_until(eventually(Duration::from_secs(20), "both timers to end", both_have_ended)).await?;
    assert_eq!(notes.jobs(Event::Done), ["leaves"]);
    Ok(())
}
