//! Notices of payments: a subscriber that is away, two of them, and many other keys.

pub mod by_hand;
pub mod webhook;
pub mod with_keylapse;

use std::ops::Range;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use keylapse::{Backoff, Schedule};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use self::webhook::{Merchant, Secret, Sender};
use crate::stage::{Jobs, Part, Scene, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// Keys that expire, and who hears of it.
pub const RECIPE: Recipe = Recipe {
    name: "notice",
    about: "keys that expire, and a subscriber to the events",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| {
            Box::pin(async move { by_hand::listen(database(&part.url), sender()?, ladder(&part)?).await })
        }),
        ("with_keylapse", |part| {
            Box::pin(async move {
                Ok(with_keylapse::listen(&part.url, sender()?, Backoff::table(ladder(&part)?)).await?)
            })
        }),
    ],
    files: files!("webhook.rs"),
};

const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "whsec_QSBzZWNyZXQgZm9yIHRoZSBzdG9yeSBhbG9uZQ==";
/// The waits of the story, in milliseconds: the first of a real ladder are 15 s.
const LADDER: [&str; 3] = ["300", "300", "600"];
const OTHERS: usize = 100_000;

fn sender() -> Result<Sender> {
    Sender::new(Secret::new(SECRET)?)
}

fn ladder(part: &Part) -> Result<Vec<Duration>> {
    part.words.iter().map(|ms| Ok(Duration::from_millis(ms.parse()?))).collect()
}

/// Both sides use keys of the same names, so the design by hand has a database of its own.
fn database(url: &str) -> String {
    format!("{url}{}", by_hand::DATABASE)
}

async fn story(stage: Stage) -> Result<Tale> {
    let (away, two, crowd) =
        tokio::try_join!(subscriber_is_away(&stage), two_subscribers(&stage), many_other_keys(&stage))?;
    Ok(Tale { scenes: vec![away, two, crowd] })
}

/// A scene with a merchant on each side.
struct Shop {
    scene: Scene,
    by_hand: Merchant,
    with_keylapse: Merchant,
    redis: MultiplexedConnection,
    schedule: Schedule,
}

impl Shop {
    async fn new(stage: &Stage, title: &str, jobs: &Jobs) -> Result<Self> {
        let (scene, secret) = (stage.scene(title, jobs).await?, Secret::new(SECRET)?);
        let url = scene.server.url();
        Ok(Self {
            by_hand: Merchant::open(secret.clone(), scene.by_hand.world()).await?,
            with_keylapse: Merchant::open(secret, scene.with_keylapse.world()).await?,
            redis: keylapse_support::connect(&database(&url)).await?,
            schedule: Schedule::connect(url).await?,
            scene,
        })
    }

    /// Announces payments on both sides, all for the same time.
    async fn announce(&mut self, orders: Range<usize>, due: SystemTime) -> Result<()> {
        for order in orders.map(|order| order.to_string()) {
            let wait = due.duration_since(SystemTime::now()).unwrap_or_default();
            by_hand::announce(&mut self.redis, &self.by_hand.notice(&order), 1, wait).await?;
            self.scene.by_hand.given(&order, due);
            with_keylapse::announce(&self.schedule, &self.with_keylapse.notice(&order), due).await?;
            self.scene.with_keylapse.given(&order, due);
        }
        Ok(())
    }

    /// Waits until so many subscribers hear events by hand.
    async fn until_subscribed(&self, count: usize) -> Result<()> {
        let database = format!(" db={} ", by_hand::DATABASE);
        let subscribed = |client: &str| client.contains(&database) && client.contains(" sub=1 ");
        self.scene.until_clients(count, subscribed).await
    }
}

async fn subscriber_is_away(stage: &Stage) -> Result<Told> {
    let away = Duration::from_secs(2);
    let title = format!("Whoever sends the notices is away for {}, while five fall due.", in_words(away));
    let mut shop = Shop::new(stage, &title, &Jobs::default().failing("0", 1)).await?;
    let [by_hand, with_keylapse] = [&shop.scene.by_hand, &shop.scene.with_keylapse];
    let actors = [by_hand.start_as("by_hand", &LADDER)?, with_keylapse.start_as("with_keylapse", &LADDER)?];
    shop.until_subscribed(1).await?;
    shop.announce(0..2, SystemTime::now() + Duration::from_millis(200)).await?;
    let scene = &shop.scene;
    ensure!(scene.by_hand.until_done(PATIENCE).await?, "both are told by hand, one at the second attempt");
    ensure!(scene.with_keylapse.until_done(PATIENCE).await?, "and with keylapse");
    for actor in actors {
        actor.kill().await?;
    }
    let left = SystemTime::now();
    shop.announce(2..7, left + Duration::from_millis(300)).await?;
    tokio::time::sleep(away.saturating_sub(left.elapsed()?)).await;
    // Whoever looks at a key that is over has it deleted, and so announced, if that has not happened yet.
    let keys: Vec<_> = (2..7).map(|order: usize| by_hand::key(&order.to_string())).collect();
    let there: usize = shop.redis.exists(keys).await?;
    ensure!(there == 0, "all have expired");
    let scene = &shop.scene;
    let _actors = [
        scene.by_hand.start_as("by_hand", &LADDER)?,
        scene.with_keylapse.start_as("with_keylapse", &LADDER)?,
    ];
    shop.until_subscribed(1).await?;
    scene.with_keylapse.until_done(PATIENCE).await?;
    let told = scene.told()?;
    let (lost, latest) = (told.by_hand.lost, in_words(told.with_keylapse.latest()));
    Ok(told
        .saying(
            format!("nobody heard the events, and they are not repeated: {lost} merchants are never told."),
            format!("all were told when it was back, the latest {latest} late."),
        )
        .claiming("a subscriber that is away: what expires meanwhile is lost", lost == 5))
}

async fn two_subscribers(stage: &Stage) -> Result<Told> {
    let count = stage.pick(10, 5);
    let title = format!(
        "Two processes send notices, for two machines; {count} fall due, and merchants answer in 300 ms."
    );
    let mut shop = Shop::new(stage, &title, &Jobs::taking(Duration::from_millis(300))).await?;
    let scene = &shop.scene;
    let _actors = [
        [scene.by_hand.start_as("by_hand", &LADDER)?, scene.by_hand.start_as("by_hand", &LADDER)?],
        [
            scene.with_keylapse.start_as("with_keylapse", &LADDER)?,
            scene.with_keylapse.start_as("with_keylapse", &LADDER)?,
        ],
    ];
    shop.until_subscribed(2).await?;
    shop.announce(0..count, SystemTime::now() + Duration::from_millis(500)).await?;
    let scene = &shop.scene;
    scene.with_keylapse.until_done(PATIENCE).await?;
    scene.by_hand.until_done(PATIENCE).await?;
    // Two lines for each time that one is told: it began, and it ended.
    scene.by_hand.until(Duration::from_secs(1), |ledger| ledger.len() == 4 * count).await?;
    let told = scene.told()?;
    let doubled = told.by_hand.doubled;
    let words = [
        format!(
            "both hear every event: {doubled} of {count} merchants were told twice. These book by id, and have {} in their books.",
            shop.by_hand.booked()
        ),
        format!(
            "each notice goes to one of them: {} were told twice, and {} are in the books.",
            told.with_keylapse.doubled,
            shop.with_keylapse.booked()
        ),
    ];
    let [by_hand, with_keylapse] = words;
    Ok(told.saying(by_hand, with_keylapse).claiming("two subscribers: notices are sent twice", doubled > 0))
}

async fn many_other_keys(stage: &Stage) -> Result<Told> {
    let (count, limit) = (100, stage.pick(Duration::from_secs(12), Duration::from_secs(4)));
    let title = format!("{count} notices fall due beside {OTHERS} other keys that expire in an hour.");
    let mut shop = Shop::new(stage, &title, &Jobs::default()).await?;
    for database in [0, by_hand::DATABASE] {
        fill(&shop.scene, database).await?;
    }
    let scene = &shop.scene;
    let _actors = [
        scene.by_hand.start_as("by_hand", &LADDER)?,
        scene.with_keylapse.start_as("with_keylapse", &LADDER)?,
    ];
    shop.until_subscribed(1).await?;
    let due = SystemTime::now() + Duration::from_secs(1);
    shop.announce(0..count, due).await?;
    let scene = &shop.scene;
    scene.with_keylapse.until_done(PATIENCE).await?;
    let end = due + limit;
    tokio::time::sleep(end.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let told = scene.told_while_by_hand_waits()?;
    let (overdue, latest) = (told.by_hand.overdue, in_words(told.with_keylapse.latest()));
    Ok(told
        .saying(
            format!(
                "the server finds expired keys by looking at some now and then: {} later it had not announced {overdue} of {count}.",
                in_words(limit)
            ),
            format!("the deadlines are in a sorted set, whatever else expires: the latest was sent {latest} late."),
        )
        .claiming("100,000 other keys: events come late, by minutes if the story were as long", overdue > count / 2))
}

/// Puts the other keys into a database.
async fn fill(scene: &Scene, database: i64) -> Result<()> {
    let url = format!("{}{database}", scene.server.url());
    let mut redis = keylapse_support::connect(&url).await?;
    const CHUNK: usize = 1000;
    for chunk in (0..OTHERS).step_by(CHUNK) {
        let mut pipeline = redis::pipe();
        for number in chunk..chunk + CHUNK {
            pipeline.set_ex(format!("cache:{number}"), "a page", 3600).ignore();
        }
        pipeline.query_async::<()>(&mut redis).await?;
    }
    Ok(())
}
