use std::time::Duration;

use keylapse::ErrorKind;
use keylapse::dead_letters::DeadReason;
use keylapse_console::Console;
use keylapse_testing::TestBed;
use recipes::redisson::with_keylapse::{App, FIRST, ask, cards, destroy, forget, learn};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

const MOMENT: Duration = Duration::from_millis(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

async fn listening(failures: &[(&str, usize)]) -> keylapse::Result<(TestBed, Notes)> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, app) = (cards()?, App { schedule: bed.schedule(), world: notes.world(failures) });
    bed.listen(|listener| listener.state(app).on(topic, ask)).await?;
    Ok((bed, notes))
}

#[tokio::test(start_paused = true)]
async fn the_interval_grows_from_ten_seconds_to_a_day() -> keylapse::Result<()> {
    let (bed, notes) = listening(&[]).await?;
    learn(&bed.schedule(), "rust", FIRST).await?;
    bed.advance(FIRST - MOMENT).await;
    assert!(notes.jobs(Event::Done).is_empty(), "the card was asked early");
    bed.advance(MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["rust.1"]);
    bed.advance(Duration::from_secs(60) - MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["rust.1"], "the second round began early");
    bed.advance(MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["rust.1", "rust.2"]);
    bed.until_finished().await;
    let runs = bed.runs(&cards()?);
    let gaps: Vec<_> = runs.windows(2).map(|two| (two[1].began - two[0].began).as_secs()).collect();
    assert_eq!(gaps, [60, 360, 2160, 12_960, 77_760]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failed_round_is_retried_after_growing_delays_and_the_next_one_follows() -> keylapse::Result<()> {
    let (bed, notes) = listening(&[("rust.1", 3)]).await?;
    learn(&bed.schedule(), "rust", FIRST).await?;
    bed.advance(FIRST + Duration::from_secs(1 + 10 + 60)).await;
    assert_eq!((notes.jobs(Event::Failed).len(), notes.jobs(Event::Done)), (3, vec!["rust.1".to_owned()]));
    bed.advance(Duration::from_secs(60)).await;
    assert_eq!(notes.jobs(Event::Done), ["rust.1", "rust.2"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_round_that_always_fails_becomes_a_dead_letter_and_arms_no_other() -> keylapse::Result<()> {
    let (bed, notes) = listening(&[("rust.1", 99)]).await?;
    learn(&bed.schedule(), "rust", FIRST).await?;
    bed.until_finished().await;
    assert_eq!(notes.jobs(Event::Failed).len(), 4);
    let (schedule, topic) = (bed.schedule(), cards()?);
    let dead_letter = schedule.dead_letters(&topic).next().await?.expect("a dead letter");
    assert_eq!(dead_letter.reason, DeadReason::Exhausted);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_card_is_not_asked() -> keylapse::Result<()> {
    let (bed, notes) = listening(&[]).await?;
    learn(&bed.schedule(), "rust", FIRST).await?;
    forget(&bed.schedule(), "rust").await?;
    bed.until_finished().await;
    assert!(notes.jobs(Event::Began).is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_card_without_an_interval_is_asked_immediately_and_then_at_growing_intervals()
-> keylapse::Result<()> {
    let (bed, notes) = listening(&[]).await?;
    learn(&bed.schedule(), "now", Duration::ZERO).await?;
    bed.advance(Duration::from_secs(1)).await;
    assert_eq!(notes.jobs(Event::Done), ["now.1", "now.2"]);
    bed.advance(Duration::from_secs(6) - MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["now.1", "now.2"]);
    bed.advance(MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["now.1", "now.2", "now.3"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_interval_of_a_year_is_kept_and_more_than_ten_years_are_refused() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let refused = learn(&bed.schedule(), "never", 11 * YEAR)
        .await
        .expect_err("an error for an interval over ten years");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    learn(&bed.schedule(), "next-year", YEAR).await?;
    bed.advance(YEAR - MOMENT).await;
    let (topic, app) = (cards()?, App { schedule: bed.schedule(), world: notes.world(&[]) });
    bed.listen(|listener| listener.state(app).on(topic, ask)).await?;
    assert!(notes.jobs(Event::Done).is_empty(), "the card was asked early");
    bed.advance(MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["next-year.1"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deleted_cards_are_not_asked_and_new_ones_can_be_learned() -> keylapse::Result<()> {
    let (bed, notes) = listening(&[]).await?;
    for card in ["rust", "lua"] {
        learn(&bed.schedule(), card, FIRST).await?;
    }
    let console = Console::new(bed.client());
    assert_eq!(destroy(&console).await?, 2);
    learn(&bed.schedule(), "redis", FIRST).await?;
    bed.advance(FIRST * 2).await;
    assert_eq!(notes.jobs(Event::Done), ["redis.1"]);
    assert_eq!(destroy(&console).await?, 1, "the next round of the card was not deleted");
    assert_eq!(destroy(&console).await?, 0);
    Ok(())
}
