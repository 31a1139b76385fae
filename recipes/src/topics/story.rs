//! Messages of a topic one tick after the other, and a topic that is dropped as somebody adds to it.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use keylapse::Schedule;
use keylapse_support::{Direction, Proxy, eventually};
use rand::RngExt;
use redis::AsyncCommands;

use crate::stage::{Jobs, Part, Scene, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// Many kinds of delay, each with its topic.
pub const RECIPE: Recipe = Recipe {
    name: "topics",
    about: "a set of topics, distributed at every tick",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| {
            Box::pin(async move { by_hand::serve(part.url.clone(), part.world.clone(), terms(&part)?).await })
        }),
        ("with_keylapse", |part| {
            Box::pin(async move { Ok(with_keylapse::serve(&part.url, part.world).await?) })
        }),
    ],
    files: files!(),
};

const LIMIT: Duration = Duration::from_secs(20);
/// In which an order falls due that is placed now.
const SOON: Duration = Duration::from_millis(100);

/// The terms that the story gives to a process as words.
fn terms(part: &Part) -> Result<by_hand::Terms> {
    let [tick_ms, batch] = &part.words[..] else { bail!("the tick in ms, and the batch") };
    Ok(by_hand::Terms { tick: Duration::from_millis(tick_ms.parse()?), batch: batch.parse()? })
}

/// Each tick is five seconds, and so is the time to pay; in the short form both are one.
fn tick(stage: &Stage) -> Duration {
    Duration::from_secs(stage.pick(5, 1))
}

fn words(stage: &Stage, batch: usize) -> [String; 2] {
    [tick(stage).as_millis().to_string(), batch.to_string()]
}

async fn story(stage: Stage) -> Result<Tale> {
    let (one, hundred, dropped) =
        tokio::try_join!(one_at_a_tick(&stage), a_hundred_at_a_tick(&stage), dropped_while_added_to(&stage))?;
    Ok(Tale { scenes: vec![one, hundred, dropped] })
}

/// Places orders on both sides.
async fn place(scene: &Scene, orders: &[(String, SystemTime)]) -> Result<()> {
    let mut redis = scene.redis().await;
    with_keylapse::place(&Schedule::connect(scene.server.url()).await?, orders).await?;
    for (order, due) in orders {
        by_hand::add(&mut redis, "order", order, *due).await?;
        scene.by_hand.given(order, *due);
        scene.with_keylapse.given(order, *due);
    }
    Ok(())
}

async fn one_at_a_tick(stage: &Stage) -> Result<Told> {
    let (tick, count) = (tick(stage), stage.pick(3, 4));
    let title = format!("{count} orders fall due together; each {} one of a topic is moved.", in_words(tick));
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let [tick_ms, batch] = words(stage, 1);
    let _actors = [scene.by_hand.start_as("by_hand", &[&tick_ms, &batch])?, scene.with_keylapse.start()?];
    let due = SystemTime::now() + tick;
    place(&scene, &(0..count).map(|order| (order.to_string(), due)).collect::<Vec<_>>()).await?;
    let limit = tick * (count + 4);
    scene.with_keylapse.until_done(limit).await?;
    scene.by_hand.until_done(limit).await?;
    let told = scene.told()?;
    let [hand, ours] = [&told.by_hand, &told.with_keylapse].map(|account| account.latest());
    Ok(told
        .saying(
            format!("one a tick, so the last was closed {} late.", in_words(hand)),
            format!("each at its time; the latest was {} late.", in_words(ours)),
        )
        .claiming(
            "one message a tick and topic: late by as many ticks as there are",
            hand + SOON > tick * (count - 1),
        ))
}

async fn a_hundred_at_a_tick(stage: &Stage) -> Result<Told> {
    let (tick, count) = (tick(stage), stage.pick(150, 50));
    let title = format!("{count} orders fall due one by one; each {} a hundred are moved.", in_words(tick));
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let [tick_ms, batch] = words(stage, 100);
    let _actors = [scene.by_hand.start_as("by_hand", &[&tick_ms, &batch])?, scene.with_keylapse.start()?];
    // Red packets, none of which is due before tomorrow, are not in the way.
    let (mut redis, schedule) = (scene.redis().await, Schedule::connect(scene.server.url()).await?);
    for packet in 0..stage.pick(1000, 100) {
        let packet = packet.to_string();
        by_hand::add(&mut redis, "packet", &packet, SystemTime::now() + with_keylapse::UNOPENED).await?;
        with_keylapse::send(&schedule, &packet, 888).await?;
    }
    let mut chance = stage.chance(&title);
    let now = SystemTime::now();
    let orders =
        (0..count).map(|order| (order.to_string(), now + tick.mul_f64(chance.random_range(1.0..2.0))));
    place(&scene, &orders.collect::<Vec<_>>()).await?;
    scene.with_keylapse.until_done(tick * 6).await?;
    scene.by_hand.until_done(tick * 6).await?;
    let told = scene.told()?;
    let [hand, ours] = [&told.by_hand, &told.with_keylapse].map(|account| account.late(0.99));
    Ok(told
        .saying(
            format!("99 of 100 were closed within {}, as they waited for the tick.", in_words(hand)),
            format!("99 of 100 were closed within {}.", in_words(ours)),
        )
        .claiming("late by the tick", hand > tick / 2))
}

/// The distributor has seen that nothing waits any more, and is about to take the topic out of the set. In between
/// somebody adds an order. Its answers come late, so that there is time to.
async fn dropped_while_added_to(stage: &Stage) -> Result<Told> {
    let title = "An order is added while its topic, just emptied, is being taken out of the set.";
    let scene = stage.scene(title, &Jobs::default()).await?;
    let _ours = scene.with_keylapse.start()?;
    let (schedule, topic) = (Schedule::connect(scene.server.url()).await?, with_keylapse::orders()?);
    let is_served = async || schedule.serving(&topic).await.is_ok_and(|listeners| !listeners.is_empty());
    eventually(LIMIT, "a listener", is_served).await;
    place(&scene, &[("1".to_owned(), SystemTime::now() + SOON)]).await?;
    scene.with_keylapse.until_began("1", LIMIT).await?;

    let line = Proxy::before(&scene.server).await;
    let sent = |command: &str| line.requests().get(command).copied().unwrap_or_default();
    line.delay(Direction::Replies, Duration::from_millis(300));
    let [tick_ms, batch] = words(stage, 100);
    let _hand = scene.by_hand.start_behind(&line.url(), "by_hand", &[&tick_ms, &batch])?;
    eventually(LIMIT, "a look whether anything waits", async || sent("ZCARD") == 1).await;
    line.stall(Direction::Replies);
    place(&scene, &[("2".to_owned(), SystemTime::now() + SOON)]).await?;
    line.heal().await;
    let ticks = sent("SMEMBERS");
    eventually(tick(stage) * 6, "two more ticks", async || sent("SMEMBERS") > ticks + 1).await;
    scene.with_keylapse.until_done(LIMIT).await?;

    let mut redis = scene.redis().await;
    let is_known: bool = redis.sismember(by_hand::TOPICS, "order").await?;
    let stuck: usize = redis.zcard(by_hand::waiting("order")).await?;
    let told = scene.told()?;
    let lost = told.by_hand.lost;
    Ok(told
        .saying(
            format!("{stuck} order waits in a topic that nobody looks at, until another is added."),
            "a topic stays known, so both were closed.",
        )
        .claiming(
            "a topic is dropped while somebody adds to it: stuck",
            !is_known && stuck == 1 && lost == 1,
        ))
}
