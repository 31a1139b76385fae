//! A worker that is killed, mails of low priority that starve, and a mail of an unknown kind.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use by_hand::{LISTS, Task, Terms};
use keylapse::{Done, Lapse, Listener, Priority, Schedule, Topic, shutdown_signal};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use with_keylapse::Mail;

use crate::stage::ledger::{Entry, Event};
use crate::stage::{Actor, Jobs, Scene, Side, Stage, Tale, Told, World};
use crate::{Recipe, files};

/// Callbacks by name, in three lists with priorities.
pub const RECIPE: Recipe = Recipe {
    name: "priority_queue",
    about: "callbacks by name, in lists high, medium and low",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("strict", |part| {
            Box::pin(by_hand::work(part.url, part.world, Terms { shuffled: false, callbacks: TODAY }))
        }),
        ("shuffled", |part| {
            Box::pin(by_hand::work(part.url, part.world, Terms { shuffled: true, callbacks: TODAY }))
        }),
        ("newer", |part| {
            Box::pin(by_hand::work(part.url, part.world, Terms { shuffled: true, callbacks: TOMORROW }))
        }),
        ("with_keylapse", |part| {
            Box::pin(async move { Ok(with_keylapse::work(&part.url, part.world).await?) })
        }),
        ("newer_with_keylapse", |part| {
            Box::pin(async move { Ok(work_tomorrow(&part.url, part.world).await?) })
        }),
    ],
    files: files!(),
};

const LIMIT: Duration = Duration::from_secs(20);
const TODAY: &[&str] = &["password", "receipt", "news"];
const TOMORROW: &[&str] = &["password", "receipt", "news", "birthday"];

/// A kind of mail that only the newer program supports.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum NewMail {
    Birthday { to: String },
}

fn new_mails() -> keylapse::Result<Topic<NewMail>> {
    Topic::new("mail:normal:{id}")
}

async fn congratulate(lapse: Lapse<NewMail>, world: World) -> Result<Done> {
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    Ok(Done)
}

async fn work_tomorrow(url: &str, world: World) -> keylapse::Result<()> {
    let listener = Listener::builder(url).state(world).on(new_mails()?, congratulate);
    listener.build()?.run_until(shutdown_signal()).await
}

async fn story(stage: Stage) -> Result<Tale> {
    let (killed, starved, unknown) = tokio::try_join!(killed(&stage), starved(&stage), unknown(&stage))?;
    Ok(Tale { scenes: vec![killed, starved, unknown] })
}

/// Returns a mail of this priority: its callback and list by hand, and its payload with keylapse.
fn mail(priority: Priority) -> (&'static str, &'static str, Mail) {
    let to = "ann@example.com".to_owned();
    match priority {
        Priority::High => ("password", LISTS[0], Mail::Password { to }),
        Priority::Low => ("news", LISTS[2], Mail::News { to }),
        _ => ("receipt", LISTS[1], Mail::Receipt { to, cents: 1999 }),
    }
}

/// Sends mails on both sides.
struct Sender<'a> {
    scene: &'a Scene,
    redis: MultiplexedConnection,
    schedule: Schedule,
}

impl<'a> Sender<'a> {
    async fn new(scene: &'a Scene) -> Result<Self> {
        Ok(Self { scene, redis: scene.redis().await, schedule: Schedule::connect(scene.server.url()).await? })
    }

    /// Sends a mail that is delivered immediately, or at `later`.
    async fn send(&mut self, id: &str, priority: Priority, later: Option<SystemTime>) -> Result<()> {
        let (callback, list, mail) = mail(priority);
        let task = Task { callback: callback.to_owned(), id: id.to_owned(), list: list.to_owned() };
        let due = later.unwrap_or_else(SystemTime::now);
        match later {
            Some(due) => by_hand::send_later(&mut self.redis, &task, due).await?,
            None => by_hand::send(&mut self.redis, &task).await?,
        }
        with_keylapse::send(&self.schedule, id, &mail, due).await?;
        self.given(id, due);
        Ok(())
    }

    /// Sends a mail of the new kind.
    async fn send_new(&mut self, id: &str) -> Result<()> {
        let (to, due) = ("ann@example.com".to_owned(), SystemTime::now());
        let task = Task { callback: "birthday".to_owned(), id: id.to_owned(), list: LISTS[1].to_owned() };
        by_hand::send(&mut self.redis, &task).await?;
        let armed = self.schedule.arm(&new_mails()?, id, due, &NewMail::Birthday { to }).await?;
        ensure!(armed.is_armed(), "{armed:?}");
        self.given(id, due);
        Ok(())
    }

    fn given(&self, id: &str, due: SystemTime) {
        self.scene.by_hand.given(id, due);
        self.scene.with_keylapse.given(id, due);
    }
}

async fn killed(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(300));
    let title = "The process is killed while it sends a delayed mail; a second process is started.";
    let scene = stage.scene(title, &jobs).await?;
    let [hand, ours] = [scene.by_hand.start_as("shuffled", &[])?, scene.with_keylapse.start()?];
    let mut sender = Sender::new(&scene).await?;
    sender.send("1", Priority::Normal, Some(SystemTime::now() + Duration::from_millis(500))).await?;
    let kill = async |side: &Side, actor: Actor| {
        side.until_began("1", LIMIT).await?;
        actor.kill().await
    };
    tokio::try_join!(kill(&scene.by_hand, hand), kill(&scene.with_keylapse, ours))?;
    let _successors = [scene.by_hand.start_as("shuffled", &[])?, scene.with_keylapse.start()?];
    sender.send("2", Priority::Normal, None).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until(LIMIT, |ledger| has_ended(ledger, "2")).await?;
    let outcome = scene.told()?;
    let (lost, doubled) = (outcome.by_hand.lost, outcome.with_keylapse.doubled);
    Ok(outcome
        .saying(
            format!("the mail was in no list: {lost} of 2 mails was lost."),
            format!(
                "the lease ended, and the second process sent the mail; {doubled} ran a second time, under the same ID."
            ),
        )
        .claiming("a kill loses the mail", lost > 0))
}

fn has_ended(ledger: &[Entry], job: &str) -> bool {
    ledger.iter().any(|entry| entry.job == job && entry.event == Event::Done)
}

async fn starved(stage: &Stage) -> Result<Told> {
    let count = stage.pick(60, 20);
    let title = format!("{count} mails of each priority are due; by hand, the lists have a strict order.");
    let scene = stage.scene(&title, &Jobs::taking(Duration::from_millis(20))).await?;
    let mut sender = Sender::new(&scene).await?;
    for (prefix, priority) in [("n", Priority::Low), ("r", Priority::Normal), ("p", Priority::High)] {
        for number in 0..count {
            sender.send(&format!("{prefix}{number}"), priority, None).await?;
        }
    }
    let _actors = [scene.by_hand.start_as("strict", &[])?, scene.with_keylapse.start()?];
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until_done(LIMIT).await?;
    let [hand, ours] = [&scene.by_hand, &scene.with_keylapse].map(low_while_others_wait);
    let (hand, ours) = (hand?, ours?);
    Ok(scene
        .told()?
        .saying(
            format!("{hand} of {count} newsletters were sent while ten or more other mails waited."),
            format!("{ours} of {count} newsletters were sent while ten or more other mails waited."),
        )
        .claiming("a strict order starves mails of low priority", hand == 0 && ours > 0))
}

/// Counts the mails of low priority that began before the tenth last of the others.
fn low_while_others_wait(side: &Side) -> Result<usize> {
    let began = side.entries()?.into_iter().filter(|entry| entry.event == Event::Began);
    let is_low: Vec<_> = began.map(|entry| entry.job.starts_with('n')).collect();
    let others: Vec<_> = (0..is_low.len()).filter(|index| !is_low[*index]).collect();
    let until = others.iter().rev().nth(9).copied().unwrap_or_default();
    Ok(is_low[..until].iter().filter(|is_low| **is_low).count())
}

async fn unknown(stage: &Stage) -> Result<Told> {
    let title = "A mail has a kind that only the next version supports; that version is started later.";
    let scene = stage.scene(title, &Jobs::default()).await?;
    let [hand, ours] = [scene.by_hand.start_as("shuffled", &[])?, scene.with_keylapse.start()?];
    let mut sender = Sender::new(&scene).await?;
    sender.send_new("1").await?;
    // Mail 2 was sent later: when it is done, mail 1 has been taken.
    sender.send("2", Priority::Normal, None).await?;
    for side in [&scene.by_hand, &scene.with_keylapse] {
        ensure!(side.until(LIMIT, |ledger| has_ended(ledger, "2")).await?, "mail 2 was not sent");
    }
    let left: usize = scene.redis().await.llen(LISTS[1]).await?;
    hand.kill().await?;
    ours.leave().await?;

    let _successors =
        [scene.by_hand.start_as("newer", &[])?, scene.with_keylapse.start_as("newer_with_keylapse", &[])?];
    ensure!(scene.with_keylapse.until_done(LIMIT).await?, "the new version did not send mail 1");
    let outcome = scene.told()?;
    let lost = outcome.by_hand.lost;
    Ok(outcome
        .saying(
            format!("the worker logged the unknown name: {lost} of 2 mails was lost, and {left} was left in its list."),
            "the mail was retried until the new version sent it.",
        )
        .claiming("a mail with an unknown name is logged and lost", lost == 1 && left == 0))
}
