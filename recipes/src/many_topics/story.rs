//! Messages that wait for ticks, and a topic that is removed while a message is added to it.

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

/// Many kinds of delay, each with a topic.
pub const RECIPE: Recipe = Recipe {
    name: "many_topics",
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
/// The delay of an order that the story places immediately.
const SOON: Duration = Duration::from_millis(100);

/// Parses the terms that the story passes to a process.
fn terms(part: &Part) -> Result<by_hand::Terms> {
    let [tick_ms, batch] = &part.words[..] else {
        bail!("expected two words: the tick in ms, and the batch")
    };
    Ok(by_hand::Terms { tick: Duration::from_millis(tick_ms.parse()?), batch: batch.parse()? })
}

/// Returns the tick, which is also the time to pay: 5 s, or 1 s in the short form.
fn tick(stage: &Stage) -> Duration {
    Duration::from_secs(stage.pick(5, 1))
}

fn words(stage: &Stage, batch: usize) -> [String; 2] {
    [tick(stage).as_millis().to_string(), batch.to_string()]
}

async fn story(stage: Stage) -> Result<Tale> {
    let (one, hundred, removed) =
        tokio::try_join!(one_at_a_tick(&stage), a_hundred_at_a_tick(&stage), removed_while_added_to(&stage))?;
    Ok(Tale { scenes: vec![one, hundred, removed] })
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
    let title = format!(
        "{count} orders are due at the same time; one order of a topic is moved every {}.",
        in_words(tick)
    );
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let [tick_ms, batch] = words(stage, 1);
    let _actors = [scene.by_hand.start_as("by_hand", &[&tick_ms, &batch])?, scene.with_keylapse.start()?];
    let due = SystemTime::now() + tick;
    place(&scene, &(0..count).map(|order| (order.to_string(), due)).collect::<Vec<_>>()).await?;
    let limit = tick * (count + 4);
    scene.with_keylapse.until_done(limit).await?;
    scene.by_hand.until_done(limit).await?;
    let outcome = scene.told()?;
    let [hand, ours] = [&outcome.by_hand, &outcome.with_keylapse].map(|account| account.latest());
    Ok(outcome
        .saying(
            format!("one order was moved per tick: the last was closed {} late.", in_words(hand)),
            format!("all orders were closed at their deadline, the latest {} late.", in_words(ours)),
        )
        .claiming(
            "one message per tick and topic: each message waits for all before it",
            hand + SOON > tick * (count - 1),
        ))
}

async fn a_hundred_at_a_tick(stage: &Stage) -> Result<Told> {
    let (tick, count) = (tick(stage), stage.pick(150, 50));
    let title =
        format!("{count} orders are due one after the other; up to 100 are moved every {}.", in_words(tick));
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let [tick_ms, batch] = words(stage, 100);
    let _actors = [scene.by_hand.start_as("by_hand", &[&tick_ms, &batch])?, scene.with_keylapse.start()?];
    // Red packets, due tomorrow, show that waiting messages of another topic cause no delay.
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
    let outcome = scene.told()?;
    let [hand, ours] = [&outcome.by_hand, &outcome.with_keylapse].map(|account| account.late(0.99));
    Ok(outcome
        .saying(
            format!("99 of 100 orders waited for the tick, and were closed within {}.", in_words(hand)),
            format!("99 of 100 orders were closed within {}.", in_words(ours)),
        )
        .claiming("messages are late by up to a tick", hand > tick / 2))
}

/// Adds an order after the distributor has read that the topic is empty, and before it removes the topic. A proxy
/// delays replies to the distributor, so that the order is added in time.
async fn removed_while_added_to(stage: &Stage) -> Result<Told> {
    let title = "An order is added while its empty topic is removed from the set.";
    let scene = stage.scene(title, &Jobs::default()).await?;
    let _ours = scene.with_keylapse.start()?;
    let (schedule, topic) = (Schedule::connect(scene.server.url()).await?, with_keylapse::orders()?);
    let is_served = async || schedule.serving(&topic).await.is_ok_and(|listeners| !listeners.is_empty());
    eventually(LIMIT, "a listener", is_served).await;
    place(&scene, &[("1".to_owned(), SystemTime::now() + SOON)]).await?;
    scene.with_keylapse.until_began("1", LIMIT).await?;

    let proxy = Proxy::before(&scene.server).await;
    let sent = |command: &str| proxy.requests().get(command).copied().unwrap_or_default();
    proxy.delay(Direction::Replies, Duration::from_millis(300));
    let [tick_ms, batch] = words(stage, 100);
    let _hand = scene.by_hand.start_behind(&proxy.url(), "by_hand", &[&tick_ms, &batch])?;
    eventually(LIMIT, "a ZCARD of the distributor", async || sent("ZCARD") == 1).await;
    proxy.stall(Direction::Replies);
    place(&scene, &[("2".to_owned(), SystemTime::now() + SOON)]).await?;
    proxy.heal().await;
    let ticks = sent("SMEMBERS");
    eventually(tick(stage) * 6, "two more ticks", async || sent("SMEMBERS") > ticks + 1).await;
    scene.with_keylapse.until_done(LIMIT).await?;

    let mut redis = scene.redis().await;
    let is_registered: bool = redis.sismember(by_hand::TOPICS, "order").await?;
    let stuck: usize = redis.zcard(by_hand::waiting("order")).await?;
    let outcome = scene.told()?;
    let lost = outcome.by_hand.lost;
    Ok(outcome
        .saying(
            format!("{stuck} order waits in a removed topic until another order is added."),
            "an empty topic is not removed, so both orders were closed.",
        )
        .claiming(
            "a message is stuck if its topic is removed while it is added",
            !is_registered && stuck == 1 && lost == 1,
        ))
}
