use super::*;
use crate::time::ServerTime;

/// The server's time in these tests, in ms.
const NOW: u64 = 1_000_000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a timer that has claimed before.
fn settled_in() -> DeadlineTimer {
    DeadlineTimer { has_result: true, ..DeadlineTimer::new(ms(10)) }
}

fn reading() -> ClockReading {
    ClockReading::now(ServerTime::from_ms(NOW))
}

/// Returns the result of a claim with this next deadline, which found something or nothing.
fn seen(head: Option<u64>, empty: bool) -> WakeResult {
    WakeResult {
        reading: reading(),
        stamp: ServerTime::from_ms(NOW),
        head,
        empty,
        rival: None,
        standby: false,
    }
}

fn from_rival(head: Option<u64>) -> WakeResult {
    WakeResult { rival: Some(NOW), ..seen(head, true) }
}

fn head(ms: u64) -> Option<EarliestDeadline> {
    Some(EarliestDeadline { ms, at: reading().when(ms), last_seen: NOW, exactly: false })
}

/// Returns the wake-up and the clock of a partition whose server has answered, or has not yet.
fn partition(answered: bool) -> (Wakeup, ServerClock) {
    let clock = ServerClock::default();
    if answered {
        clock.update(Instant::now(), reading());
    }
    (Wakeup::default(), clock)
}

#[tokio::test(start_paused = true)]
async fn a_claimer_follows_only_if_a_rival_took_the_timer_for_which_it_woke() {
    let after = |seen: WakeResult, woke_for, source| {
        DeadlineTimer { woke_for, ..settled_in() }.plan_next(seen, source)
    };
    assert!(after(from_rival(Some(NOW + 1)), head(NOW), LapseSource::Timer));
    assert!(after(from_rival(None), head(NOW), LapseSource::Timer));

    assert!(!after(seen(Some(NOW + 1), true), head(NOW), LapseSource::Timer), "it was cancelled");
    assert!(!after(from_rival(Some(NOW)), head(NOW), LapseSource::Timer), "it is still there");
    assert!(!after(from_rival(Some(NOW - 1)), head(NOW), LapseSource::Timer), "something earlier is there");
    assert!(!after(from_rival(Some(NOW + 1)), head(NOW), LapseSource::Sweep), "it did not wake for it");
    assert!(!after(from_rival(Some(NOW + 1)), None, LapseSource::Timer), "it did not wake for a deadline");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_claimed_only_before_this_deadline_was_known_is_no_rival() {
    for (took, beaten) in [(NOW - 60_000, false), (NOW - 1, false), (NOW, true), (NOW + 1, true)] {
        let mut timer = DeadlineTimer { woke_for: head(NOW), ..settled_in() };
        let seen = WakeResult { rival: Some(took), ..seen(None, true) };
        assert_eq!(timer.plan_next(seen, LapseSource::Timer), beaten, "{took}");
    }
    // An announced deadline is known from the time of its announcement.
    let (wakeup, clock) = partition(true);
    let mut timer = settled_in();
    tokio::time::advance(ms(100)).await;
    wakeup.announce_deadline(NOW + 200);
    timer.plan_pending(&wakeup, &clock);
    assert_eq!(timer.head.unwrap().last_seen, NOW + 100);
}

#[tokio::test(start_paused = true)]
async fn a_follower_claims_only_unclaimed_timers_until_it_leads() {
    let mut timer = DeadlineTimer { woke_for: head(NOW), ..settled_in() };
    assert_eq!(timer.reach(), 10);
    timer.plan_next(from_rival(None), LapseSource::Timer);
    assert_eq!(timer.reach(), -13);
    timer.plan_next(seen(None, false), LapseSource::Timer);
    assert_eq!(timer.reach(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_called_follower_claims_when_timers_count_as_unclaimed() {
    let (wakeup, clock) = partition(true);
    let mut timer = settled_in();
    let called = async |timer: &mut DeadlineTimer, ms| {
        wakeup.announce_unclaimed(ms);
        wakeup.wait().await;
        timer.plan_pending(&wakeup, &clock);
        timer.planned.take()
    };
    assert_eq!(called(&mut timer, NOW).await, None, "a leader claims anyway");
    timer.leadership.lost();
    for (left, at) in [(NOW - 60_000, 13), (NOW, 13), (NOW + 3, 16)] {
        assert_eq!(called(&mut timer, left).await, Some((Instant::now() + ms(at), LapseSource::Timer)));
    }
    timer.paused_until = Instant::now() + ms(50);
    assert_eq!(called(&mut timer, NOW).await.unwrap().0, timer.paused_until, "the pause limits forged calls");
    timer.planned = Some((Instant::now(), LapseSource::Sweep));
    assert_eq!(called(&mut timer, NOW).await, Some((Instant::now(), LapseSource::Sweep)));
}

#[tokio::test(start_paused = true)]
async fn a_follower_rests_while_another_is_the_standby() {
    let mut timer = DeadlineTimer { woke_for: head(NOW), ..settled_in() };
    let (wakeup, clock) = partition(true);
    timer.plan_next(WakeResult { standby: true, ..from_rival(Some(NOW + 10)) }, LapseSource::Timer);
    let waits = tokio::time::timeout(ms(5000), timer.due(&wakeup, &clock)).await;
    assert!(waits.is_err(), "another is the standby");
    timer.plan_next(from_rival(Some(NOW + 10)), LapseSource::Sweep);
    let waits = tokio::time::timeout(ms(261), timer.due(&wakeup, &clock)).await;
    assert_eq!(waits, Ok(LapseSource::Timer), "without another standby, this one is the standby");
    timer.plan_next(seen(None, true), LapseSource::Timer);
    assert_eq!(timer.leadership, Leadership::default(), "no other listener claims");
}

#[tokio::test(start_paused = true)]
async fn a_server_clock_that_is_set_forward_advances_the_claim() {
    let (wakeup, clock) = partition(true);
    let mut timer = settled_in();
    timer.head = head(NOW + 60_000);
    clock.update(Instant::now(), ClockReading::now(ServerTime::from_ms(NOW + 59_000)));
    wakeup.announce_deadline(NOW + 60_000);
    timer.plan_pending(&wakeup, &clock);
    assert_eq!(timer.head.unwrap().at, Instant::now() + ms(1000));
}

#[tokio::test(start_paused = true)]
async fn a_successful_claim_leads_and_does_not_pause() {
    let mut timer = DeadlineTimer { woke_for: head(NOW), ..settled_in() };
    assert!(timer.plan_next(from_rival(None), LapseSource::Timer));
    assert_ne!(timer.leadership, Leadership::default());
    let paused_until = timer.paused_until;
    tokio::time::advance(ms(100)).await;
    timer.plan_next(seen(None, false), LapseSource::Timer);
    assert_eq!((timer.leadership, timer.paused_until), (Leadership::default(), paused_until));
}

#[tokio::test(start_paused = true)]
async fn an_empty_claim_delays_due_timers_but_not_later_ones() {
    for (due, at) in [(NOW - 9, 5), (NOW, 5), (NOW + 1, 1), (NOW + 9, 9)] {
        let mut timer = settled_in();
        timer.plan_next(seen(Some(due), true), LapseSource::Sweep);
        let head = timer.head.unwrap();
        assert_eq!((head.ms, head.at), (due, Instant::now() + ms(at)));
        assert!(head.exactly, "an early claim has just found nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_claim_delays_nothing() {
    let mut timer = DeadlineTimer::due_now(ms(10));
    timer.plan_next(seen(Some(NOW), true), LapseSource::Sweep);
    assert_eq!(timer.head.unwrap().at, Instant::now());
    timer.plan_next(seen(Some(NOW), true), LapseSource::Sweep);
    assert_eq!(timer.head.unwrap().at, Instant::now() + EMPTY_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn after_a_successful_claim_the_next_one_is_early() {
    let mut timer = settled_in();
    timer.plan_next(seen(Some(NOW + 9), false), LapseSource::Timer);
    assert!(!timer.head.unwrap().exactly);
}

#[tokio::test(start_paused = true)]
async fn only_an_earlier_announced_deadline_changes_the_plan() {
    let (wakeup, clock) = partition(true);
    let mut timer = settled_in();
    let announce = |timer: &mut DeadlineTimer, ms| {
        wakeup.announce_deadline(ms);
        timer.plan_pending(&wakeup, &clock);
        let head = timer.head.unwrap();
        assert_eq!(head.at, reading().when(head.ms));
        (head.ms, head.exactly)
    };
    assert_eq!(announce(&mut timer, NOW + 50), (NOW + 50, false));
    assert_eq!(announce(&mut timer, NOW + 60), (NOW + 50, false));
    assert_eq!(announce(&mut timer, NOW + 40), (NOW + 40, false));
    timer.head.as_mut().unwrap().exactly = true;
    assert_eq!(announce(&mut timer, NOW + 40), (NOW + 40, true), "an early claim is not repeated");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_announced_during_a_pause_is_claimed_when_it_ends() {
    let (wakeup, clock) = partition(true);
    let mut timer = settled_in();
    timer.paused_until = Instant::now() + ms(5);
    let announce = |timer: &mut DeadlineTimer, ms| {
        timer.head = None;
        wakeup.announce_deadline(ms);
        timer.plan_pending(&wakeup, &clock);
        let head = timer.head.unwrap();
        (head.at - Instant::now(), head.exactly)
    };
    assert_eq!(announce(&mut timer, NOW + 2), (ms(5), true));
    assert_eq!(announce(&mut timer, NOW + 5), (ms(5), false), "it is not delayed");
    assert_eq!(announce(&mut timer, NOW + 9), (ms(9), false));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_planned_claim_keeps_its_first_reason() {
    let (wakeup, clock) = partition(true);
    let mut timer = settled_in();
    let now = Instant::now();
    let announce = |timer: &mut DeadlineTimer, (at, source)| {
        wakeup.request(at, source);
        timer.plan_pending(&wakeup, &clock);
        timer.planned
    };
    let first = (now + ms(9), LapseSource::Notification);
    assert_eq!(announce(&mut timer, first), Some(first));
    assert_eq!(announce(&mut timer, (now + ms(9), LapseSource::Sweep)), Some(first));
    assert_eq!(announce(&mut timer, (now + ms(20), LapseSource::Sweep)), Some(first));
    let earlier = (now, LapseSource::Sweep);
    assert_eq!(announce(&mut timer, earlier), Some(earlier));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_without_a_reading_of_the_clock_is_claimed_immediately() {
    let (wakeup, clock) = partition(false);
    let mut timer = settled_in();
    wakeup.announce_deadline(NOW + 50);
    timer.plan_pending(&wakeup, &clock);
    assert_eq!(timer.planned, Some((Instant::now(), LapseSource::Timer)));
    assert!(timer.head.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_and_claim_are_kept_until_they_are_taken() {
    let (wakeup, now) = (Wakeup::default(), Instant::now());
    let at = |ms| now + Duration::from_millis(ms);
    [7, 5, 6].into_iter().for_each(|ms| wakeup.announce_deadline(ms));
    wakeup.request(at(7), LapseSource::Sweep);
    wakeup.request(at(5), LapseSource::Timer);
    wakeup.request(at(5), LapseSource::Sweep); // the first reason is kept
    wakeup.request(at(6), LapseSource::Sweep);
    wakeup.wait().await;
    let pending = wakeup.take_pending();
    assert_eq!((pending.head, pending.requested), (Some(5), Some((at(5), LapseSource::Timer))));
    wakeup.request(at(5), LapseSource::Notification);
    wakeup.request(at(6), LapseSource::Sweep); // followers ignore a notification
    assert_eq!(wakeup.take_pending().requested, Some((at(6), LapseSource::Sweep)));
    let nothing = wakeup.take_pending();
    assert_eq!((nothing.head, nothing.requested), (None, None));
}
