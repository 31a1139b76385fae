//! Two movers, a mover that is away, a worker that dies.

pub mod by_hand;
mod consumer;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use keylapse::Schedule;
use rand::RngExt;
use redis::AsyncCommands;

use crate::stage::ledger::{Entry, Event};
use crate::stage::{Actor, Jobs, Part, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A sorted set, a list, and a mover between them.
pub const RECIPE: Recipe = Recipe {
    name: "mover",
    about: "a mover from a sorted set to a list",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| {
            Box::pin(async move { by_hand::move_in_three_calls(part.url.clone(), window(&part)?).await })
        }),
        ("by_hand_in_lua", |part| {
            Box::pin(async move { by_hand::move_in_lua(part.url.clone(), window(&part)?).await })
        }),
        ("worker", |part| Box::pin(by_hand::work(part.url, part.world))),
        ("with_keylapse", |part| Box::pin(async move { with_keylapse::run(&part.url).await })),
        ("consumer", |part| Box::pin(consumer::consume(part.url, part.world))),
    ],
    files: files!("consumer.rs", "consumer.py"),
};

const PATIENCE: Duration = Duration::from_secs(20);

/// How far a mover looks back, if the story does not say it.
fn window(part: &Part) -> Result<Duration> {
    part.words.first().map_or(Ok(by_hand::WINDOW), |ms| Ok(Duration::from_millis(ms.parse()?)))
}

async fn story(stage: Stage) -> Result<Tale> {
    let (two, away, killed) =
        tokio::try_join!(two_movers(&stage), nobody_moves(&stage), worker_killed(&stage))?;
    Ok(Tale { scenes: vec![two, away, killed] })
}

/// Puts orders aside on both sides, with numbers from `first` on.
async fn delay(scene: &Scene, first: usize, orders: impl IntoIterator<Item = SystemTime>) -> Result<()> {
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    for (number, due) in (first..).zip(orders) {
        let order = format!("{number}");
        by_hand::delay(&mut redis, &order, due).await?;
        scene.by_hand.given(&order, due);
        with_keylapse::delay(&schedule, &order, due, "hello").await?;
        scene.with_keylapse.given(&order, due);
    }
    Ok(())
}

async fn two_movers(stage: &Stage) -> Result<Told> {
    let title = "Two movers, for two machines; many orders fall due within 2 s.";
    let scene = stage.scene(title, &Jobs::default()).await?;
    let _actors = [
        [scene.by_hand.start()?, scene.by_hand.start()?, scene.by_hand.start_as("worker", &[])?],
        [
            scene.with_keylapse.start()?,
            scene.with_keylapse.start()?,
            scene.with_keylapse.start_as("consumer", &[])?,
        ],
    ];
    scene.until_clients(2, |client| client.contains(" cmd=zrangebyscore ")).await?;
    let (mut chance, round) = (stage.chance(title), stage.pick(300, 150));
    // Mostly the first round shows it. But movers that do not wake together do not meet.
    let mut given = 0;
    while given < 6 * round {
        let soon = SystemTime::now() + Duration::from_millis(500);
        let orders = (0..round).map(|_| soon + Duration::from_millis(chance.random_range(0..2000)));
        delay(&scene, given, orders).await?;
        given += round;
        scene.with_keylapse.until_done(PATIENCE).await?;
        until_moved(&scene).await?;
        // What the movers pushed last.
        if !scene.by_hand.until_done(Duration::from_secs(1)).await? {
            break;
        }
    }
    let told = scene.told()?;
    let (lost, latest) = (told.by_hand.lost, in_words(told.with_keylapse.latest()));
    Ok(told
        .saying(
            format!("each removed a part, and left the pushing to the other: {lost} of {given} are in neither the set nor the list."),
            format!("each order went to one of them; the consumer had the latest {latest} after its time."),
        )
        .claiming("two movers remove a part each and both give up: lost", lost > 0))
}

/// Waits until nothing is in the sorted set, nor in the list.
async fn until_moved(scene: &Scene) -> Result<()> {
    let mut redis = scene.redis().await;
    let moved = async {
        while redis.zcard::<_, usize>(by_hand::DELAYED).await?
            + redis.llen::<_, usize>(by_hand::READY).await?
            > 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, moved).await.context("the movers have not moved all")?
}

async fn nobody_moves(stage: &Stage) -> Result<Told> {
    let window = stage.pick(by_hand::WINDOW, Duration::from_secs(2));
    let title = format!(
        "No mover is there for {} after three orders fell due; then one is started.",
        in_words(window)
    );
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let _workers = [scene.by_hand.start_as("worker", &[])?, scene.with_keylapse.start_as("consumer", &[])?];
    let due = SystemTime::now() + Duration::from_millis(500);
    delay(&scene, 0, [due; 3]).await?;
    let back = due + window + Duration::from_millis(1);
    tokio::time::sleep(back.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let ms = window.as_millis().to_string();
    let _movers = [scene.by_hand.start_as("by_hand", &[&ms])?, scene.with_keylapse.start()?];
    scene.with_keylapse.until_done(PATIENCE).await?;
    scene.until_clients(1, |client| client.contains(" cmd=zrangebyscore ")).await?;
    let left: usize = scene.redis().await.zcard(by_hand::DELAYED).await?;
    let told = scene.told()?;
    let (lost, latest) = (told.by_hand.lost, in_words(told.with_keylapse.latest()));
    Ok(told
        .saying(
            format!(
                "the mover looks back {}: {left} orders stay in the sorted set for ever.",
                in_words(window)
            ),
            format!("all three were moved at once, {latest} late."),
        )
        .claiming("away for longer than it looks back: never moved", lost == 3 && left == 3))
}

async fn worker_killed(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(300));
    let scene = stage
        .scene(
            "The mover moves in Lua; a worker is killed while it works on an order, and another is started.",
            &jobs,
        )
        .await?;
    let _movers = [scene.by_hand.start_as("by_hand_in_lua", &[])?, scene.with_keylapse.start()?];
    let workers = [scene.by_hand.start_as("worker", &[])?, scene.with_keylapse.start_as("consumer", &[])?];
    delay(&scene, 0, [SystemTime::now() + Duration::from_millis(500); 3]).await?;
    let kill = async |side: &Side, worker: Actor, program: &str| {
        side.until(PATIENCE, |ledger| !ledger.is_empty()).await?;
        worker.kill().await?;
        side.start_as(program, &[])
    };
    let [hand, ours] = workers;
    let _successors =
        tokio::try_join!(kill(&scene.by_hand, hand, "worker"), kill(&scene.with_keylapse, ours, "consumer"))?;
    scene.with_keylapse.until_done(PATIENCE).await?;
    let done = |ledger: &[_]| ledger.iter().filter(|entry: &&Entry| entry.event == Event::Done).count();
    scene.by_hand.until(PATIENCE, |ledger| done(ledger) == 2).await?;
    let told = scene.told()?;
    let (lost, doubled) = (told.by_hand.lost, told.with_keylapse.doubled);
    Ok(told
        .saying(
            format!("BLPOP had taken the order out of the list: {lost} of 3 was never worked on."),
            format!("the order was in a list of the consumer's own; {doubled} ran a second time, under the same id."),
        )
        .claiming("moved in Lua: a killed worker loses what it had popped", lost > 0))
}
