use std::time::Duration;

use keylapse::dead_letters::DeadReason;
use keylapse::{ErrorKind, Priority, Topic};
use keylapse_testing::{RunEnd, TestBed};
use recipes::priority_queue::with_keylapse::{Mail, deliver, mails, send};
use recipes::stage::ledger::Event;
use serde_json::{Value, json};

use crate::handlers::support::Notes;

fn to() -> String {
    "ann@example.com".to_owned()
}

/// Returns a topic with the pattern of `mails`, and with any payload.
fn any_payload() -> keylapse::Result<Topic<Value>> {
    Topic::new("mail:normal:{id}")
}

#[tokio::test(start_paused = true)]
async fn a_mail_is_sent_when_it_is_due_and_retried_after_a_failure() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, world) = (mails(Priority::Low)?, notes.world(&[("1", 1)]));
    bed.listen(|listener| listener.state(world).on(topic, deliver)).await?;
    let due = bed.now() + Duration::from_secs(3600);
    send(&bed.schedule(), "1", &Mail::News { to: to() }, due).await?;
    bed.advance(Duration::from_secs(3600)).await;
    assert_eq!((notes.jobs(Event::Failed).len(), notes.jobs(Event::Done).len()), (1, 0));
    bed.until_finished().await;
    assert_eq!(notes.jobs(Event::Done), ["1"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_priority_has_its_share_of_the_slots() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    for number in 0..100 {
        for mail in
            [Mail::News { to: to() }, Mail::Receipt { to: to(), cents: 1 }, Mail::Password { to: to() }]
        {
            let id = format!("{:?}{number}", mail.priority());
            send(&bed.schedule(), &id, &mail, bed.now()).await?;
        }
    }
    let [high, normal, low] = [Priority::High, Priority::Normal, Priority::Low].map(mails);
    let (high, normal, low) = (high?, normal?, low?);
    let world = notes.world_where_jobs_take(Duration::from_millis(100));
    bed.listen(|listener| {
        listener.concurrency(4).state(world).on(high, deliver).on(normal, deliver).on(low, deliver)
    })
    .await?;
    bed.advance(Duration::from_millis(2550)).await;
    let done = notes.jobs(Event::Done);
    let count = |name: &str| done.iter().filter(|job| job.starts_with(name)).count();
    let counts = [count("High"), count("Normal"), count("Low")];
    assert_eq!(counts.iter().sum::<usize>(), 100, "{counts:?}");
    for (count, share) in counts.into_iter().zip([60_usize, 30, 10]) {
        assert!(count.abs_diff(share) <= 6, "{counts:?}");
    }
    bed.until_finished().await;
    assert_eq!(notes.jobs(Event::Done).len(), 300);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_mail_is_retried_and_then_becomes_an_unchanged_dead_letter() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, world) = (mails(Priority::Normal)?, notes.world(&[]));
    bed.listen(|listener| listener.state(world).on(topic, deliver)).await?;
    let wrong = [
        json!({"kind": "birthday", "to": "ann@example.com"}),
        json!({"kind": "receipt", "to": "ann@example.com"}),
        json!({"kind": "receipt", "to": "ann@example.com", "cents": -1}),
        json!(["receipt"]),
        json!(null),
    ];
    let (schedule, any) = (bed.schedule(), any_payload()?);
    for (number, wrong) in wrong.iter().enumerate() {
        schedule.arm(&any, number, Duration::ZERO, wrong).await.map(drop)?;
    }
    bed.advance(Duration::from_secs(1800)).await;
    assert_eq!(schedule.dead_letter_counts(&any).await?.0, 0, "the mail did not wait for a newer program");
    bed.until_finished().await;
    let mut dead_letters = schedule.dead_letters(&any).page(10).await?;
    dead_letters.sort_by(|a, b| a.key.cmp(&b.key));
    assert!(
        dead_letters.iter().all(|dead_letter| dead_letter.reason == DeadReason::Undecodable),
        "{dead_letters:?}"
    );
    let kept: Vec<_> = dead_letters.into_iter().filter_map(|dead_letter| dead_letter.payload.ok()).collect();
    assert_eq!(kept, wrong);
    assert!(notes.jobs(Event::Began).is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_priorities_of_one_pattern_are_refused() -> keylapse::Result<()> {
    let (bed, world) = (TestBed::new(), Notes::new().world(&[]));
    let high = Topic::<Mail>::named("mail.urgent", "mail:normal:{id}")?.priority(Priority::High);
    let normal = mails(Priority::Normal)?;
    let listening = bed.listen(|listener| listener.state(world).on(high, deliver).on(normal, deliver)).await;
    assert_eq!(listening.expect_err("one key, two topics").kind(), ErrorKind::Conflict);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn strict_priorities_of_one_topic_are_accepted() -> keylapse::Result<()> {
    let (bed, notes) = (TestBed::new(), Notes::new());
    let (topic, world) = (mails(Priority::Low)?, notes.world(&[]));
    bed.listen(|listener| listener.strict_priorities().state(world).on(topic.clone(), deliver)).await?;
    send(&bed.schedule(), "1", &Mail::News { to: to() }, bed.now()).await?;
    bed.until_finished().await;
    let runs = bed.runs(&topic);
    assert!(matches!(runs[0].end, Some(RunEnd::Returned(_))) && notes.jobs(Event::Done) == ["1"], "{runs:?}");
    Ok(())
}
