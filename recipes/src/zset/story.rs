//! Twenty orders at once, and a process that dies between taking an order and closing it.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::Result;
use keylapse::Schedule;
use rand::RngExt;

use crate::stage::{Actor, Jobs, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A sorted set that is looked at every second.
pub const RECIPE: Recipe = Recipe {
    name: "zset",
    about: "a sorted set, looked at every second",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| Box::pin(by_hand::watch(part.url, part.world))),
        ("with_keylapse", |part| {
            Box::pin(async move { Ok(with_keylapse::watch(&part.url, part.world).await?) })
        }),
    ],
    files: files!(),
};

async fn story(stage: Stage) -> Result<Tale> {
    let (crowd, killed) = tokio::try_join!(many_at_once(&stage), killed_after_taking(&stage))?;
    Ok(Tale { scenes: vec![crowd, killed] })
}

/// Places orders on both sides.
async fn place(scene: &Scene, orders: impl IntoIterator<Item = (String, SystemTime)>) -> Result<()> {
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    for (order, due) in orders {
        by_hand::place(&mut redis, &order, due).await?;
        scene.by_hand.given(&order, due);
        with_keylapse::place(&schedule, &order, due).await?;
        scene.with_keylapse.given(&order, due);
    }
    Ok(())
}

async fn many_at_once(stage: &Stage) -> Result<Told> {
    let count = stage.pick(20, 5);
    let title = format!("{count} orders fall due in the same second.");
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let _actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    let mut chance = stage.chance(&title);
    let first = SystemTime::now() + Duration::from_secs(1);
    place(
        &scene,
        (0..count)
            .map(|order| (format!("{order}"), first + Duration::from_millis(chance.random_range(0..20)))),
    )
    .await?;
    let limit = Duration::from_secs(count + 10);
    scene.with_keylapse.until_done(limit).await?;
    scene.by_hand.until_done(limit).await?;
    let told = scene.told()?;
    let [hand, ours] = [&told.by_hand, &told.with_keylapse].map(|account| in_words(account.latest()));
    let late = told.by_hand.latest() > Duration::from_secs(count - 2);
    Ok(told
        .saying(
            format!("one order a second, so the last was closed {hand} late."),
            format!("each at its own time; the latest was {ours} late."),
        )
        .claiming("one a second: the last is late by as many seconds as there are orders", late))
}

async fn killed_after_taking(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(300));
    let scene =
        stage.scene("The process is killed while it closes an order, and another is started.", &jobs).await?;
    let actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    let due = SystemTime::now() + Duration::from_millis(500);
    place(&scene, (0..3).map(|order| (format!("{order}"), due))).await?;
    let [hand, ours] = actors;
    let kill = async |side: &Side, actor: Actor| {
        side.until(Duration::from_secs(20), |ledger| !ledger.is_empty()).await?;
        actor.kill().await?;
        side.start()
    };
    let _successors = tokio::try_join!(kill(&scene.by_hand, hand), kill(&scene.with_keylapse, ours))?;
    scene.with_keylapse.until_done(Duration::from_secs(20)).await?;
    // Three ticks for the other two orders.
    scene.by_hand.until_done(Duration::from_secs(5)).await?;
    let told = scene.told()?;
    let (lost, doubled) = (told.by_hand.lost, told.with_keylapse.doubled);
    Ok(told
        .saying(
            format!("ZREM had taken the order out of the set: {lost} of 3 was never closed."),
            format!("the lease ended, and the other process closed all; {doubled} ran a second time, under the same id."),
        )
        .claiming("killed after ZREM: the order is lost", lost > 0))
}
