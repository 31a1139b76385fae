//! A delayed queue whose client is killed, and one whose taker is killed.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::Result;
use keylapse::Schedule;
use keylapse_support::eventually;
use redis::AsyncCommands;

use crate::stage::{Actor, Jobs, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A queue with delays, whose clients move due values.
pub const RECIPE: Recipe = Recipe {
    name: "redisson",
    about: "a delayed queue whose clients move due values",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("client", |part| Box::pin(by_hand::keep_time(part.url))),
        ("taker", |part| Box::pin(by_hand::take(part.url, part.world))),
        ("with_keylapse", |part| {
            Box::pin(async move { Ok(with_keylapse::listen(&part.url, part.world).await?) })
        }),
    ],
    files: files!(),
};

const LIMIT: Duration = Duration::from_secs(20);

async fn story(stage: Stage) -> Result<Tale> {
    let (gone, killed) = tokio::try_join!(no_client_runs(&stage), killed_after_taking(&stage))?;
    Ok(Tale { scenes: vec![gone, killed] })
}

/// Starts a card on both sides. Returns its first deadline.
async fn learn(scene: &Scene, card: &str, interval: Duration) -> Result<SystemTime> {
    let due = SystemTime::now() + interval;
    by_hand::learn(&mut scene.redis().await, card, interval).await?;
    with_keylapse::learn(&Schedule::connect(scene.server.url()).await?, card, interval).await?;
    given(scene, &format!("{card}.1"), due);
    Ok(due)
}

fn given(scene: &Scene, job: &str, due: SystemTime) {
    scene.by_hand.given(job, due);
    scene.with_keylapse.given(job, due);
}

async fn no_client_runs(stage: &Stage) -> Result<Told> {
    // The intervals of the recipe are 10 s and 60 s. The story divides them by 5 or 20.
    let first = with_keylapse::FIRST / stage.pick(5, 20);
    let (away, title) =
        (first * 2, "The client with the timer is killed and started again later; the taker still runs.");
    let scene = stage.scene(title, &Jobs::default()).await?;
    let _staying = [scene.by_hand.start_as("taker", &[])?, scene.with_keylapse.start()?];
    let client = scene.by_hand.start_as("client", &[])?;
    eventually(LIMIT, "the client", async || has_subscriber(&scene).await.unwrap_or_default()).await;
    let due = learn(&scene, "soon", first).await?;
    learn(&scene, "later", first * 6).await?;
    client.kill().await?;

    let back = due + away;
    tokio::time::sleep(back.duration_since(SystemTime::now())?).await;
    let offered: usize = scene.redis().await.zcard(by_hand::OFFERED).await?;
    let _client = scene.by_hand.start_as("client", &[])?;
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until_done(LIMIT).await?;
    let outcome = scene.told()?;
    let [hand, ours] = [&outcome.by_hand, &outcome.with_keylapse].map(|account| account.latest());
    Ok(outcome
        .saying(
            format!("no client moved due cards in that time: a card was {} late.", in_words(hand)),
            format!("each listener also finds due timers: the latest card was {} late.", in_words(ours)),
        )
        .claiming("without a client, no due value is moved", offered == 2 && hand >= away))
}

async fn has_subscriber(scene: &Scene) -> Result<bool> {
    let mut numsub = redis::cmd("PUBSUB");
    numsub.arg("NUMSUB").arg(by_hand::CHANGES);
    let (_, count): (String, usize) = numsub.query_async(&mut scene.redis().await).await?;
    Ok(count > 0)
}

async fn killed_after_taking(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(300));
    let title = "The taker is killed while it asks a card; a second taker is started.";
    let scene = stage.scene(title, &jobs).await?;
    let _client = scene.by_hand.start_as("client", &[])?;
    let actors = [scene.by_hand.start_as("taker", &[])?, scene.with_keylapse.start()?];
    let first = Duration::from_millis(200);
    let due = learn(&scene, "card", first).await?;
    // The earliest time of the second round: it is due six intervals after the first one has ended.
    given(&scene, "card.2", due + first * 6);

    let [hand, ours] = actors;
    let kill = async |side: &Side, actor: Actor| {
        side.until_began("card.1", LIMIT).await?;
        actor.kill().await
    };
    tokio::try_join!(kill(&scene.by_hand, hand), kill(&scene.with_keylapse, ours))?;
    let _successors = [scene.by_hand.start_as("taker", &[])?, scene.with_keylapse.start()?];
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until_done(Duration::from_secs(1)).await?;
    let outcome = scene.told()?;
    let (lost, doubled) = (outcome.by_hand.lost, outcome.with_keylapse.doubled);
    Ok(outcome
        .saying(
            format!("the card was in no queue: {lost} of 2 rounds were lost, and all later ones."),
            format!(
                "the lease ended, and the second process asked the card; {doubled} ran a second time, under the same ID."
            ),
        )
        .claiming("a kill after taking loses the card", lost > 0))
}
