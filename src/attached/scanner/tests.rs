use super::*;

const EVERY: Duration = Duration::from_secs(10);

fn known(mode: EventMode) -> Known {
    Known { anchored: true, mode, gaps: 1, can_enrol: true }
}

fn turn() -> Turn {
    let mut turn = Turn::new(EVERY);
    turn.is_ours(true);
    turn
}

/// A scan that ends with these signs, and the time until the next is due.
async fn scan(turn: &mut Turn, mode: EventMode, ends_with: Signs) -> Duration {
    turn.begins(known(mode), Signs::default());
    turn.ends(known(mode), ends_with);
    let began = Instant::now();
    while !turn.is_due(known(mode), ends_with) {
        tokio::time::sleep_until(turn.next.expect("it is ours")).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn where_all_is_heard_the_pause_doubles_while_nothing_new_is_found_up_to_sixteen_times() {
    let (mut turn, nothing) = (turn(), Signs::default());
    for times in [2, 4, 8, 16, 16] {
        assert_eq!(scan(&mut turn, EventMode::Changes, nothing).await, EVERY * times);
    }
    let found = Signs { enrolled: 1, failed: 0 };
    assert_eq!(scan(&mut turn, EventMode::Changes, found).await, EVERY);
    assert_eq!(scan(&mut turn, EventMode::Changes, nothing).await, EVERY * 2);
}

#[tokio::test(start_paused = true)]
async fn where_scans_are_needed_none_is_left_out() {
    for mode in [EventMode::Blind, EventMode::Expired, EventMode::SomeChanges] {
        let mut turn = turn();
        for _ in 0..3 {
            assert_eq!(scan(&mut turn, mode, Signs::default()).await, EVERY, "{mode}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_ends_with_a_gap_with_what_could_not_be_enrolled_and_with_the_flags() {
    let calm = known(EventMode::Changes);
    for (known, signs, ends) in [
        (calm, Signs::default(), false),
        (calm, Signs { enrolled: 5, failed: 0 }, false),
        (Known { gaps: 2, ..calm }, Signs::default(), true),
        (calm, Signs { enrolled: 0, failed: 1 }, true),
        (known(EventMode::Expired), Signs::default(), true),
    ] {
        let mut turn = turn();
        for _ in 0..4 {
            scan(&mut turn, EventMode::Changes, Signs::default()).await;
        }
        turn.begins(calm, Signs::default());
        turn.ends(calm, Signs::default());
        tokio::time::sleep(EVERY).await;
        assert_eq!(turn.is_due(known, signs), ends, "{known:?} {signs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_scan_is_left_out_after_one_that_was_not_finished_or_was_anothers() {
    for (ends, pause) in [
        ((|turn: &mut Turn| turn.breaks_off()) as fn(&mut Turn), Duration::from_millis(20)),
        (Turn::is_stuck, EVERY),
        (|turn| turn.is_ours(false), Duration::ZERO),
    ] {
        let (mut turn, calm) = (turn(), known(EventMode::Changes));
        scan(&mut turn, EventMode::Changes, Signs::default()).await;
        turn.begins(calm, Signs::default());
        ends(&mut turn);
        turn.is_ours(true);
        tokio::time::sleep(pause).await;
        assert!(turn.is_due(calm, Signs::default()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_for_another_serves_a_topic_when_half_of_its_pause_is_over() {
    let (mut turn, found) = (turn(), Signs { enrolled: 1, failed: 0 });
    turn.begins(known(EventMode::Expired), Signs::default());
    turn.ends(known(EventMode::Expired), found);
    tokio::time::sleep(EVERY / 2 - Duration::from_millis(1)).await;
    assert!(!turn.joins());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(turn.joins());
    turn.is_ours(false);
    assert!(!turn.joins() && !turn.is_due(known(EventMode::Expired), found));
}
