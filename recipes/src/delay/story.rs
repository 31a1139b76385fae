//! Ten messages: all at once, with handlers that fail, and with an interrupt.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::Result;
use keylapse::Schedule;

use crate::stage::ledger::{Entry, Event};
use crate::stage::{Actor, Jobs, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A delaying queue that threads poll.
pub const RECIPE: Recipe = Recipe {
    name: "delay",
    about: "a delaying queue, polled by two threads",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| Box::pin(by_hand::receive(part.url, part.world))),
        ("with_keylapse", |part| {
            Box::pin(async move { Ok(with_keylapse::receive(&part.url, part.world).await?) })
        }),
    ],
    files: files!(),
};

const MESSAGES: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(20);

async fn story(stage: Stage) -> Result<Tale> {
    let (crowd, failing, interrupted) =
        tokio::try_join!(all_at_once(&stage), some_fail(&stage), interrupted_at_work(&stage))?;
    Ok(Tale { scenes: vec![crowd, failing, interrupted] })
}

/// Sends ten messages on both sides: the first is due after `delay`, each of the others so much later.
async fn send(scene: &Scene, delay: Duration, apart: Duration) -> Result<()> {
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    let first = SystemTime::now() + delay;
    for number in 0..MESSAGES {
        let (message, due) = (format!("{number}"), first + apart * number);
        by_hand::send(&mut redis, &message, due).await?;
        scene.by_hand.given(&message, due);
        with_keylapse::send(&schedule, &message, due, "hello").await?;
        scene.with_keylapse.given(&message, due);
    }
    Ok(())
}

async fn all_at_once(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(400));
    let title = format!("{MESSAGES} messages fall due together; each takes 400 ms.");
    let scene = stage.scene(&title, &jobs).await?;
    let _actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    send(&scene, stage.pick(Duration::from_secs(5), Duration::from_secs(2)), Duration::ZERO).await?;
    scene.with_keylapse.until_done(PATIENCE).await?;
    scene.by_hand.until_done(PATIENCE).await?;
    let told = scene.told()?;
    let [hand, ours] = [&told.by_hand, &told.with_keylapse].map(|account| in_words(account.latest()));
    // Five turns of each thread, so four handlers before the last.
    let late = told.by_hand.latest() >= Duration::from_millis(1600);
    Ok(told
        .saying(
            format!(
                "two threads, which sleep half a second when nothing is due: the last began {hand} late."
            ),
            format!("all ran side by side; the latest began {ours} late."),
        )
        .claiming("two threads that poll: messages wait for each other, and for the poll", late))
}

async fn some_fail(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::default().failing("3", 1).failing("6", 1);
    let scene =
        stage.scene("The handlers of two of ten messages fail, once each (they throw).", &jobs).await?;
    let _actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    send(&scene, Duration::from_secs(1), Duration::from_millis(10)).await?;
    scene.with_keylapse.until_done(PATIENCE).await?;
    // Whoever still polled would have looked twice by then.
    scene.by_hand.until_ended("6", PATIENCE).await?;
    scene.by_hand.until_done(Duration::from_secs(1)).await?;
    let told = scene.told()?;
    let lost = told.by_hand.lost;
    Ok(told
        .saying(
            format!("each failure ended the loop of its thread; with the second nobody was left: {lost} of {MESSAGES} were never handled."),
            "both came again a second later; the others did not notice.",
        )
        .claiming("a handler that throws ends the loop of its thread", lost > 2))
}

async fn interrupted_at_work(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(700));
    let title = format!(
        "{MESSAGES} messages, one after the other; the process is asked to stop while it handles some, and another goes on."
    );
    let scene = stage.scene(&title, &jobs).await?;
    let [hand, ours] = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    // The last is due 5 s after it was sent.
    let apart = stage.pick(Duration::from_millis(500), Duration::from_millis(200));
    send(&scene, apart, apart).await?;
    let interrupt = async |side: &Side, actor: Actor| {
        side.until(PATIENCE, |ledger| ledger.len() > 6 && ledger.last().is_some_and(began)).await?;
        let successor = side.start()?;
        let asked = SystemTime::now();
        actor.interrupt().await?;
        anyhow::Ok((successor, asked))
    };
    let ((_hand, _), (_ours, asked)) =
        tokio::try_join!(interrupt(&scene.by_hand, hand), interrupt(&scene.with_keylapse, ours))?;
    scene.with_keylapse.until_done(PATIENCE).await?;
    scene.by_hand.until_ended(&format!("{}", MESSAGES - 1), PATIENCE).await?;
    scene.by_hand.until_done(Duration::from_secs(1)).await?;
    let told = scene.told()?;
    let (lost, again) = (told.by_hand.lost, told.with_keylapse.doubled);
    Ok(told
        .saying(
            format!("what the threads had taken was gone with them. Never handled: {lost} of {MESSAGES}."),
            format!(
                "what had not ended within the grace time of 200 ms, {again} in all, was handed back: the other listener \
                 ran it, under the same id, {} after the signal.",
                in_words(resumed(&scene.with_keylapse, asked)?)
            ),
        )
        .claiming("an interrupt drops what was taken", lost > 0))
}

fn began(entry: &Entry) -> bool {
    entry.event == Event::Began
}

/// How long after the signal the last job that had to begin once more did so.
fn resumed(side: &Side, asked: SystemTime) -> Result<Duration> {
    let ledger = side.entries()?;
    let before = |job: &str| ledger.iter().any(|entry| began(entry) && entry.job == job && entry.at < asked);
    let again = ledger.iter().filter(|entry| began(entry) && entry.at > asked && before(&entry.job));
    Ok(again.map(|entry| entry.at).max().unwrap_or(asked).duration_since(asked)?)
}
