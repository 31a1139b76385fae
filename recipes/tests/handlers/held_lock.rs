//! The locks are in the server of the bed, so these tests run in real time.

use std::time::{Duration, SystemTime};

use keylapse::dead_letters::DeadReason;
use keylapse::{Outcome, Topic};
use keylapse_support::eventually;
use keylapse_testing::{HandlerRun, RunEnd, TestBed};
use recipes::held_lock::with_keylapse::{App, ask, handle, statements};
use recipes::stage::ledger::Event;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::handlers::support::Notes;

/// A bed with an account that has one entry.
struct Bank {
    bed: TestBed,
    notes: Notes,
    redis: MultiplexedConnection,
    app: App,
}

impl Bank {
    async fn new(failures: &[(&str, usize)]) -> anyhow::Result<Self> {
        let (bed, notes) = (TestBed::in_real_time(), Notes::new());
        let app = App { redis: redis::Client::open(bed.url().await?)?, world: notes.world(failures) };
        let mut redis = app.redis.get_multiplexed_async_connection().await?;
        redis.rpush::<_, _, ()>("account:gold", "an entry").await?;
        Ok(Self { bed, notes, redis, app })
    }

    async fn listen(&self, topic: Topic<()>) -> keylapse::Result<()> {
        let app = self.app.clone();
        self.bed.listen(|listener| listener.state(app).on(topic, handle)).await?;
        ask(&self.bed.schedule(), "gold", "1", SystemTime::now()).await
    }

    /// Returns whether the key has this value.
    async fn has(&mut self, key: &str, value: Option<&str>) -> anyhow::Result<bool> {
        Ok(self.redis.get::<_, Option<String>>(key).await?.as_deref() == value)
    }
}

fn is_snoozed(end: Option<&RunEnd>) -> bool {
    matches!(end, Some(RunEnd::Returned(Outcome::Snooze(_))))
}

#[tokio::test]
async fn a_free_lock_is_taken_and_released() -> anyhow::Result<()> {
    let mut bank = Bank::new(&[]).await?;
    bank.listen(statements()?).await?;
    bank.bed.until_finished().await;
    assert_eq!(bank.notes.jobs(Event::Done), ["1"]);
    assert!(bank.has("account:gold:statement", Some("1")).await? && bank.has("lock:gold", None).await?);
    Ok(())
}

#[tokio::test]
async fn a_taken_lock_snoozes_the_job_until_it_is_free() -> anyhow::Result<()> {
    let mut bank = Bank::new(&[]).await?;
    bank.redis.set::<_, _, ()>("lock:gold", "another").await?;
    bank.listen(statements()?).await?;
    bank.bed.until(|runs| runs.iter().filter(|run| is_snoozed(run.end.as_ref())).count() >= 2).await;
    bank.redis.del::<_, ()>("lock:gold").await?;
    bank.bed.until_finished().await;
    let runs = bank.bed.runs(&statements()?);
    assert!(runs.iter().all(|run| run.attempt == 1), "a snooze used up an attempt: {runs:?}");
    assert_eq!(bank.notes.jobs(Event::Done), ["1"]);
    Ok(())
}

#[tokio::test]
async fn a_lock_that_is_never_free_makes_a_dead_letter() -> anyhow::Result<()> {
    let mut bank = Bank::new(&[]).await?;
    bank.redis.set::<_, _, ()>("lock:gold", "another").await?;
    bank.listen(statements()?.max_snoozes(2)).await?;
    bank.bed.until_finished().await;
    let (schedule, topic) = (bank.bed.schedule(), statements()?);
    let dead_letter = schedule.dead_letters(&topic).next().await?.expect("a dead letter");
    assert_eq!((dead_letter.reason, bank.bed.runs(&topic).len()), (DeadReason::Snoozed, 3));
    assert!(bank.has("lock:gold", Some("another")).await?, "the job released a lock of another holder");
    Ok(())
}

#[tokio::test]
async fn a_failed_job_releases_the_lock() -> anyhow::Result<()> {
    let mut bank = Bank::new(&[("1", 1)]).await?;
    bank.listen(statements()?).await?;
    bank.bed.until(|runs| runs.iter().any(HandlerRun::is_failed)).await;
    assert!(bank.has("lock:gold", None).await? && bank.has("account:gold:statement", None).await?);
    Ok(())
}

#[tokio::test]
async fn a_holder_whose_lock_was_taken_by_another_cannot_write() -> anyhow::Result<()> {
    let mut bank = Bank::new(&[]).await?;
    bank.app.world = bank.notes.world_where_jobs_take(Duration::from_millis(300));
    bank.listen(statements()?.max_attempts(1)).await?;
    let has_begun = async || !bank.notes.jobs(Event::Began).is_empty();
    eventually(Duration::from_secs(20), "the job to begin", has_begun).await;
    bank.redis.set::<_, _, ()>("lock:gold", "another").await?;
    bank.redis.incr::<_, _, ()>("lock:gold:fence", 1).await?;
    bank.bed.until_finished().await;
    let runs = bank.bed.runs(&statements()?);
    assert!(
        matches!(&runs[..], [HandlerRun { end: Some(RunEnd::Failed(error)), .. }] if error.contains("FENCED")),
        "{runs:?}"
    );
    assert!(bank.has("account:gold:statement", None).await? && bank.has("lock:gold", Some("another")).await?);
    Ok(())
}
