use std::time::Duration;

use futures::StreamExt;
use keylapse::{Backoff, Failure, Listener, NewArm, Outcome, Schedule, Topic};
use keylapse_support::{Server, eventually};
use keylapse_testing::TestBed;
use recipes::short::{batch, heartbeat, limit, pull, session};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_device_is_lost_thirty_seconds_after_its_last_beat() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, world) = (heartbeat::silence()?, notes.world(&[]));
    bed.listen(|listener| listener.state(world).on(topic, heartbeat::lost)).await?;
    for _ in 0..3 {
        heartbeat::beat(&bed.schedule(), "pump").await?;
        bed.advance(29 * SECOND).await;
    }
    assert_eq!(notes.jobs(Event::Done), [""; 0]);
    bed.advance(SECOND).await;
    assert_eq!(notes.jobs(Event::Done), ["pump"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_expired_is_handled_with_its_value() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, world) = (session::sessions()?, notes.world(&[]));
    bed.listen(|listener| listener.state(world).attach(topic, session::ended)).await?;
    bed.command(["SET", "session:7", r#"{"user":"ada"}"#, "EX", "1800"]);
    bed.advance(1801 * SECOND).await;
    assert_eq!(notes.jobs(Event::Done), ["ada"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pulled_jobs_without_a_result_are_retried() -> keylapse::Result<()> {
    let (bed, topic) = (TestBed::new(), Topic::<u64>::new("pull:{id}")?.retry(Backoff::fixed(SECOND)));
    let (handler, mut jobs) = pull::pull();
    bed.listen(|listener| listener.on(topic.clone(), handler)).await?;
    assert!(bed.schedule().arm(&topic, 1, Duration::ZERO, &42).await?.is_armed());
    let verdicts = [None, Some(Err(Failure::retry("busy"))), Some(Ok(Outcome::Done))];
    for (attempt, verdict) in (1..).zip(verdicts) {
        let job = jobs.next().await.expect("a job");
        assert_eq!((job.lapse.attempt(), job.lapse.payload()), (attempt, &42));
        // This is longer than a lease, which is renewed.
        bed.advance(40 * SECOND).await;
        assert!(job.lapse.has_lease());
        if let Some(verdict) = verdict {
            assert!(job.verdict.send(verdict).is_ok(), "the handler waits");
        }
        bed.advance(SECOND).await;
    }
    bed.until_finished().await;
    assert_eq!(bed.runs(&topic).len(), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn jobs_due_at_the_same_time_are_handled_in_batches() -> keylapse::Result<()> {
    let (bed, topic, notes) = (TestBed::new(), Topic::<u64>::new("batch:{id}")?, Notes::new());
    let (handler, jobs) = pull::pull();
    bed.listen(|listener| listener.concurrency(200).on(topic.clone().concurrency(200), handler)).await?;
    let batches = tokio::spawn(batch::in_batches(Box::pin(jobs), notes.world(&[])));
    let arms = (0..150_u64).map(|id| NewArm::new(id, SECOND, id));
    for armed in bed.schedule().arm_many(&topic, arms).await? {
        assert!(armed?.is_armed());
    }
    bed.until_finished().await;
    let sizes: Vec<_> = notes.jobs(Event::Done).iter().map(|batch| batch.split('+').count()).collect();
    assert_eq!(sizes, [100, 50]);
    batches.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_per_merchant_holds_and_every_notice_is_sent() -> anyhow::Result<()> {
    let (server, notes) = (Server::start().await, Notes::new());
    let topic = Topic::<()>::new("limited:{merchant}:{id}")?;
    let schedule = Schedule::connect(server.url()).await?;
    for (merchant, count) in [("big", 25), ("small", 3)] {
        for id in 0..count {
            let id = format!("{merchant}-{id}");
            assert!(schedule.arm(&topic, [merchant, &id], Duration::ZERO, &()).await?.is_armed());
        }
    }
    let state = (server.conn().await, notes.world(&[]));
    let listener = Listener::builder(server.url()).state(state).on(topic, limit::notify).build()?;
    let all = eventually(30 * SECOND, "28 notices", async || notes.jobs(Event::Done).len() == 28);
    listener.run_until(all).await?;
    let times = notes.times();
    let of_big: Vec<_> = times.iter().filter(|(job, _)| job.starts_with("big")).map(|(_, at)| *at).collect();
    let window = |first: usize| of_big[first + 20].duration_since(of_big[first]).unwrap_or_default();
    // A second may overlap two windows of the limiter, so at most 20 notices are sent within it.
    assert!((0..5).all(|first| window(first) >= SECOND), "{of_big:?}");
    Ok(())
}
