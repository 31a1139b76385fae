//! Who came on which day, by both, and the streaks of those who come no more.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use jiff::civil::{Date, date};
use keylapse::{Schedule, When};

use crate::stage::{Jobs, Stage, Tale, Told};
use crate::{Recipe, files};

/// A bitmap of the days on which somebody came, and streaks.
pub const RECIPE: Recipe = Recipe {
    name: "check_in",
    about: "a bit for each day, and a streak that nobody ends",
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

/// The same visits for both: they agree on what the bits say.
async fn bits(stage: &Stage) -> Result<Told> {
    let scene = stage.scene("Somebody comes on the 5th and the 20th of May.", &Jobs::default()).await?;
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
    ensure!(hand == ours, "two bytes and a mask say {hand}, BITCOUNT with BIT says {ours}");
    Ok(scene.told()?.saying(
        format!(
            "days 3, 5, 10, 20, 30 read {rewards:?}; two bytes and a mask say {hand} in the first ten days."
        ),
        format!("BITCOUNT with BIT says {ours} in the first ten days."),
    ))
}

async fn streaks(stage: &Stage) -> Result<Told> {
    let title = "Six users come on three days. Three of them stop, while no program runs.";
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
    let told = scene.told()?;
    let ended = told.with_keylapse.given - told.with_keylapse.lost;
    Ok(told
        .saying(
            format!("those who left have streaks of {kept:?} days, and will for ever."),
            format!("{ended} streaks were ended when a program was back, and the others go on."),
        )
        .claiming("nobody ends a streak that lapses", kept.iter().all(|streak| *streak == 3)))
}
