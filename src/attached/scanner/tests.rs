use super::*;

const EVERY: Duration = Duration::from_secs(10);

fn known(mode: EventMode) -> StreamSnapshot {
    StreamSnapshot { anchored: true, mode, gaps: 1, can_track: true }
}

fn turn() -> ScanSchedule {
    let mut turn = ScanSchedule::new(EVERY);
    turn.is_ours(true);
    turn
}

/// Runs a scan that ends with these counters. Returns the time until the next one is due.
async fn scan(turn: &mut ScanSchedule, mode: EventMode, ends_with: ScanProgress) -> Duration {
    turn.begins(known(mode), ScanProgress::default());
    turn.ends(known(mode), ends_with);
    let began = Instant::now();
    while !turn.is_due(known(mode), ends_with) {
        tokio::time::sleep_until(turn.next.expect("this listener scans")).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn where_all_is_heard_the_pause_doubles_while_nothing_new_is_found_up_to_sixteen_times() {
    let (mut turn, nothing) = (turn(), ScanProgress::default());
    for times in [2, 4, 8, 16, 16] {
        assert_eq!(scan(&mut turn, EventMode::Changes, nothing).await, EVERY * times);
    }
    let found = ScanProgress { enrolled: 1, failed: 0 };
    assert_eq!(scan(&mut turn, EventMode::Changes, found).await, EVERY);
    assert_eq!(scan(&mut turn, EventMode::Changes, nothing).await, EVERY * 2);
}

#[tokio::test(start_paused = true)]
async fn where_scans_are_needed_none_is_left_out() {
    for mode in [EventMode::ScanOnly, EventMode::Expired, EventMode::SomeChanges] {
        let mut turn = turn();
        for _ in 0..3 {
            assert_eq!(scan(&mut turn, mode, ScanProgress::default()).await, EVERY, "{mode}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_ends_with_a_gap_with_what_could_not_be_enrolled_and_with_the_flags() {
    let calm = known(EventMode::Changes);
    for (known, signs, ends) in [
        (calm, ScanProgress::default(), false),
        (calm, ScanProgress { enrolled: 5, failed: 0 }, false),
        (StreamSnapshot { gaps: 2, ..calm }, ScanProgress::default(), true),
        (calm, ScanProgress { enrolled: 0, failed: 1 }, true),
        (known(EventMode::Expired), ScanProgress::default(), true),
    ] {
        let mut turn = turn();
        for _ in 0..4 {
            scan(&mut turn, EventMode::Changes, ScanProgress::default()).await;
        }
        turn.begins(calm, ScanProgress::default());
        turn.ends(calm, ScanProgress::default());
        tokio::time::sleep(EVERY).await;
        assert_eq!(turn.is_due(known, signs), ends, "{known:?} {signs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_scan_is_left_out_after_one_that_was_not_finished_or_was_anothers() {
    for (ends, pause) in [
        (
            (|turn: &mut ScanSchedule| turn.on_interrupted()) as fn(&mut ScanSchedule),
            Duration::from_millis(20),
        ),
        (ScanSchedule::on_no_progress, EVERY),
        (|turn| turn.is_ours(false), Duration::ZERO),
    ] {
        let (mut turn, calm) = (turn(), known(EventMode::Changes));
        scan(&mut turn, EventMode::Changes, ScanProgress::default()).await;
        turn.begins(calm, ScanProgress::default());
        ends(&mut turn);
        turn.is_ours(true);
        tokio::time::sleep(pause).await;
        assert!(turn.is_due(calm, ScanProgress::default()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_for_another_serves_a_topic_when_half_of_its_pause_is_over() {
    let (mut turn, found) = (turn(), ScanProgress { enrolled: 1, failed: 0 });
    turn.begins(known(EventMode::Expired), ScanProgress::default());
    turn.ends(known(EventMode::Expired), found);
    tokio::time::sleep(EVERY / 2 - Duration::from_millis(1)).await;
    assert!(!turn.joins());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(turn.joins());
    turn.is_ours(false);
    assert!(!turn.joins() && !turn.is_due(known(EventMode::Expired), found));
}
