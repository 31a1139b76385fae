//! P4: a listener that was paused for longer than its lease changes nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use keylapse::timers::TimerPhase;
use keylapse_support::{Server, eventually};
use rustix::process::Signal;

use crate::crash::child::{Journal, Listening, arm, scheduled};

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_listener_that_wakes_up_after_its_lease_is_told_and_ignored() {
    // Long enough to be kept by a busy machine until the listener is stopped.
    let lease = Duration::from_secs(3);
    let server = Server::start().await;
    let (topic, schedule) = scheduled(&server, "stop", lease).await;
    let sleeper = Listening::start(&server, "stop", lease);
    let mut journal = Journal::of(&server, "app:stop:1").await;
    arm(&schedule, &topic, "1", Duration::ZERO, "until lost").await;
    let first = journal.next(Duration::from_secs(60)).await;
    assert_eq!((first.pid, first.redelivered), (sleeper.pid(), false));
    sleeper.signal(Signal::STOP);
    let other = Listening::start(&server, "stop", lease);
    let again = journal.next(Duration::from_secs(60)).await;
    assert_eq!((again.what.as_str(), again.pid, again.redelivered), ("started", other.pid(), true));
    assert_eq!(journal.next(Duration::from_secs(60)).await.what, "ended");
    sleeper.signal(Signal::CONT);
    let told = journal.next(Duration::from_secs(60)).await;
    assert_eq!((told.what.as_str(), told.pid), ("told", sleeper.pid()));
    let gone = async || schedule.look_up(&topic, ["1"]).await.expect("a look").is_none();
    eventually(Duration::from_secs(60), "the other one has ended it", gone).await;
    assert_eq!(schedule.dead_letter_counts(&topic).await.expect("counts").0, 0);
}

/// It had claimed the timer ahead of its deadline, and was about to start it.
#[tokio::test(flavor = "multi_thread")]
async fn p4_a_listener_that_wakes_up_after_its_lease_does_not_start_what_it_held() {
    let lease = Duration::from_secs(4);
    let server = Server::start().await;
    let (topic, schedule) = scheduled(&server, "held", lease).await;
    let sleeper = Listening::start(&server, "held", lease);
    let arm = |id, delay| arm(&schedule, &topic, id, delay, "once");
    arm("0", Duration::ZERO).await;
    let mut started = Journal::of(&server, "app:held:0").await;
    assert_eq!(started.next(Duration::from_secs(60)).await.pid, sleeper.pid());

    // Within the lookahead, so that the look for another takes it along; and far enough to be stopped before.
    arm("1", Duration::from_millis(900)).await;
    arm("0", Duration::ZERO).await;
    let claimed = async || {
        let timer = schedule.look_up(&topic, ["1"]).await.expect("a look");
        timer.is_some_and(|timer| matches!(timer.phase, TimerPhase::Running(_)))
    };
    eventually(Duration::from_secs(60), "the timer is held", claimed).await;
    sleeper.signal(Signal::STOP);
    let mut journal = Journal::of(&server, "app:held:1").await;
    let mut other = Listening::start(&server, "held", lease);
    let again = journal.next(Duration::from_secs(60)).await;
    assert_eq!((again.pid, again.redelivered), (other.pid(), true));
    assert_eq!(journal.next(Duration::from_secs(60)).await.what, "ended");
    other.kill();

    sleeper.signal(Signal::CONT);
    arm("2", Duration::ZERO).await;
    let mut alive = Journal::of(&server, "app:held:2").await;
    assert_eq!(alive.next(Duration::from_secs(60)).await.pid, sleeper.pid());
    assert_eq!(journal.left().await, 0, "it has started what another had run");
}

/// Attempts of each arming, as (from, to): when they saw that they held the lease.
fn held(ledger: &str) -> HashMap<&str, Vec<(i128, i128)>> {
    let mut armings = HashMap::<_, Vec<_>>::new();
    for line in ledger.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [arming, from, to] = words[..] else { panic!("a line: {line}") };
        armings.entry(arming).or_default().push((from.parse().expect("a time"), to.parse().expect("a time")));
    }
    armings
}

/// Three processes, of which one or another stands still for up to two leases.
#[tokio::test(flavor = "multi_thread")]
async fn p4_no_two_attempts_of_one_arming_hold_the_lease_whoever_is_stopped() {
    let lease = Duration::from_millis(800);
    let server = Server::start().await;
    let (topic, schedule) = scheduled(&server, "witness", lease).await;
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = folder.path().join("ledger");
    let crowd: Vec<_> = (0..3).map(|_| Listening::start_with(&server, "witness", lease, &ledger)).collect();
    for n in 0..300_u64 {
        arm(&schedule, &topic, &n.to_string(), Duration::from_millis(n * 30), "hold").await;
    }
    let until = Instant::now() + Duration::from_secs(10);
    for stop in 0.. {
        if Instant::now() >= until {
            break;
        }
        let one = &crowd[rand::random_range(0..3)];
        one.signal(Signal::STOP);
        // Chance alone may never stop anybody for longer than a lease.
        let long = if stop % 3 == 0 { 1500..1600 } else { 50..1600 };
        tokio::time::sleep(Duration::from_millis(rand::random_range(long))).await;
        one.signal(Signal::CONT);
        tokio::time::sleep(Duration::from_millis(rand::random_range(1..300))).await;
    }
    let records = format!("keylapse:{{{}/0}}:rec", topic.name());
    let over = async || server.cmd(&["HLEN", &records]).await == redis::Value::Int(0);
    eventually(Duration::from_secs(60), "all have ended", over).await;
    drop(crowd);
    let ledger = std::fs::read_to_string(&ledger).expect("a ledger");
    let armings = held(&ledger);
    let mut repeated = 0;
    for (arming, mut attempts) in armings {
        attempts.sort_unstable();
        repeated += usize::from(attempts.len() > 1);
        for pair in attempts.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{arming}: both held it: {attempts:?}");
        }
    }
    assert!(repeated > 0, "nobody was stopped for long enough");
}
