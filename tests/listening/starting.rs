//! How attempts begin, and what is handed back.

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::listening::{
    arm, arm_all, bed_with, cancel, listen, ms, one_timer, secs, stats, stuck, succeed, take_time, topic,
};
use keylapse::Cancelled;
use keylapse::Client;
use keylapse::Lapse;
use keylapse::Listener;
use keylapse::Schedule;
use keylapse::{Done, Failure};
use keylapse_support::times_are_judged;
use keylapse_testing::TestBed;

#[tokio::test(start_paused = true)]
async fn a_topic_is_registered_with_one_question_for_each_partition() {
    let bed = TestBed::counting();
    bed.schedule().resume(&topic().partitions(4)).await.unwrap();
    assert_eq!(bed.calls().made("init").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn of_what_is_held_each_starts_at_its_own_deadline_and_none_before() {
    let (bed, _) = bed_with(topic(), succeed).await;
    for (id, at) in [("4", 1004), ("1", 1001), ("3", 1003), ("0", 1000), ("2", 1002)] {
        arm(&bed, id, ms(at), 0).await;
    }
    bed.advance(secs(2)).await;
    let began: Vec<_> = bed.all_runs().iter().map(|run| run.began).collect();
    assert_eq!(began, [ms(1000), ms(1001), ms(1002), ms(1003), ms(1004)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_for_the_same_moment_starts_in_the_order_of_arming() {
    let (bed, _) = bed_with(topic(), succeed).await;
    let ids = ["z", "y", "x", "a", "b", "c", "m", "n", "o", "9"];
    arm_all(&bed, &ids, 0).await;
    bed.advance(secs(2)).await;
    let keys: Vec<_> = bed.all_runs().into_iter().map(|run| run.key).collect();
    assert_eq!(keys, ids.map(|id| format!("a:{id}")));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_handed_back_at_once_and_uses_up_no_attempt() {
    let (bed, first) = one_timer(topic(), succeed, 0).await;
    bed.advance(ms(998)).await;
    assert_eq!(stats(&first).claimed, 1, "it is held until its deadline");
    let counted = first.stats().clone();
    first.stop().await.unwrap();
    assert_eq!(counted.total().released, 1);
    assert_eq!(bed.elapsed(), ms(998));
    listen(&bed, topic(), succeed).await;
    bed.advance(ms(2)).await;
    let run = bed.all_runs().pop().unwrap();
    assert_eq!((run.began, run.attempt, run.redelivered), (secs(1), 1, false));
}

#[tokio::test(start_paused = true)]
async fn what_is_cancelled_while_it_is_held_never_starts() {
    let (bed, listening) = one_timer(topic(), succeed, 0).await;
    bed.advance(ms(998)).await;
    assert_eq!(cancel(&bed, "1").await, Cancelled::Claimed);
    bed.advance(secs(60)).await;
    assert_eq!(bed.all_runs(), []);
    assert_eq!((stats(&listening).claimed, stats(&listening).by_timer), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_listener_stops_as_soon_as_its_last_attempt_has_ended() {
    let (bed, listening) = one_timer(topic(), take_time, 3).await;
    bed.advance(secs(2)).await;
    let counted = listening.stats().clone();
    listening.stop().await.unwrap();
    assert_eq!(bed.elapsed(), secs(4));
    assert_eq!((counted.total().handled, counted.total().released), (1, 0));
    assert!(bed.schedule().look_up(&topic(), "1").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_within_the_grace_time_is_told_so_and_handed_back() {
    let bed = TestBed::counting();
    let first = bed.listen(|listener| listener.on(topic(), stuck).grace(secs(3))).await.unwrap();
    arm(&bed, "1", secs(1), 0).await;
    bed.until(|runs| !runs.is_empty()).await;
    let counted = first.stats().clone();
    first.stop().await.unwrap();
    assert_eq!((bed.elapsed(), counted.total().released), (secs(4), 1));
    listen(&bed, topic(), succeed).await;
    bed.advance(ms(1)).await;
    let run = bed.all_runs().pop().unwrap();
    assert_eq!((run.attempt, run.redelivered, run.is_done()), (1, false, true));
}

#[tokio::test(start_paused = true)]
async fn the_handler_can_see_that_its_timer_is_not_its_own_any_more() {
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |lapse: Lapse<u32>| {
        let told = told.clone();
        async move {
            told.send(lapse.has_lease()).unwrap();
            lapse.lease_lost().await;
            told.send(lapse.has_lease()).unwrap();
            Ok::<_, Failure>(Done)
        }
    };
    let (bed, _) = one_timer(topic(), handler, 0).await;
    bed.advance(secs(5)).await;
    assert_eq!((hears.recv().await, hears.try_recv().ok()), (Some(true), None));
    assert_eq!(cancel(&bed, "1").await, Cancelled::InFlight);
    bed.advance(ms(1)).await;
    assert_eq!(hears.try_recv().ok(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_timeout_are_failures_that_say_so() {
    let bed = TestBed::counting().expect_panics();
    let handler = async |lapse: Lapse<u32>| -> Result<Done, Failure> {
        match lapse.attempt() {
            1 => panic!("as the test says"),
            2 => panic!("at attempt {}", lapse.attempt()),
            _ => std::future::pending().await,
        }
    };
    let listening = listen(&bed, topic().timeout(secs(7)), handler).await;
    arm(&bed, "1", secs(1), 0).await;
    bed.until_finished().await;
    let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
    let told: Vec<_> =
        letters[0].history.iter().map(|failed| (failed.kind.as_str(), failed.error.as_str())).collect();
    let expected =
        [("panic", "as the test says"), ("panic", "at attempt 2"), ("timeout", "no end within 7s")];
    assert_eq!(told, expected);
    assert_eq!((stats(&listening).panics, stats(&listening).timeouts), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_policy_that_panics_is_followed_by_the_default() {
    let policy = keylapse::Backoff::custom(|_| panic!("as the test says"));
    let (bed, listening) = one_timer(topic().retry(policy).max_attempts(2), super::fail, 0).await;
    bed.advance(secs(2)).await;
    assert_eq!(bed.all_runs().len(), 2, "within a second");
    assert!(!bed.all_runs()[1].redelivered);
    assert_eq!((stats(&listening).panics, stats(&listening).dead), (1, 1));
}

/// Arms timers with these delays in ms, every second one once the listener runs, in real time. Returns the delay of each, in
/// the order of their starts, and the time from the first arm to its start.
async fn began_in_real_time(delays: &[u64]) -> Vec<(u64, std::time::Duration)> {
    let server = keylapse_testserver::TestServer::new();
    let client = Client::new("redis://in.this.process").unwrap();
    let client = client.connect_with(move || std::future::ready(Ok(server.connect())));
    let (ran, mut runs) = mpsc::unbounded_channel();
    let handler = move |lapse: Lapse<u32>| {
        let ran = ran.clone();
        async move { Ok::<_, Failure>(ran.send((*lapse.payload(), Instant::now()))?) }
    };
    let topic = topic().lookahead(secs(1));
    let listener = Listener::builder(client.clone()).on(topic.clone(), handler).build().unwrap();
    let schedule = Schedule::new(client);
    let armed = Instant::now();
    let arm = async |place: usize| {
        let payload = u32::try_from(delays[place]).unwrap();
        schedule.arm(&topic, [place.to_string()], ms(delays[place]), &payload).await.unwrap().is_armed()
    };
    for place in (0..delays.len()).step_by(2) {
        assert!(arm(place).await);
    }
    let mut began = Vec::new();
    let stats = listener.stats();
    let story = async {
        let claimed = async {
            while stats.total().claimed == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(secs(20), claimed).await.expect("what is armed is claimed");
        for place in (1..delays.len()).step_by(2) {
            assert!(arm(place).await);
        }
        for _ in delays {
            let run = tokio::time::timeout(secs(20), runs.recv()).await.expect("it starts").unwrap();
            began.push((u64::from(run.0), run.1 - armed));
        }
    };
    listener.run_until(story).await.unwrap();
    began
}

#[tokio::test]
async fn timed_in_real_time_a_thread_starts_what_is_held_none_early_and_in_order() {
    let began = began_in_real_time(&[900, 20, 800, 20, 850, 950]).await;
    assert!(began.iter().all(|(delay, after)| *after >= ms(*delay)), "{began:?}");
    let order: Vec<_> = began.iter().map(|(delay, _)| *delay).collect();
    println!("{began:?}");
    if times_are_judged() {
        assert_eq!(order, [20, 20, 800, 850, 900, 950]);
        assert!(began[1].1 + ms(100) < began[2].1, "what is due first waits for no other: {began:?}");
    }
}
