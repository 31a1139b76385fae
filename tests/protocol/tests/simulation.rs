//! What the design says of several listeners.

use keylapse_protocol::simulation::{LISTENERS, RATES, Setup, Tally, simulate};

fn run(listeners: usize, rate: f64, leader_dies: bool) -> Tally {
    let seconds = if rate < 1.0 { 400 } else { 30 };
    simulate(Setup { listeners, rate, seconds, seed: 7, leader_dies })
}

/// At every rate and with any company.
fn each(check: impl Fn(usize, f64, &Tally)) {
    for rate in RATES {
        for listeners in LISTENERS {
            check(listeners, rate, &run(listeners, rate, false));
        }
    }
}

#[test]
fn nothing_starts_early() {
    each(|listeners, rate, tally| {
        assert!(tally.started() > 100, "{listeners} listeners, {rate}/s: {tally}");
        assert!(tally.percentile(0) >= 0.0, "{listeners} listeners, {rate}/s: {tally}");
    });
}

#[test]
fn nearly_all_start_within_a_millisecond() {
    each(|listeners, rate, tally| {
        assert!(tally.percentile(99) < 1.0, "{listeners} listeners, {rate}/s: {tally}");
    });
}

/// The leader does what one alone would, and one of the others looks four times a second, in vain.
#[test]
fn eight_listeners_do_not_make_eight_times_the_work() {
    for rate in [100.0, 1_000.0, 10_000.0] {
        let [alone, eight] = [1, 8].map(|listeners| run(listeners, rate, false));
        assert!(eight.empty_share() < 0.12, "{rate}/s: {eight}");
        assert!(eight.claims_per_timer() < 1.2 * alone.claims_per_timer(), "{rate}/s: {alone}, {eight}");
    }
}

#[test]
fn company_costs_no_punctuality() {
    for rate in RATES {
        let alone = run(1, rate, false);
        for listeners in [2, 4, 8] {
            let crowd = run(listeners, rate, false);
            assert!(crowd.percentile(99) < alone.percentile(99) + 0.2, "{rate}/s: {alone}, {crowd}");
        }
    }
}

#[test]
fn a_lone_listener_always_leads() {
    for rate in RATES {
        let tally = run(1, rate, false);
        assert_eq!((tally.demotions, tally.leaders), (0, 1), "{rate}/s: {tally}");
    }
}

/// 250 ms, and what the runtime's timer and a claim take.
#[test]
fn a_dead_leader_costs_a_quarter_of_a_second() {
    for rate in RATES {
        for listeners in [2, 8] {
            let tally = run(listeners, rate, true);
            assert!(tally.percentile(100) < 260.0, "{listeners} listeners, {rate}/s: {tally}");
        }
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let [one, other] = [(), ()].map(|()| run(8, 100.0, true).to_string());
    assert_eq!(one, other);
}
