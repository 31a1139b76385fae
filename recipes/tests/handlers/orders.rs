use std::time::Duration;

use keylapse_testing::TestBed;
use recipes::orders::with_keylapse::{close, orders, place};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

#[tokio::test(start_paused = true)]
async fn an_order_is_closed_when_its_time_is_over_and_again_if_that_failed() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, world) = (orders()?, notes.world(&[("42", 1)]));
    bed.listen(|listener| listener.state(world).on(topic, close)).await?;
    place(&bed.schedule(), "42", bed.now() + Duration::from_secs(900)).await?;
    bed.advance(Duration::from_secs(900)).await;
    assert_eq!((notes.jobs(Event::Failed), notes.jobs(Event::Done)), (vec!["42".to_owned()], vec![]));
    bed.advance(Duration::from_secs(1)).await;
    assert_eq!(notes.jobs(Event::Done), ["42"]);
    assert_eq!(bed.runs(&orders()?).iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2]);
    Ok(())
}
