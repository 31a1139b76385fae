//! Jobs that take time, a program that does not run for some days, and a night in which the clocks change.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use jiff::{Timestamp, Zoned, civil, tz::TimeZone};

use self::by_hand::CountedFrom;
use self::with_keylapse::Plan;
use crate::stage::ledger::{Entry, Event};
use crate::stage::{Jobs, Part, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A program that sleeps for a day.
pub const RECIPE: Recipe = Recipe {
    name: "cron",
    about: "every day at two, by a program that sleeps for a day",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("from_job_end", |part| Box::pin(by_hand::every(DAY, CountedFrom::JobEnd, part.url, part.world))),
        ("from_planned_time", |part| {
            Box::pin(by_hand::every(DAY, CountedFrom::PlannedTime, part.url, part.world))
        }),
        ("with_keylapse", |part| Box::pin(every_second(part))),
    ],
    files: files!(),
};

/// The length of a day in this story.
const DAY: Duration = Duration::from_secs(1);
const WORK: Duration = Duration::from_millis(200);
/// The most time that a step may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(15);

async fn every_second(part: Part) -> Result<()> {
    with_keylapse::follow(Plan::new("* * * * * *", "UTC", Duration::MAX)?, &part.url, part.world).await
}

async fn story(stage: Stage) -> Result<Tale> {
    let (drift, outage) = tokio::try_join!(drift(&stage), outage(&stage))?;
    Ok(Tale { scenes: vec![drift, outage, clock_change()?] })
}

/// Sets the first run of both sides: a whole second, as the cron expression requires.
async fn begin(scene: &Scene) -> Result<u64> {
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 2;
    by_hand::begin(&mut scene.redis().await, at(first)).await?;
    Ok(first)
}

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

async fn drift(stage: &Stage) -> Result<Told> {
    let days = stage.pick(8, 4);
    let title = format!("{days} days of one second each; the job takes {}.", in_words(WORK));
    let scene = stage.scene(&title, &Jobs::taking(WORK)).await?;
    let first = begin(&scene).await?;
    let actors = [scene.by_hand.start_as("from_job_end", &[])?, scene.with_keylapse.start()?];
    for (run, second) in (1..=days).zip(first..) {
        scene.by_hand.given(&run.to_string(), at(second));
        scene.with_keylapse.given(&second.to_string(), at(second));
    }
    scene.by_hand.until_done(LIMIT * 2).await?;
    scene.with_keylapse.until_done(LIMIT * 2).await?;
    drop(actors);
    let outcome = scene.told()?;
    let [hand, ours] = [&outcome.by_hand, &outcome.with_keylapse].map(|account| account.latest());
    let days = u32::try_from(days)?;
    Ok(outcome
        .saying(
            format!(
                "the next day was counted from the end of the job: the last run was {} late.",
                in_words(hand)
            ),
            format!(
                "the next time was calculated from the schedule: the latest run was {} late.",
                in_words(ours)
            ),
        )
        .claiming(
            "each run is later than the previous one by the duration of the job",
            hand >= WORK * (days - 1),
        ))
}

async fn outage(stage: &Stage) -> Result<Told> {
    let away = stage.pick(5, 3);
    let title = format!("The program is killed after its first run, and does not run for {away} days.");
    let scene = stage.scene(&title, &Jobs::taking(WORK / 20)).await?;
    let first = begin(&scene).await?;
    let back = at(first + away) + DAY / 2;
    for (run, second) in (1..=away + 1).zip(first..) {
        scene.by_hand.given(&run.to_string(), at(second));
    }
    let missed = |run: &Entry| run.job != "1" && run.job.parse().is_ok_and(|run: u64| run <= away + 1);
    let hand = absence(&scene.by_hand, "from_planned_time", back, |run| run.job == (away + 1).to_string());
    let ours = absence(&scene.with_keylapse, "with_keylapse", back, |run| planned(run) > back);
    let (hand, ours) = tokio::try_join!(hand, ours)?;
    for run in &ours {
        scene.with_keylapse.given(&run.job, planned(run));
    }
    let missed_runs: Vec<_> = hand.iter().filter(|run| missed(run)).map(|run| run.at).collect();
    let span = missed_runs
        .last()
        .zip(missed_runs.first())
        .map_or(Duration::MAX, |(last, first)| last.duration_since(*first).unwrap_or_default());
    let made_up = ours.iter().filter(|run| planned(run) < back).count() - 1;
    Ok(scene
        .told()?
        .saying(
            format!(
                "{} runs followed each other within {} after the restart.",
                missed_runs.len(),
                in_words(span)
            ),
            format!("{made_up} missed run followed after the restart, and then the schedule continued."),
        )
        .claiming("missed runs accumulate, and then run in a burst", missed_runs.len() > 1 && span < DAY))
}

/// Returns the planned time of a run with keylapse, which is the name of its job.
fn planned(run: &Entry) -> SystemTime {
    at(run.job.parse().unwrap_or_default())
}

/// Kills a program after its first run, and starts it again at `back`. Returns its finished runs after the run that
/// `last` selects is done.
async fn absence(
    side: &Side,
    program: &str,
    back: SystemTime,
    last: impl Fn(&Entry) -> bool,
) -> Result<Vec<Entry>> {
    let actor = side.start_as(program, &[])?;
    let is_done = |entry: &Entry| entry.event == Event::Done;
    let made = side.until(LIMIT, |ledger| ledger.iter().any(is_done)).await?;
    made.then_some(()).context("the program did not finish its first run")?;
    actor.kill().await?;
    tokio::time::sleep(back.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let _again = side.start_as(program, &[])?;
    side.until(LIMIT, |ledger| ledger.iter().any(|entry| is_done(entry) && last(entry))).await?;
    Ok(side.entries()?.into_iter().filter(is_done).collect())
}

fn clock_change() -> Result<Told> {
    let zone = TimeZone::get("Europe/Berlin")?;
    let night = civil::date(2026, 3, 28).at(2, 0, 0, 0).to_zoned(zone.clone())?;
    let plan = Plan::new("0 2 * * *", "Europe/Berlin", Duration::MAX)?;
    let nights = |next: &dyn Fn(SystemTime) -> Result<SystemTime>| -> Result<Vec<Zoned>> {
        let nights = (0..3).scan(SystemTime::from(night.timestamp()), |last, _| {
            let time = next(*last);
            *last = *time.as_ref().ok()?;
            Some(time)
        });
        nights.map(|time| Ok(Timestamp::try_from(time?)?.to_zoned(zone.clone()))).collect()
    };
    let hand = nights(&|last| Ok(last + Duration::from_secs(24 * 60 * 60)))?;
    let ours = nights(&|last| plan.next(last))?;
    let in_words = |nights: &[Zoned]| {
        nights.iter().map(|night| night.strftime("%-d %B %H:%M").to_string()).collect::<Vec<_>>().join(", ")
    };
    Ok(Told::without_jobs("The clocks in Berlin go forward in the night to 29 March 2026.")
        .saying(
            format!("each run was 24 hours after the previous one: {}.", in_words(&hand)),
            format!("each run followed the calendar: {}.", in_words(&ours)),
        )
        .claiming(
            "after a clock change the job runs at another hour",
            hand.iter().all(|night| night.hour() == 3),
        ))
}
