//! Whatever happens to notifications: one run, never early.

use std::time::Duration;

use keylapse::handler::LapseSource;
use keylapse_testing::{HandlerRun, Notifications, TestBed};

use crate::kit::support::{arm, bed, bed_with_one, listen, ms, reminders, secs, succeed};

/// Arms three timers under a fault and lets time pass to just before the first, then
/// beyond the last and what any fault may cost.
async fn under(fault: impl FnOnce(&Notifications)) -> (TestBed, Vec<HandlerRun>) {
    let bed = bed().await;
    fault(bed.notifications());
    for (id, delay) in [("c", 32), ("a", 30), ("b", 31)] {
        arm(&bed, id, secs(delay)).await;
    }
    bed.advance(secs(30) - ms(1)).await;
    assert_eq!(bed.all_runs(), [], "nothing is early");
    bed.advance(secs(60)).await;
    let runs = bed.runs(&reminders());
    let keys: Vec<_> = runs.iter().map(|run| &run.key[..]).collect();
    assert_eq!(keys, [&b"reminder:a"[..], b"reminder:b", b"reminder:c"], "each ran once: {runs:#?}");
    (bed, runs)
}

fn assert_on_time(runs: &[HandlerRun]) {
    assert!(runs.iter().all(|run| run.lateness == Duration::ZERO), "{runs:#?}");
}

#[tokio::test(start_paused = true)]
async fn without_faults_all_is_heard_and_on_time() {
    let (bed, runs) = under(|_| {}).await;
    assert_on_time(&runs);
    assert_eq!(bed.notifications().lost(), 0);
    // Two of the three arms lowered the head, and each of the keys expired.
    assert_eq!(bed.notifications().delivered(), 2 + 3);
}

#[tokio::test(start_paused = true)]
async fn lost_notifications_cost_nothing_that_a_sweep_can_find_in_time() {
    let (bed, runs) = under(|notifications| _ = notifications.lose()).await;
    assert_on_time(&runs);
    assert_eq!((bed.notifications().delivered(), bed.notifications().lost()), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn a_short_timer_that_nobody_hears_of_waits_for_the_sweep() {
    let bed = bed().await;
    bed.advance(secs(7)).await; // the listener is calm: it sweeps every 5 s
    bed.notifications().lose();
    arm(&bed, "a", secs(1)).await;
    let run = bed.until_ran(&reminders(), ["a"]).await;
    assert_eq!(run.source, LapseSource::Sweep);
    assert!(run.lateness <= secs(4), "{run:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_key_that_is_heard_makes_good_a_lost_wake_up() {
    let bed = bed().await;
    bed.advance(secs(7)).await;
    bed.notifications().lose_next(1);
    arm(&bed, "a", secs(1)).await;
    let run = bed.until_ran(&reminders(), ["a"]).await;
    assert_eq!(run.source, LapseSource::Notification);
    assert!(run.lateness < ms(150), "{run:?}");
}

#[tokio::test(start_paused = true)]
async fn late_notifications_make_nothing_late() {
    let (bed, runs) = under(|notifications| _ = notifications.delay(secs(8))).await;
    assert_on_time(&runs);
    assert_eq!(bed.notifications().delivered(), 5, "all of them, in the end");
}

#[tokio::test(start_paused = true)]
async fn duplicates_run_nothing_twice() {
    let (bed, runs) = under(|notifications| _ = notifications.duplicate(2)).await;
    assert_on_time(&runs);
    assert_eq!(bed.notifications().delivered(), 3 * 5);
}

#[tokio::test(start_paused = true)]
async fn order_does_not_matter() {
    let (bed, runs) = under(|notifications| _ = notifications.reorder(secs(3))).await;
    assert_on_time(&runs);
    assert_eq!(bed.notifications().delivered(), 5);
}

#[tokio::test(start_paused = true)]
async fn all_faults_at_once_are_no_worse() {
    let all = |notifications: &Notifications| {
        notifications.delay(secs(2)).duplicate(3).reorder(secs(1)).lose_next(2);
    };
    let (bed, runs) = under(all).await;
    assert_on_time(&runs);
    assert_eq!((bed.notifications().delivered(), bed.notifications().lost()), (4 * 3, 2));
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_and_swept_through_every_second() {
    let bed = TestBed::new();
    let listening = listen(&bed, succeed).await;
    let stats = listening.stats().clone();
    bed.notifications().silence();
    bed.advance(secs(10)).await;
    assert!(stats.listener().gaps >= 5, "{:?}", stats.listener());

    arm(&bed, "a", ms(100)).await;
    let run = bed.until_ran(&reminders(), ["a"]).await;
    assert_eq!(run.source, LapseSource::Sweep);
    assert!(run.lateness <= secs(1), "{run:?}");

    let anchored = stats.listener().anchored;
    bed.notifications().heal();
    bed.advance(secs(2)).await; // a canary that was lost before is still missed
    let gaps = stats.listener().gaps;
    bed.advance(secs(10)).await;
    assert_eq!((stats.listener().gaps, stats.listener().anchored), (gaps, anchored + 1));
    arm(&bed, "b", ms(100)).await;
    let run = bed.until_ran(&reminders(), ["b"]).await;
    assert_eq!((run.source, run.lateness), (LapseSource::Timer, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_noticed_at_once() {
    let bed = TestBed::new();
    let listening = listen(&bed, succeed).await;
    let stats = listening.stats().clone();
    bed.advance(secs(1)).await;
    bed.notifications().disconnect();
    bed.advance(ms(1)).await;
    assert_eq!(stats.listener().gaps, 1);
    bed.advance(secs(60)).await;
    assert_eq!(stats.listener().anchored, 1, "nobody can subscribe");
    bed.notifications().heal();
    bed.advance(secs(6)).await;
    assert_eq!(stats.listener().anchored, 2);
}

#[tokio::test(start_paused = true)]
async fn a_forged_event_runs_nothing() {
    let bed = bed_with_one(succeed, secs(30)).await;
    bed.notifications().forge("reminder:a").forge("reminder:none").forge([0xff; 100]);
    bed.advance(secs(29)).await;
    assert_eq!(bed.all_runs(), []);
    bed.advance(secs(1)).await;
    assert_eq!(bed.all_runs().len(), 1);
}
