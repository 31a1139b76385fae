use super::*;

const EVERY: Duration = Duration::from_secs(10);

fn known(mode: EventMode) -> StreamSnapshot {
    StreamSnapshot { anchored: true, mode, gaps: 1, can_track: true }
}

fn schedule() -> ScanSchedule {
    let mut schedule = ScanSchedule::new(EVERY);
    schedule.set_scans(true);
    schedule
}

/// Runs a scan that ends with these counters. Returns the time until the next one is due.
async fn scan(schedule: &mut ScanSchedule, mode: EventMode, ends_with: ScanProgress) -> Duration {
    schedule.on_started(known(mode), ScanProgress::default());
    schedule.on_finished(known(mode), ends_with);
    let began = Instant::now();
    while !schedule.is_due_or_skip(known(mode), ends_with) {
        tokio::time::sleep_until(schedule.next.expect("this listener scans")).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn where_all_is_heard_the_pause_doubles_while_nothing_new_is_found_up_to_sixteen_times() {
    let (mut schedule, nothing) = (schedule(), ScanProgress::default());
    for times in [2, 4, 8, 16, 16] {
        assert_eq!(scan(&mut schedule, EventMode::Changes, nothing).await, EVERY * times);
    }
    let found = ScanProgress { tracked: 1, failed: 0 };
    assert_eq!(scan(&mut schedule, EventMode::Changes, found).await, EVERY);
    assert_eq!(scan(&mut schedule, EventMode::Changes, nothing).await, EVERY * 2);
}

#[tokio::test(start_paused = true)]
async fn where_scans_are_needed_none_is_left_out() {
    for mode in [EventMode::ScanOnly, EventMode::Expired, EventMode::SomeChanges] {
        let mut schedule = schedule();
        for _ in 0..3 {
            assert_eq!(scan(&mut schedule, mode, ScanProgress::default()).await, EVERY, "{mode}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_ends_with_a_gap_with_what_could_not_be_enrolled_and_with_the_flags() {
    let calm = known(EventMode::Changes);
    for (known, progress, ends) in [
        (calm, ScanProgress::default(), false),
        (calm, ScanProgress { tracked: 5, failed: 0 }, false),
        (StreamSnapshot { gaps: 2, ..calm }, ScanProgress::default(), true),
        (calm, ScanProgress { tracked: 0, failed: 1 }, true),
        (known(EventMode::Expired), ScanProgress::default(), true),
    ] {
        let mut schedule = schedule();
        for _ in 0..4 {
            scan(&mut schedule, EventMode::Changes, ScanProgress::default()).await;
        }
        schedule.on_started(calm, ScanProgress::default());
        schedule.on_finished(calm, ScanProgress::default());
        tokio::time::sleep(EVERY).await;
        assert_eq!(schedule.is_due_or_skip(known, progress), ends, "{known:?} {progress:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_scan_is_left_out_after_one_that_was_not_finished_or_was_anothers() {
    for (ends, pause) in [
        (
            (|schedule: &mut ScanSchedule| schedule.on_interrupted()) as fn(&mut ScanSchedule),
            Duration::from_millis(20),
        ),
        (ScanSchedule::on_too_slow, EVERY),
        (|schedule| schedule.set_scans(false), Duration::ZERO),
    ] {
        let (mut schedule, calm) = (schedule(), known(EventMode::Changes));
        scan(&mut schedule, EventMode::Changes, ScanProgress::default()).await;
        schedule.on_started(calm, ScanProgress::default());
        ends(&mut schedule);
        schedule.set_scans(true);
        tokio::time::sleep(pause).await;
        assert!(schedule.is_due_or_skip(calm, ScanProgress::default()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_for_another_serves_a_topic_when_half_of_its_pause_is_over() {
    let (mut schedule, found) = (schedule(), ScanProgress { tracked: 1, failed: 0 });
    schedule.on_started(known(EventMode::Expired), ScanProgress::default());
    schedule.on_finished(known(EventMode::Expired), found);
    tokio::time::sleep(EVERY / 2 - Duration::from_millis(1)).await;
    assert!(!schedule.may_join());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(schedule.may_join());
    schedule.set_scans(false);
    assert!(!schedule.may_join() && !schedule.is_due_or_skip(known(EventMode::Expired), found));
}
