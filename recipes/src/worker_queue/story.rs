//! Two movers at a time, no mover for a while, and a worker that dies.

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

/// A mover moves due jobs from a sorted set to a list.
pub const RECIPE: Recipe = Recipe {
    name: "worker_queue",
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

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns how far back a mover reads: the first argument, in milliseconds, or the default.
fn window(part: &Part) -> Result<Duration> {
    part.words.first().map_or(Ok(by_hand::WINDOW), |ms| Ok(Duration::from_millis(ms.parse()?)))
}

async fn story(stage: Stage) -> Result<Tale> {
    let (two, away, killed) =
        tokio::try_join!(two_movers(&stage), nobody_moves(&stage), worker_killed(&stage))?;
    Ok(Tale { scenes: vec![two, away, killed] })
}

/// Delays orders on both sides, numbered from `first`.
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
    let title = "Two movers run, as on two machines, and many orders fall due within 2 s.";
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
    // Two movers conflict only if they wake at the same time. Usually they do in the first round.
    let mut given = 0;
    while given < 6 * round {
        let soon = SystemTime::now() + Duration::from_millis(500);
        let orders = (0..round).map(|_| soon + Duration::from_millis(chance.random_range(0..2000)));
        delay(&scene, given, orders).await?;
        given += round;
        scene.with_keylapse.until_done(TIMEOUT).await?;
        until_moved(&scene).await?;
        // The workers still run the jobs that were pushed last.
        if !scene.by_hand.until_done(Duration::from_secs(1)).await? {
            break;
        }
    }
    let results = scene.told()?;
    let (lost, latest) = (results.by_hand.lost, in_words(results.with_keylapse.latest()));
    Ok(results
        .saying(
            format!("each mover removed a part, and then neither pushed: {lost} of {given} orders are in neither the set nor the list."),
            format!("each order went to one listener; the consumer received the latest {latest} after its deadline."),
        )
        .claiming("two movers that remove a part each lose these orders", lost > 0))
}

/// Waits until both the sorted set and the list are empty.
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
    tokio::time::timeout(TIMEOUT, moved).await.context("the movers did not move all orders in time")?
}

async fn nobody_moves(stage: &Stage) -> Result<Told> {
    let window = stage.pick(by_hand::WINDOW, Duration::from_secs(2));
    let title =
        format!("No mover runs for {} after three orders fell due. Then one is started.", in_words(window));
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let _workers = [scene.by_hand.start_as("worker", &[])?, scene.with_keylapse.start_as("consumer", &[])?];
    let due = SystemTime::now() + Duration::from_millis(500);
    delay(&scene, 0, [due; 3]).await?;
    let back = due + window + Duration::from_millis(1);
    tokio::time::sleep(back.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let ms = window.as_millis().to_string();
    let _movers = [scene.by_hand.start_as("by_hand", &[&ms])?, scene.with_keylapse.start()?];
    scene.with_keylapse.until_done(TIMEOUT).await?;
    scene.until_clients(1, |client| client.contains(" cmd=zrangebyscore ")).await?;
    let left: usize = scene.redis().await.zcard(by_hand::DELAYED).await?;
    let results = scene.told()?;
    let (lost, latest) = (results.by_hand.lost, in_words(results.with_keylapse.latest()));
    Ok(results
        .saying(
            format!(
                "the mover reads the last {} only: {left} orders stay in the sorted set.",
                in_words(window)
            ),
            format!("all three orders were moved after the start, {latest} late."),
        )
        .claiming(
            "orders are never moved if no mover runs for longer than its window",
            lost == 3 && left == 3,
        ))
}

async fn worker_killed(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(300));
    let scene = stage
        .scene(
            "The mover uses Lua. A worker is killed while it works on an order, and another is started.",
            &jobs,
        )
        .await?;
    let _movers = [scene.by_hand.start_as("by_hand_in_lua", &[])?, scene.with_keylapse.start()?];
    let workers = [scene.by_hand.start_as("worker", &[])?, scene.with_keylapse.start_as("consumer", &[])?];
    delay(&scene, 0, [SystemTime::now() + Duration::from_millis(500); 3]).await?;
    let kill = async |side: &Side, worker: Actor, program: &str| {
        side.until(TIMEOUT, |ledger| !ledger.is_empty()).await?;
        worker.kill().await?;
        side.start_as(program, &[])
    };
    let [hand, ours] = workers;
    let _successors =
        tokio::try_join!(kill(&scene.by_hand, hand, "worker"), kill(&scene.with_keylapse, ours, "consumer"))?;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    let done = |ledger: &[_]| ledger.iter().filter(|entry: &&Entry| entry.event == Event::Done).count();
    scene.by_hand.until(TIMEOUT, |ledger| done(ledger) == 2).await?;
    let results = scene.told()?;
    let (lost, doubled) = (results.by_hand.lost, results.with_keylapse.doubled);
    Ok(results
        .saying(
            format!("BLPOP had removed the order from the list: {lost} of 3 was never done."),
            format!(
                "the order was in the consumer's own list; {doubled} ran a second time, under the same ID."
            ),
        )
        .claiming("a killed worker loses the order that it popped", lost > 0))
}
