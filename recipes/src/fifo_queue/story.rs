//! Mails about sales: a worker dies, connections are closed, a mail fails.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use keylapse::Schedule;

use crate::stage::{Actor, Jobs, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// Producers push to a list, and workers pop from it.
pub const RECIPE: Recipe = Recipe {
    name: "fifo_queue",
    about: "a list: RPUSH, and workers that wait in BLPOP",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| Box::pin(by_hand::work(part.url, part.world))),
        ("with_keylapse", |part| {
            Box::pin(async move { Ok(with_keylapse::work(&part.url, part.world, 1).await?) })
        }),
    ],
    files: files!(),
};

const TIMEOUT: Duration = Duration::from_secs(20);

async fn story(stage: Stage) -> Result<Tale> {
    let (killed, closed, failed) =
        tokio::try_join!(killed_after_popping(&stage), connections_are_closed(&stage), a_mail_fails(&stage))?;
    Ok(Tale { scenes: vec![killed, closed, failed] })
}

/// Queues sales on both sides.
async fn sell(scene: &Scene, sales: std::ops::Range<u32>) -> Result<()> {
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    for sale in sales {
        let job = job(sale);
        scene.by_hand.given(&job, SystemTime::now());
        by_hand::sold(&mut redis, &job, "Anna").await?;
        scene.with_keylapse.given(&job, SystemTime::now());
        with_keylapse::sold(&schedule, &job, "Anna").await?;
    }
    Ok(())
}

fn job(sale: u32) -> String {
    format!("{sale}")
}

async fn killed_after_popping(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(300));
    let scene =
        stage.scene("The worker is killed while it sends a mail, and another is started.", &jobs).await?;
    let [hand, ours] = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    sell(&scene, 0..3).await?;
    let kill = async |side: &Side, actor: Actor| {
        side.until_began(&job(0), TIMEOUT).await?;
        actor.kill().await?;
        side.start()
    };
    let _successors = tokio::try_join!(kill(&scene.by_hand, hand), kill(&scene.with_keylapse, ours))?;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    // The new worker mails the two sales that are left in the list; this is the last of them.
    scene.by_hand.until_ended(&job(2), TIMEOUT).await?;
    let results = scene.told()?;
    let (lost, doubled) = (results.by_hand.lost, results.with_keylapse.doubled);
    Ok(results
        .saying(
            format!("BLPOP had removed the sale from the list: {lost} of 3 sellers never got a mail."),
            format!(
                "all sellers got a mail; {doubled} was sent again when its lease ended, under the same ID."
            ),
        )
        .claiming("a worker that is killed after BLPOP loses the job", lost > 0))
}

async fn connections_are_closed(stage: &Stage) -> Result<Told> {
    let scene = stage
        .scene("The server closes every connection while the workers wait (CLIENT KILL).", &Jobs::default())
        .await?;
    let [mut hand, _ours] = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    sell(&scene, 0..1).await?;
    let both = [scene.by_hand.until_done(TIMEOUT).await?, scene.with_keylapse.until_done(TIMEOUT).await?];
    ensure!(both == [true, true], "the first mail was not sent on both sides");
    scene.until_clients(1, |client| client.contains(" flags=b ") && client.contains(" cmd=blpop ")).await?;
    scene.close_connections().await?;
    let ended = hand.ended(TIMEOUT).await.is_some();
    sell(&scene, 1..4).await?;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    let results = scene.told()?;
    let (undone, latest) = (results.by_hand.lost, in_words(results.with_keylapse.latest()));
    Ok(results
        .saying(
            format!("the loop ended with its connection: the next {undone} sales were still in the list at the end."),
            format!("the listener reconnected by itself; the latest mail was sent {latest} after the sale."),
        )
        .claiming("the loop ends when its connection is closed", ended && undone == 3))
}

async fn a_mail_fails(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::default().failing(&job(0), 1);
    let scene = stage.scene("The mail server refuses one mail, once.", &jobs).await?;
    let _actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    sell(&scene, 0..3).await?;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    scene.by_hand.until_ended(&job(2), TIMEOUT).await?;
    let results = scene.told()?;
    let lost = results.by_hand.lost;
    Ok(results
        .saying(
            format!("the failure was only logged: {lost} of 3 sellers never got a mail."),
            "the mail was sent again a second later; the mails after it did not wait.",
        )
        .claiming("a job that fails is only logged, and lost", lost == 1))
}
