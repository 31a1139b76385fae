//! A lock that another program holds: for a while, or until the story deletes it. Processes are killed or
//! paused in the meantime.

pub mod by_hand;
pub mod with_keylapse;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use by_hand::{Answer, DEFERRALS};
use keylapse::Schedule;
use keylapse::dead_letters::{DeadReason, Replayed};
use keylapse::timers::TimerPhase;
use keylapse_support::{Proxy, Then, command, eventually};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult, Value, cmd};

use crate::stage::ledger::{Entry, Event};
use crate::stage::{Actor, Jobs, Part, Scene, Side, Stage, Tale, Told, in_words};
use crate::{Recipe, files};

/// Jobs that need a lock, which may be taken.
pub const RECIPE: Recipe = Recipe {
    name: "held_lock",
    about: "a lock that is taken: fail, sleep, or try again later",
    story: |stage| Box::pin(story(stage)),
    programs: &[
        ("throw", |part| answering(part, Answer::Throw)),
        ("sleep", |part| answering(part, Answer::Sleep)),
        ("defer", |part| answering(part, Answer::Defer)),
        ("with_keylapse", |part| Box::pin(async move { with_keylapse::work(&part.url, part.world).await })),
    ],
    files: files!(),
};

const LIMIT: Duration = Duration::from_secs(20);

fn answering(part: Part, answer: Answer) -> futures::future::BoxFuture<'static, Result<()>> {
    Box::pin(by_hand::work(part.url, part.world, answer))
}

async fn story(stage: Stage) -> Result<Tale> {
    let (held, failed, unreleased, killed, paused) = tokio::try_join!(
        others_wait(&stage),
        worker_fails(&stage),
        never_released(&stage),
        killed_before_it_is_put_back(&stage),
        paused_past_its_lock(&stage),
    )?;
    Ok(Tale { scenes: vec![held, failed, unreleased, killed, paused] })
}

/// Requests a statement on both sides.
async fn ask(scene: &Scene, account: &str, id: &str, due: SystemTime) -> Result<()> {
    by_hand::ask(&mut scene.redis().await, account, id, due).await?;
    scene.by_hand.given(id, due);
    let schedule = Schedule::connect(scene.server.url()).await?;
    with_keylapse::ask(&schedule, account, id, due).await?;
    scene.with_keylapse.given(id, due);
    Ok(())
}

const LOCKS: [&str; 2] = ["hand:lock:gold", "lock:gold"];

/// Takes the lock of the account `gold` on both sides, as another program.
async fn take_gold(redis: &mut MultiplexedConnection, held: Duration) -> Result<()> {
    let ms = u64::try_from(held.as_millis())?;
    for lock in LOCKS {
        redis.pset_ex::<_, _, ()>(lock, "another program", ms).await?;
    }
    Ok(())
}

async fn others_wait(stage: &Stage) -> Result<Told> {
    let held = stage.pick(Duration::from_secs(2), Duration::from_millis(1200));
    let title = format!(
        "Another program holds a lock for {}; ten jobs of other accounts are due next.",
        in_words(held)
    );
    let scene = stage.scene(&title, &Jobs::default()).await?;
    let soon = Duration::from_millis(200);
    let due = SystemTime::now() + soon;
    take_gold(&mut scene.redis().await, soon + held).await?;
    ask(&scene, "gold", "1", due).await?;
    for id in 2..12 {
        ask(&scene, &format!("silver-{id}"), &id.to_string(), due + Duration::from_millis(id)).await?;
    }
    let _actors = [scene.by_hand.start_as("sleep", &[])?, scene.with_keylapse.start()?];
    scene.by_hand.until_done(LIMIT).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    let outcome = scene.told()?;
    let [hand, ours] = [&outcome.by_hand, &outcome.with_keylapse].map(|account| account.late(0.5));
    Ok(outcome
        .saying(
            format!("the worker slept: half of the jobs were {} late or more.", in_words(hand)),
            format!("the job was snoozed; half of the jobs were {} late or less.", in_words(ours)),
        )
        .claiming(
            "sleeping delays jobs of other accounts for as long as the lock is held",
            hand + soon > held,
        ))
}

async fn worker_fails(stage: &Stage) -> Result<Told> {
    let scene = stage
        .scene("Another program holds a lock for a second; the worker returns an error.", &Jobs::default())
        .await?;
    take_gold(&mut scene.redis().await, Duration::from_secs(1)).await?;
    ask(&scene, "gold", "1", SystemTime::now()).await?;
    ask(&scene, "silver", "2", SystemTime::now()).await?;
    let _actors = [scene.by_hand.start_as("throw", &[])?, scene.with_keylapse.start()?];
    scene.by_hand.until_began("2", LIMIT).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    let outcome = scene.told()?;
    let lost = outcome.by_hand.lost;
    Ok(outcome
        .saying(
            format!("no caller tried again: {lost} of 2 jobs never ran."),
            "the job was snoozed until the lock was free.",
        )
        .claiming("after an error the job is lost, unless the caller tries again", lost > 0))
}

async fn never_released(stage: &Stage) -> Result<Told> {
    let scene = stage.scene("A lock is not released until an operator deletes it.", &Jobs::default()).await?;
    let mut redis = scene.redis().await;
    take_gold(&mut redis, Duration::from_secs(3600)).await?;
    ask(&scene, "gold", "1", SystemTime::now()).await?;
    let _actors = [scene.by_hand.start_as("defer", &[])?, scene.with_keylapse.start()?];

    let (schedule, topic) = (Schedule::connect(scene.server.url()).await?, with_keylapse::statements()?);
    eventually(LIMIT, "a dead letter", async || {
        schedule.dead_letter_counts(&topic).await.is_ok_and(|(count, _)| count == 1)
    })
    .await;
    let dead_letter = schedule.dead_letters(&topic).next().await?.context("no dead letter")?;
    ensure!(
        dead_letter.reason == DeadReason::Snoozed,
        "the dead letter has the reason {}",
        dead_letter.reason.as_str()
    );
    let took =
        dead_letter.died.duration_since(dead_letter.deadline.context("the dead letter has no deadline")?)?;
    eventually(LIMIT, "more deferrals by hand", async || {
        deferrals(&scene).await.is_ok_and(|count| count > with_keylapse::SNOOZES.into())
    })
    .await;
    let deferred = deferrals(&scene).await?;

    redis.del::<_, ()>(&LOCKS[..]).await?;
    let replayed = schedule.replay(&dead_letter).await?;
    ensure!(replayed == Replayed::Replayed, "{replayed:?}");
    scene.by_hand.until_done(LIMIT).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    Ok(scene
        .told()?
        .saying(
            format!("the job was put back {deferred} times, without a limit."),
            format!("after {} the job was a dead letter, which the operator replayed.", in_words(took)),
        )
        .claiming("putting jobs back has no limit", deferred > with_keylapse::SNOOZES.into()))
}

async fn deferrals(scene: &Scene) -> Result<u64> {
    Ok(scene.redis().await.get::<_, Option<u64>>(DEFERRALS).await?.unwrap_or_default())
}

async fn killed_before_it_is_put_back(stage: &Stage) -> Result<Told> {
    let title = "The process is killed while its job waits for a lock; a second process is started.";
    let scene = stage.scene(title, &Jobs::default()).await?;
    let mut redis = scene.redis().await;
    take_gold(&mut redis, Duration::from_secs(3600)).await?;
    let due = SystemTime::now();
    ask(&scene, "gold", "1", due).await?;
    let proxy = Proxy::before(&scene.server).await;
    let hand = scene.by_hand.start_behind(&proxy.url(), "defer", &[])?;
    let ours = scene.with_keylapse.start()?;

    // By hand, the process is killed after the job was put back once and taken out again.
    eventually(LIMIT, "a deferral", async || deferrals(&scene).await.is_ok_and(|count| count > 0)).await;
    proxy.lose_reply(command("ZREM"), Then::Stall);
    proxy.until_lost(1).await;
    hand.kill().await?;
    // With keylapse, the process is killed after the job was snoozed.
    let (schedule, topic) = (Schedule::connect(scene.server.url()).await?, with_keylapse::statements()?);
    eventually(LIMIT, "a snooze", async || {
        let timer = schedule.look_up(&topic, ["gold", "1"]).await.ok().flatten();
        let phase = timer.map(|timer| timer.phase);
        matches!(phase, Some(TimerPhase::Waiting(until)) if until > due + Duration::from_millis(50))
    })
    .await;
    ours.kill().await?;

    let _successors = [scene.by_hand.start_as("defer", &[])?, scene.with_keylapse.start()?];
    redis.del::<_, ()>(&LOCKS[..]).await?;
    scene.with_keylapse.until_done(LIMIT).await?;
    scene.by_hand.until_done(Duration::from_secs(1)).await?;
    let outcome = scene.told()?;
    let (lost, doubled) = (outcome.by_hand.lost, outcome.with_keylapse.doubled);
    Ok(outcome
        .saying(
            format!("the job had been taken out of the set and was not put back: {lost} of 1 is lost."),
            format!("the job was still in Redis and ran in the second process; {doubled} ran twice."),
        )
        .claiming("a kill between taking a job out and putting it back loses the job", lost > 0))
}

async fn paused_past_its_lock(stage: &Stage) -> Result<Told> {
    let jobs = Jobs::taking(Duration::from_millis(600));
    let scene = stage
        .scene("A process is paused until its lock expires; a second process takes the lock.", &jobs)
        .await?;
    let mut redis = scene.redis().await;
    redis.rpush::<_, _, ()>("account:gold", "an entry").await?;
    ask(&scene, "gold", "1", SystemTime::now()).await?;
    let [hand, ours] = [scene.by_hand.start_as("defer", &[])?, scene.with_keylapse.start()?];
    let stop = async |side: &Side, actor: &Actor| {
        side.until_began("1", LIMIT).await?;
        actor.stop()
    };
    tokio::try_join!(stop(&scene.by_hand, &hand), stop(&scene.with_keylapse, &ours))?;

    redis.rpush::<_, _, ()>("account:gold", "another").await?;
    ask(&scene, "gold", "2", SystemTime::now()).await?;
    let _successors = [scene.by_hand.start_as("defer", &[])?, scene.with_keylapse.start()?];
    for side in [&scene.by_hand, &scene.with_keylapse] {
        let second = |entry: &Entry| entry.job == "2" && entry.event == Event::Done;
        ensure!(side.until(LIMIT, |ledger| ledger.iter().any(second)).await?, "the second job did not run");
    }
    let [by_hand, with_keylapse] = ["hand:statement:gold", "account:gold:statement"];
    until_statement_is(&scene, by_hand, "2").await;
    until_statement_is(&scene, with_keylapse, "2").await;
    hand.cont()?;
    ours.cont()?;
    until_statement_is(&scene, by_hand, "1").await;
    eventually(LIMIT, "a refused write", async || {
        let errors: RedisResult<String> = cmd("INFO").arg("errorstats").query_async(&mut redis).await;
        errors.is_ok_and(|errors| errors.contains("FENCED"))
    })
    .await;
    scene.with_keylapse.until_done(LIMIT).await?;
    let statements: Vec<String> = redis.mget(&[by_hand, with_keylapse]).await?;
    ensure!(statements[1] == "2", "an old statement replaced a newer one");
    Ok(scene
        .told()?
        .saying(
            format!("the paused process resumed and wrote its old count: {} of 2 entries.", statements[0]),
            format!("its write was rejected, and the statement has {} of 2 entries.", statements[1]),
        )
        .claiming("a paused holder overwrites the result of a later one", statements[0] == "1"))
}

async fn until_statement_is(scene: &Scene, statement: &str, entries: &str) {
    eventually(LIMIT, &format!("{statement} = {entries}"), async || {
        scene.server.cmd(&["GET", statement]).await == Value::BulkString(entries.into())
    })
    .await;
}
