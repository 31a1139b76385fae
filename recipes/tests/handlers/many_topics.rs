use std::time::Duration;

use keylapse_testing::TestBed;
use recipes::many_topics::with_keylapse::{
    UNOPENED, UNPAID, close, orders, packets, pay, pay_back, place, send,
};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

const MOMENT: Duration = Duration::from_millis(1);

/// Returns a bed with a listener of both topics.
async fn served(failures: &[(&str, usize)]) -> keylapse::Result<(TestBed, Notes)> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (orders, packets, world) = (orders()?, packets()?, notes.world(failures));
    bed.listen(|listener| listener.state(world).on(orders, close).on(packets, pay_back)).await?;
    Ok((bed, notes))
}

#[tokio::test(start_paused = true)]
async fn an_order_is_closed_after_five_seconds_unless_it_is_paid() -> keylapse::Result<()> {
    let (bed, notes) = served(&[]).await?;
    let due = bed.now() + UNPAID;
    place(&bed.schedule(), &[("1".to_owned(), due), ("2".to_owned(), due)]).await?;
    assert!(pay(&bed.schedule(), "1").await?, "order 1 was not cancelled");
    bed.advance(UNPAID - MOMENT).await;
    assert!(notes.jobs(Event::Done).is_empty(), "a handler ran early");
    assert!(!pay(&bed.schedule(), "2").await?, "a listener has claimed order 2");
    assert!(!pay(&bed.schedule(), "3").await?, "order 3 does not exist");
    bed.advance(MOMENT).await;
    place(&bed.schedule(), &[("4".to_owned(), bed.now())]).await?;
    bed.until_finished().await;
    assert_eq!(notes.jobs(Event::Done), ["4"]);
    assert!(!pay(&bed.schedule(), "4").await?, "order 4 was already closed");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_red_packet_is_paid_back_after_a_day() -> keylapse::Result<()> {
    let (bed, notes) = served(&[]).await?;
    send(&bed.schedule(), "42", 888).await?;
    bed.advance(UNOPENED - MOMENT).await;
    assert!(notes.jobs(Event::Done).is_empty(), "a handler ran early");
    bed.advance(MOMENT).await;
    assert_eq!(notes.jobs(Event::Done), ["42:888"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_thousand_orders_due_at_the_same_time_are_closed_without_delay() -> keylapse::Result<()> {
    let (bed, notes) = served(&[]).await?;
    let due = bed.now() + UNPAID;
    let placed: Vec<_> = (0..1000).map(|order| (order.to_string(), due)).collect();
    place(&bed.schedule(), &placed).await?;
    bed.advance(UNPAID).await;
    let late = bed.runs(&orders()?).iter().map(|run| run.lateness).max();
    assert_eq!((notes.jobs(Event::Done).len(), late), (1000, Some(Duration::ZERO)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failed_pay_back_is_retried() -> keylapse::Result<()> {
    let (bed, notes) = served(&[("42:888", 2)]).await?;
    send(&bed.schedule(), "42", 888).await?;
    bed.until_finished().await;
    assert_eq!((notes.jobs(Event::Failed).len(), notes.jobs(Event::Done)), (2, vec!["42:888".to_owned()]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_order_that_cannot_be_a_key_is_refused_and_the_others_are_placed() -> keylapse::Result<()> {
    let (bed, notes) = served(&[]).await?;
    let due = bed.now() + UNPAID;
    let placed = ["1", "2:3", "4"].map(|order| (order.to_owned(), due));
    assert!(place(&bed.schedule(), &placed).await.is_err(), "a colon separates segments");
    bed.advance(UNPAID).await;
    let mut closed = notes.jobs(Event::Done);
    closed.sort(); // the orders are in two partitions
    assert_eq!(closed, ["1", "4"]);
    Ok(())
}
