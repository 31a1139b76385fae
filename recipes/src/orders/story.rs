//! Twenty orders in one second, and a process that dies between removing an order and closing it.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::Result;
use keylapse::Schedule;
use rand::RngExt;

use crate::stage::{Actor, Jobs, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A sorted set that a program reads every second.
pub const RECIPE: Recipe = Recipe {
    name: "orders",
    about: "a sorted set that is read every second",
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
    let results = scene.told()?;
    let [hand, ours] = [&results.by_hand, &results.with_keylapse].map(|account| in_words(account.latest()));
    let late = results.by_hand.latest() > Duration::from_secs(count - 2);
    Ok(results
        .saying(
            format!("the program closes one order a second: the last was closed {hand} late."),
            format!("each order was closed at its deadline; the latest was {ours} late."),
        )
        .claiming("each order in the same second adds one second of delay", late))
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
    // The other two orders take a tick each.
    scene.by_hand.until_done(Duration::from_secs(5)).await?;
    let results = scene.told()?;
    let (lost, doubled) = (results.by_hand.lost, results.with_keylapse.doubled);
    Ok(results
        .saying(
            format!("ZREM had removed the order from the set: {lost} of 3 was never closed."),
            format!("the leases ended, and the new process closed all orders; {doubled} ran a second time, under the same ID."),
        )
        .claiming("a process that is killed after ZREM loses the order", lost > 0))
}
