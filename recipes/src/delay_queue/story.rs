//! Ten messages in three scenes: due at the same time, with failing handlers, and with an interrupt.

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
    name: "delay_queue",
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
const LIMIT: Duration = Duration::from_secs(20);

async fn story(stage: Stage) -> Result<Tale> {
    let (together, failing, interrupted) =
        tokio::try_join!(due_together(&stage), some_fail(&stage), interrupted_at_work(&stage))?;
    Ok(Tale { scenes: vec![together, failing, interrupted] })
}

/// Sends ten messages on both sides. The first is due after `delay`, each other one `apart` later.
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

async fn due_together(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(400));
    let title = format!("{MESSAGES} messages are due at the same time; each takes 400 ms.");
    let scene = stage.scene(&title, &jobs).await?;
    let _actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    send(&scene, stage.pick(Duration::from_secs(5), Duration::from_secs(2)), Duration::ZERO).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until_done(LIMIT).await?;
    let outcome = scene.told()?;
    let [hand, ours] = [&outcome.by_hand, &outcome.with_keylapse].map(|account| in_words(account.latest()));
    // Each thread handles five messages, so four handlers run before the last one.
    let late = outcome.by_hand.latest() >= Duration::from_millis(1600);
    Ok(outcome
        .saying(
            format!("two threads handled them one after the other: the last began {hand} late."),
            format!("all ran at the same time; the last began {ours} late."),
        )
        .claiming("with two polling threads, messages wait for each other and for the poll", late))
}

async fn some_fail(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::default().failing("3", 1).failing("6", 1);
    let scene = stage.scene("The handlers of two of ten messages fail once each.", &jobs).await?;
    let _actors = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    send(&scene, Duration::from_secs(1), Duration::from_millis(10)).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    // A thread that still polls would have polled twice in this second.
    scene.by_hand.until_ended("6", LIMIT).await?;
    scene.by_hand.until_done(Duration::from_secs(1)).await?;
    let outcome = scene.told()?;
    let lost = outcome.by_hand.lost;
    Ok(outcome
        .saying(
            format!("each failure ended its thread, and none was left: {lost} of {MESSAGES} messages were never handled."),
            "both were retried a second later; the other messages were not affected.",
        )
        .claiming("a handler that fails ends the loop of its thread", lost > 2))
}

async fn interrupted_at_work(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(700));
    let title = format!(
        "{MESSAGES} messages are due one after the other; the process receives SIGTERM while it handles some, and a second \
         process continues."
    );
    let scene = stage.scene(&title, &jobs).await?;
    let [hand, ours] = [scene.by_hand.start()?, scene.with_keylapse.start()?];
    // In the long form, the last message is due 5 s after it was sent.
    let apart = stage.pick(Duration::from_millis(500), Duration::from_millis(200));
    send(&scene, apart, apart).await?;
    let interrupt = async |side: &Side, actor: Actor| {
        side.until(LIMIT, |ledger| ledger.len() > 6 && ledger.last().is_some_and(began)).await?;
        let successor = side.start()?;
        let asked = SystemTime::now();
        actor.interrupt().await?;
        anyhow::Ok((successor, asked))
    };
    let ((_hand, _), (_ours, asked)) =
        tokio::try_join!(interrupt(&scene.by_hand, hand), interrupt(&scene.with_keylapse, ours))?;
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until_ended(&format!("{}", MESSAGES - 1), LIMIT).await?;
    scene.by_hand.until_done(Duration::from_secs(1)).await?;
    let outcome = scene.told()?;
    let (lost, again) = (outcome.by_hand.lost, outcome.with_keylapse.doubled);
    Ok(outcome
        .saying(
            format!("the messages that the threads had taken were lost: {lost} of {MESSAGES} were never handled."),
            format!(
                "messages unfinished after the grace period of 200 ms were released: {again}. The other listener ran them, \
                 under the same ID, {} after the signal.",
                in_words(resumed(&scene.with_keylapse, asked)?)
            ),
        )
        .claiming("an interrupt loses the messages that were taken", lost > 0))
}

fn began(entry: &Entry) -> bool {
    entry.event == Event::Began
}

/// Returns how long after the signal the last of the repeated jobs began again.
fn resumed(side: &Side, asked: SystemTime) -> Result<Duration> {
    let ledger = side.entries()?;
    let before = |job: &str| ledger.iter().any(|entry| began(entry) && entry.job == job && entry.at < asked);
    let again = ledger.iter().filter(|entry| began(entry) && entry.at > asked && before(&entry.job));
    Ok(again.map(|entry| entry.at).max().unwrap_or(asked).duration_since(asked)?)
}
