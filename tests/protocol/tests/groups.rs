//! What the scheme of the quarantine's groups is to do, and what others do not.

use keylapse_protocol::simulation::groups::{
    ALONE, CHOSEN, HALF, HALVES, Outcome, ROOT, Scene, Scheme, play,
};
use keylapse_protocol::simulation::scenes::{self, SECOND_CRASH};

const SECOND: u64 = 1_000;

fn healthy_after(outcome: Outcome) -> u64 {
    outcome.healthy.expect("all that is healthy has run")
}

/// With the default lease, which has to end first: one after the other, it took seventeen minutes.
#[test]
fn two_crashes_of_a_full_listener_are_made_good_within_a_minute() {
    let [chosen, alone] = [CHOSEN, ALONE].map(|scheme| play(&scenes::two_crashes(), scheme));
    assert!(healthy_after(chosen) < SECOND_CRASH + 60 * SECOND, "{chosen}");
    assert!(healthy_after(alone) > SECOND_CRASH + 1_000 * SECOND, "{alone}");
}

/// A slow one takes its own place, and no more.
#[test]
fn no_group_waits_for_the_end_of_the_one_before() {
    let [chosen, whole] =
        [false, true].map(|whole| play(&scenes::two_crashes_of_mixed_work(), Scheme { whole, ..CHOSEN }));
    assert!(healthy_after(chosen) + 20 * SECOND < healthy_after(whole), "{chosen}, {whole}");
}

#[test]
fn a_pill_among_a_hundred_takes_five_listeners_down_and_no_bystander_along() {
    for strikes_after in [20, 5 * SECOND] {
        let scene = scenes::a_pill(strikes_after);
        let [chosen, half, halves] = [CHOSEN, HALF, HALVES].map(|scheme| play(&scene, scheme));
        assert_eq!((chosen.crashes, chosen.wronged), (5, 0), "{chosen}");
        assert!(healthy_after(chosen) * 2 < healthy_after(half), "{chosen}, {half}");
        assert_eq!(halves.crashes, 8, "as many as it takes to halve a hundred");
    }
}

#[test]
fn no_healthy_timer_dies_among_pills_and_what_waits_becomes_less() {
    for (lease, listeners) in [(SECOND, 1), (2 * SECOND, 1), (30 * SECOND, 1), (2 * SECOND, 4)] {
        let scene = scenes::a_pill_each_second(lease, listeners);
        let outcome = play(&scene, CHOSEN);
        assert_eq!(outcome.wronged, 0, "{outcome}");
        let waits = |at| play(&Scene { until: at * SECOND, ..scene.clone() }, CHOSEN).suspects;
        let from = 35 + 2 * lease / SECOND;
        let waits = [from, from + 30, from + 60].map(waits);
        assert!(waits.is_sorted_by(|before, after| before > after), "{waits:?}");
    }
}

/// What takes a listener down while one of the quarantine runs may be among the ordinary ones: so a new listener waits.
#[test]
fn a_listener_that_has_just_been_started_convicts_nobody() {
    for listeners in [1, 4] {
        let scene = Scene { listeners, ..scenes::a_pill_now_and_then() };
        let [chosen, at_once] = [CHOSEN, ROOT].map(|scheme| play(&scene, scheme));
        assert_eq!(chosen.wronged, 0, "{chosen}");
        assert!(at_once.wronged > 5, "{at_once}");
    }
}
