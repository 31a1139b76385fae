use std::time::Duration;

use keylapse::NewArm;
use keylapse::dead_letters::DeadReason;
use keylapse_testing::TestBed;
use recipes::fifo_queue::with_keylapse::{mail, sales, sold};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

#[tokio::test(start_paused = true)]
async fn one_at_a_time_is_first_in_first_out_also_within_a_millisecond() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), sales()?);
    let world = notes.world(&[]);
    let order = ["3", "20", "1", "900", "12", "2"];
    for (number, sale) in order.iter().enumerate() {
        sold(&bed.schedule(), sale, "Anna").await?;
        bed.advance(Duration::from_millis(u64::from(number == 2))).await;
    }
    assert_eq!(bed.elapsed(), Duration::from_millis(1), "three in each of two milliseconds");
    bed.listen(|listener| listener.concurrency(1).state(world).on(topic, mail)).await?;
    bed.until_finished().await;
    assert_eq!(notes.jobs(Event::Done), order);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn several_workers_send_several_mails_at_a_time() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), sales()?);
    for (at_a_time, seconds) in [(1, 4), (4, 1)] {
        let world = notes.world_where_jobs_take(Duration::from_secs(1));
        let arms = (0..4).map(|sale: u32| NewArm::new(sale, Duration::ZERO, "Anna".to_owned()));
        drop(bed.schedule().arm_many(&topic, arms).await?);
        let began = bed.elapsed();
        let listening = bed
            .listen(|listener| listener.concurrency(at_a_time).state(world).on(topic.clone(), mail))
            .await?;
        bed.until_finished().await;
        assert_eq!((bed.elapsed() - began).as_secs(), seconds, "{at_a_time} at a time");
        listening.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_mail_that_fails_delays_no_other_and_becomes_a_dead_letter() -> keylapse::Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), sales()?);
    let world = notes.world(&[("1", 4), ("2", 1)]);
    bed.listen(|listener| listener.concurrency(1).state(world).on(topic.clone(), mail)).await?;
    for sale in ["1", "2", "3"] {
        sold(&bed.schedule(), sale, "Anna").await?;
    }
    bed.until_finished().await;
    assert_eq!(notes.jobs(Event::Done), ["3", "2"]);
    let schedule = bed.schedule();
    let dead_letters = schedule.dead_letters(&topic).page(10).await?;
    let [dead] = &dead_letters[..] else { panic!("{dead_letters:?}") };
    assert_eq!((dead.reason, dead.attempts, &*dead.key), (DeadReason::Exhausted, 4, &b"sold:1"[..]));
    assert_eq!(dead.payload.as_deref().ok(), Some("Anna"));
    Ok(())
}
