use std::time::Duration;

use keylapse::{Done, Lapse};
use keylapse_testing::{RunEnd, TestBed};
use recipes::delay_queue::with_keylapse::{handle, messages, send};
use recipes::stage::World;
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_message_is_handled_when_it_is_due_and_not_before() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), messages()?);
    let world = notes.world(&[]);
    bed.listen(|listener| listener.state(world).on(topic, handle)).await?;
    send(&bed.schedule(), "1", bed.now() + 5 * SECOND, "hello").await?;
    bed.advance(5 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(notes.jobs(Event::Began), [""; 0]);
    bed.advance(Duration::from_millis(1)).await;
    assert_eq!(notes.jobs(Event::Done), ["1"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_message_of_the_past_runs_immediately_and_one_of_next_year_waits() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), messages()?);
    let (world, year) = (notes.world(&[]), 365 * 86_400 * SECOND);
    send(&bed.schedule(), "far", bed.now() + year, "hello").await?;
    bed.advance(year - 2 * SECOND).await; // without a listener, since that would take a minute
    send(&bed.schedule(), "late", bed.now() - year, "hello").await?;
    bed.listen(|listener| listener.state(world).on(topic, handle)).await?;
    bed.advance(SECOND).await;
    assert_eq!(notes.jobs(Event::Began), ["late"]);
    bed.advance(SECOND).await;
    assert_eq!(notes.jobs(Event::Done), ["late", "far"]);
    Ok(())
}

/// Calls [`handle`], but panics at the first attempt of message 2.
async fn panics_once(message: Lapse<String>, world: World) -> anyhow::Result<Done> {
    assert!(message.capture("id") != Some("2") || message.attempt() > 1, "a bug");
    handle(message, world).await
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_an_error_affect_only_their_own_messages() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new().expect_panics(), Notes::new(), messages()?);
    let world = notes.world(&[("1", 1)]);
    bed.listen(|listener| listener.concurrency(2).state(world).on(topic.clone(), panics_once)).await?;
    for id in ["1", "2", "3", "4"] {
        send(&bed.schedule(), id, bed.now() + 5 * SECOND, "hello").await?;
    }
    bed.advance(5 * SECOND).await;
    assert_eq!(
        (notes.jobs(Event::Failed), notes.jobs(Event::Done)),
        (vec!["1".into()], vec!["3".into(), "4".into()])
    );
    assert!(bed.runs(&topic).iter().any(|run| matches!(run.end, Some(RunEnd::Panicked(_)))));
    bed.advance(SECOND).await;
    assert_eq!(notes.jobs(Event::Done), ["3", "4", "1", "2"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_messages_after_the_grace_and_uses_up_no_attempt() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), messages()?);
    let grace = Duration::from_millis(200);
    let worlds = [10 * SECOND, Duration::ZERO].map(|time| notes.world_where_jobs_take(time));
    let [slow, prompt] = worlds.map(|world| {
        let topic = topic.clone();
        bed.listen(move |listener| listener.grace(grace).state(world).on(topic, handle))
    });
    let slow = slow.await?;
    send(&bed.schedule(), "1", bed.now() + SECOND, "hello").await?;
    bed.advance(2 * SECOND).await;
    let _prompt = prompt.await?;
    slow.stop().await?;
    bed.until_finished().await;
    assert!(
        bed.elapsed() < 2 * SECOND + 2 * grace,
        "the second listener waited for the lease: {:?}",
        bed.elapsed()
    );
    let runs = bed.runs(&topic);
    let [first, second] = &runs[..] else { panic!("{runs:#?}") };
    assert_eq!((first.attempt, second.attempt, &first.id), (1, 1, &second.id));
    assert!(second.is_done());
    Ok(())
}
