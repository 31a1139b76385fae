//! Notices of payments, with no subscriber for a while, with two subscribers, and among many other keys.

pub mod by_hand;
pub mod merchant;
pub mod webhook;
pub mod with_keylapse;

use std::ops::Range;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use keylapse::{Backoff, Schedule};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use self::merchant::Merchant;
use self::webhook::{Secret, Sender};
use crate::stage::{Jobs, Part, Scene, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// A timer is a key that expires, and a subscriber receives the event.
pub const RECIPE: Recipe = Recipe {
    name: "notice",
    about: "keys that expire, and a subscriber to the events",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("by_hand", |part| {
            Box::pin(async move { by_hand::listen(database(&part.url), sender()?, backoff(&part)?).await })
        }),
        ("with_keylapse", |part| {
            Box::pin(async move {
                Ok(with_keylapse::listen(&part.url, sender()?, Backoff::table(backoff(&part)?)).await?)
            })
        }),
    ],
    files: files!("webhook.rs", "merchant.rs"),
};

const TIMEOUT: Duration = Duration::from_secs(20);
const SECRET: &str = "whsec_QSBzZWNyZXQgZm9yIHRoZSBzdG9yeSBhbG9uZQ==";
/// The delays before the retries, in milliseconds. The first delays of payment notices are 15 s.
const BACKOFF_MS: [&str; 3] = ["300", "300", "600"];
const OTHERS: usize = 100_000;

fn sender() -> Result<Sender> {
    Sender::new(Secret::new(SECRET)?)
}

fn backoff(part: &Part) -> Result<Vec<Duration>> {
    part.words.iter().map(|ms| Ok(Duration::from_millis(ms.parse()?))).collect()
}

/// Returns the URL of the database by hand. Both sides use the same names of keys, so each has its own database.
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

    /// Announces payments on both sides, all due at the same time.
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

    /// Waits until `count` subscribers receive events by hand.
    async fn until_subscribed(&self, count: usize) -> Result<()> {
        let database = format!(" db={} ", by_hand::DATABASE);
        let subscribed = |client: &str| client.contains(&database) && client.contains(" sub=1 ");
        self.scene.until_clients(count, subscribed).await
    }
}

async fn subscriber_is_away(stage: &Stage) -> Result<Told> {
    let away = Duration::from_secs(2);
    let title = format!("No process sends notices for {}, and five fall due in that time.", in_words(away));
    let mut shop = Shop::new(stage, &title, &Jobs::default().failing("0", 1)).await?;
    let [by_hand, with_keylapse] = [&shop.scene.by_hand, &shop.scene.with_keylapse];
    let actors =
        [by_hand.start_as("by_hand", &BACKOFF_MS)?, with_keylapse.start_as("with_keylapse", &BACKOFF_MS)?];
    shop.until_subscribed(1).await?;
    shop.announce(0..2, SystemTime::now() + Duration::from_millis(200)).await?;
    let scene = &shop.scene;
    ensure!(scene.by_hand.until_done(TIMEOUT).await?, "by hand, the first two notices were not sent");
    ensure!(
        scene.with_keylapse.until_done(TIMEOUT).await?,
        "with keylapse, the first two notices were not sent"
    );
    for actor in actors {
        actor.kill().await?;
    }
    let left = SystemTime::now();
    shop.announce(2..7, left + Duration::from_millis(300)).await?;
    tokio::time::sleep(away.saturating_sub(left.elapsed()?)).await;
    // EXISTS deletes a key that has expired. Redis then publishes its event, if it has not done so before.
    let keys: Vec<_> = (2..7).map(|order: usize| by_hand::key(&order.to_string())).collect();
    let there: usize = shop.redis.exists(keys).await?;
    ensure!(there == 0, "some of the keys have not expired");
    let scene = &shop.scene;
    let _actors = [
        scene.by_hand.start_as("by_hand", &BACKOFF_MS)?,
        scene.with_keylapse.start_as("with_keylapse", &BACKOFF_MS)?,
    ];
    shop.until_subscribed(1).await?;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    let results = scene.told()?;
    let (lost, latest) = (results.by_hand.lost, in_words(results.with_keylapse.latest()));
    Ok(results
        .saying(
            format!("no process received the events, and Redis does not repeat them: {lost} notices are never sent."),
            format!("all notices were sent after the restart, the latest {latest} late."),
        )
        .claiming("events are lost while no subscriber runs", lost == 5))
}

async fn two_subscribers(stage: &Stage) -> Result<Told> {
    let count = stage.pick(10, 5);
    let title = format!(
        "Two processes send notices, as on two machines. {count} fall due, and merchants answer in 300 ms."
    );
    let mut shop = Shop::new(stage, &title, &Jobs::taking(Duration::from_millis(300))).await?;
    let scene = &shop.scene;
    let _actors = [
        [scene.by_hand.start_as("by_hand", &BACKOFF_MS)?, scene.by_hand.start_as("by_hand", &BACKOFF_MS)?],
        [
            scene.with_keylapse.start_as("with_keylapse", &BACKOFF_MS)?,
            scene.with_keylapse.start_as("with_keylapse", &BACKOFF_MS)?,
        ],
    ];
    shop.until_subscribed(2).await?;
    shop.announce(0..count, SystemTime::now() + Duration::from_millis(500)).await?;
    let scene = &shop.scene;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    scene.by_hand.until_done(TIMEOUT).await?;
    // Each attempt writes two lines: it began, and it ended.
    scene.by_hand.until(Duration::from_secs(1), |ledger| ledger.len() == 4 * count).await?;
    let results = scene.told()?;
    let doubled = results.by_hand.doubled;
    let words = [
        format!(
            "both receive every event: {doubled} of {count} notices were sent twice. The merchants book by ID, so they booked {}.",
            shop.by_hand.booked()
        ),
        format!(
            "each notice goes to one of them: {} were sent twice, and {} were booked.",
            results.with_keylapse.doubled,
            shop.with_keylapse.booked()
        ),
    ];
    let [by_hand, with_keylapse] = words;
    Ok(results.saying(by_hand, with_keylapse).claiming("two subscribers send notices twice", doubled > 0))
}

async fn many_other_keys(stage: &Stage) -> Result<Told> {
    let (count, limit) = (100, stage.pick(Duration::from_secs(12), Duration::from_secs(4)));
    let title = format!("{count} notices fall due. {OTHERS} other keys have a TTL of an hour.");
    let mut shop = Shop::new(stage, &title, &Jobs::default()).await?;
    for database in [0, by_hand::DATABASE] {
        fill(&shop.scene, database).await?;
    }
    let scene = &shop.scene;
    let _actors = [
        scene.by_hand.start_as("by_hand", &BACKOFF_MS)?,
        scene.with_keylapse.start_as("with_keylapse", &BACKOFF_MS)?,
    ];
    shop.until_subscribed(1).await?;
    let due = SystemTime::now() + Duration::from_secs(1);
    shop.announce(0..count, due).await?;
    let scene = &shop.scene;
    scene.with_keylapse.until_done(TIMEOUT).await?;
    let end = due + limit;
    tokio::time::sleep(end.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let results = scene.told_while_by_hand_waits()?;
    let (overdue, latest) = (results.by_hand.overdue, in_words(results.with_keylapse.latest()));
    Ok(results
        .saying(
            format!(
                "the server finds expired keys by sampling: {} after their deadline, {overdue} of {count} notices were not sent.",
                in_words(limit)
            ),
            format!("the deadlines are in a sorted set, apart from other keys: the latest notice was sent {latest} late."),
        )
        .claiming("100,000 other keys delay most events by seconds or more", overdue > count / 2))
}

/// Adds the other keys to a database.
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
