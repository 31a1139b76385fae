//! Many timers at once: armed, withdrawn, moved, from lists and from streams.

use std::time::{Duration, SystemTime};

use futures::StreamExt;
use keylapse::timers::TimerPhase;
use keylapse::{ArmResult, Cancelled, ErrorKind, NewArm, Rescheduled, Schedule, Topic};
use keylapse_support::eventually;
use tokio::sync::mpsc;

use crate::server::support::{PATIENCE, server_and_schedule};

const LATER: Duration = Duration::from_secs(600);

fn topic() -> Topic<u32> {
    Topic::new("app:bulk:{id}").unwrap().partitions(4)
}

async fn arm(schedule: &Schedule, topic: &Topic<u32>, count: u32) {
    let arms = (0..count).map(|id| NewArm::new(id, LATER, id));
    for armed in schedule.arm_many(topic, arms).await.unwrap() {
        assert!(matches!(armed, Ok(ArmResult::Armed(_))), "{armed:?}");
    }
}

async fn due(schedule: &Schedule, topic: &Topic<u32>, id: u32) -> Option<SystemTime> {
    match schedule.look_up(topic, id).await.unwrap()?.phase {
        TimerPhase::Waiting(at) => Some(at),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_withdrawn_each_with_its_own_result() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    arm(&schedule, &topic, 1500).await;
    // One is named twice, one was never armed, one can be no key of the topic.
    let keys = (0..1500).map(|id| id.to_string()).chain(["7".into(), "none".into(), "a:b".into()]);
    let results = schedule.cancel_many(&topic, keys).await.unwrap();
    assert_eq!(results.len(), 1503);
    assert!(results[..1500].iter().all(|one| *one.as_ref().unwrap() == Cancelled::Cancelled));
    assert_eq!(results[1500].as_ref().unwrap(), &Cancelled::NotArmed, "the later comes later");
    assert_eq!(results[1501].as_ref().unwrap(), &Cancelled::NotArmed);
    assert_eq!(results[1502].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(server.count(&["app:bulk:0", "app:bulk:1499"]).await, 0);
    assert_eq!(due(&schedule, &topic, 7).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_moved_each_with_its_own_result() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic();
    arm(&schedule, &topic, 600).await;
    let moves = (0..601).map(|id: u32| (id, 2 * LATER));
    let results = schedule.reschedule_many(&topic, moves).await.unwrap();
    for (id, result) in (0_u32..).zip(&results[..600]) {
        let Ok(Rescheduled::Rescheduled(to)) = result else { panic!("{result:?}") };
        if id % 100 == 0 {
            assert_eq!(due(&schedule, &topic, id).await, Some(*to));
            let expires: i64 =
                redis::from_redis_value(server.cmd(&["PEXPIRETIME", &format!("app:bulk:{id}")]).await)
                    .unwrap();
            let to = to.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
            assert_eq!(u128::try_from(expires).unwrap(), to, "its trigger key moves along");
        }
    }
    assert_eq!(results[600].as_ref().unwrap(), &Rescheduled::NotArmed);
    let far = schedule.reschedule_many(&topic, [(1_u32, Duration::MAX), (2, LATER)]).await.unwrap();
    assert_eq!(far[0].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(matches!(far[1], Ok(Rescheduled::Rescheduled(_))), "{far:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_come_of_a_stream_is_sent_while_the_next_lets_wait_for_itself() {
    let (_server, schedule) = server_and_schedule().await;
    let topic = topic();
    let (ids, coming) = mpsc::unbounded_channel::<u32>();
    let coming = futures::stream::unfold(coming, async |mut ids| Some((ids.recv().await?, ids)));
    let arms = coming.map(|id| NewArm::new(id, LATER, id)).boxed();
    let armed = tokio::spawn({
        let (schedule, topic) = (schedule.clone(), topic.clone());
        async move { schedule.arm_stream(&topic, arms).await }
    });
    for wave in 0..3 {
        (10 * wave..10 * wave + 10).for_each(|id| ids.send(id).unwrap());
        eventually(PATIENCE, "the last of them to be armed", async || {
            due(&schedule, &topic, 10 * wave + 9).await.is_some()
        })
        .await;
    }
    drop(ids);
    let results = armed.await.unwrap().unwrap();
    assert_eq!(results.len(), 30);
    assert!(results.iter().all(|one| matches!(one, Ok(ArmResult::Armed(_)))), "{results:?}");
    let cancelled = schedule.cancel_stream(&topic, futures::stream::iter(0..30_u32)).await.unwrap();
    assert!(cancelled.iter().all(|one| *one.as_ref().unwrap() == Cancelled::Cancelled));
    let moves = futures::stream::iter([(0_u32, LATER)]);
    let moved = schedule.reschedule_stream(&topic, moves).await.unwrap();
    assert_eq!(*moved[0].as_ref().unwrap(), Rescheduled::NotArmed);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_and_each_result_can_be_given_away() {
    let (_server, schedule) = server_and_schedule().await;
    let topic = topic();
    let (mut told, mut places) = (Vec::new(), Vec::new());
    let arms = (0..2600_u32).map(|id| NewArm::new(id % 2500, LATER, id));
    let count = schedule
        .arm_many(&topic, arms)
        .only_if_absent()
        .progress(|done| told.push(done))
        .for_each(|place, result| places.push((place, result.unwrap() == ArmResult::Exists)))
        .await
        .unwrap();
    assert_eq!(count, 2600);
    assert!(told.len() > 8 && told.is_sorted() && told.last() == Some(&2600), "{told:?}");
    places.sort_unstable();
    let expected: Vec<_> = (0..2600).map(|place| (place, place >= 2500)).collect();
    assert_eq!(places, expected);
}
