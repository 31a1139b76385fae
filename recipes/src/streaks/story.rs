//! Visits that both sides count, and the streaks of users who stop coming.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use jiff::civil::{Date, date};
use keylapse::{Schedule, When};

use crate::stage::{Jobs, Stage, Tale, Told};
use crate::{Recipe, files};

/// A bitmap of the days with a visit, and streaks.
pub const RECIPE: Recipe = Recipe {
    name: "streaks",
    about: "a bit for each day, and a streak that is never ended",
    story: |stage| Box::pin(story(stage)),
    programs: &[("with_keylapse", |part| {
        Box::pin(async move { with_keylapse::watch(&part.url, part.world).await })
    })],
    files: files!(),
};

const MONTH: &str = "2026-05";
const FIRST: Date = date(2026, 5, 1);

async fn story(stage: Stage) -> Result<Tale> {
    let (bits, streaks) = tokio::try_join!(bits(&stage), streaks(&stage))?;
    Ok(Tale { scenes: vec![bits, streaks] })
}

/// Records two visits on both sides, and checks that both count one of them in the first ten days.
async fn bits(stage: &Stage) -> Result<Told> {
    let scene = stage.scene("A user comes on the 5th and the 20th of May.", &Jobs::default()).await?;
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    for day in [5, 20] {
        by_hand::check_in(&mut redis, "ada", MONTH, usize::try_from(day)?).await?;
        let far = When::In(Duration::from_secs(3600));
        with_keylapse::check_in(&mut redis, &schedule, "ada", date(2026, 5, day), far).await?;
    }
    let rewards = by_hand::rewards(&mut redis, "ada", MONTH).await?.map(u8::from);
    ensure!(rewards == [0, 1, 0, 1, 0], "the bits are {rewards:?}");
    let hand = by_hand::first_ten(&mut redis, "ada", MONTH).await?;
    let ours = with_keylapse::visits(&mut redis, "ada", FIRST, date(2026, 5, 10)).await?;
    ensure!(hand == ours, "two bytes and a mask count {hand} visits, BITCOUNT with BIT counts {ours}");
    Ok(scene.told()?.saying(
        format!(
            "days 3, 5, 10, 20, 30 read {rewards:?}; two bytes and a mask count {hand} visit in the first ten days."
        ),
        format!("BITCOUNT with BIT counts {ours} visit in the first ten days."),
    ))
}

async fn streaks(stage: &Stage) -> Result<Told> {
    let title = "Six users come on three days; three of them stop while no program runs.";
    let scene = stage.scene(title, &Jobs::default()).await?;
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    let users: Vec<_> = (0..6).map(|user| format!("user-{user}")).collect();
    let (leave, stay) = users.split_at(3);
    for user in &users {
        let lapses = SystemTime::now() + Duration::from_secs(2);
        for day in 1..=3 {
            by_hand::check_in(&mut redis, user, MONTH, usize::try_from(day)?).await?;
            with_keylapse::check_in(&mut redis, &schedule, user, date(2026, 5, day), lapses.into()).await?;
        }
        if leave.contains(user) {
            scene.by_hand.given(user, lapses);
            scene.with_keylapse.given(user, lapses);
        }
    }
    for user in stay {
        by_hand::check_in(&mut redis, user, MONTH, 4).await?;
        let far = When::In(Duration::from_secs(3600));
        with_keylapse::check_in(&mut redis, &schedule, user, date(2026, 5, 4), far).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let _listener = scene.with_keylapse.start()?;
    scene.with_keylapse.until_done(Duration::from_secs(20)).await?;
    let mut kept = Vec::new();
    for user in leave {
        kept.push(by_hand::streak(&mut redis, user).await?);
    }
    let outcome = scene.told()?;
    let ended = outcome.with_keylapse.given - outcome.with_keylapse.lost;
    Ok(outcome
        .saying(
            format!("the users who stopped keep streaks of {kept:?} days forever."),
            format!("{ended} streaks were ended when the program was started; the others continue."),
        )
        .claiming("a streak that lapses is never ended", kept.iter().all(|streak| *streak == 3)))
}
