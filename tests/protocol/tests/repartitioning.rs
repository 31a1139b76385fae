//! A topic gets another number of partitions while others arm and run, and callers die, in every order.

use keylapse_protocol::repartitioning::{CALLS, Repartitioning, Rule};
use keylapse_protocol::rules::Rules;
use stateright::{Checker, Model};

/// How many partitions there are, and how many each call asks for: the same, or there and back.
const TARGETS: [(usize, [usize; CALLS]); 4] =
    [(1, [2, 2, 0]), (2, [1, 1, 0]), (1, [2, 2, 1]), (2, [1, 1, 2])];

/// The promises that do not hold.
fn broken(model: Repartitioning) -> (usize, Vec<&'static str>) {
    let promises: Vec<_> = model.properties().into_iter().map(|promise| promise.name).collect();
    let checker = model.checker().spawn_bfs().join();
    let is_always =
        |name: &str| !name.starts_with("a timer is armed") && !name.starts_with("a timer is held");
    let broken = promises.into_iter().filter(|name| checker.discovery(name).is_some() == is_always(name));
    (checker.unique_state_count(), broken.collect())
}

#[test]
fn every_timer_is_in_one_place_whoever_dies() {
    for (from, targets) in TARGETS {
        let (states, broken) = broken(Repartitioning::new(from, targets, Rules::default()));
        println!("{from} to {targets:?}: {states} states");
        assert!(broken.is_empty(), "{from} to {targets:?}: {broken:?}");
    }
}

#[test]
fn no_rule_is_there_for_nothing() {
    for (rule, (from, targets), promise) in [
        (Rule::ClosedBeforeMoved, TARGETS[1], "there is one truth"),
        (Rule::ConfirmedBeforeClosed, TARGETS[2], "there is one truth"),
        (Rule::PausedUntilClosed, TARGETS[1], "whoever runs can say how it ended"),
        (Rule::PutBeforeRemoved, TARGETS[0], "what was armed is there until it has run"),
        (Rule::NobodyRuns, TARGETS[0], "whoever runs can say how it ended"),
        (Rule::UnderOneId, TARGETS[2], "what has run does not come back"),
        (Rule::FirstIsClosedFirst, TARGETS[2], "there is one truth"),
        (Rule::RetiredStays, TARGETS[1], "there is one truth"),
        (Rule::LeftoversAreOpened, TARGETS[0], "one more call ends it, or is told which"),
        (Rule::LeftoversAreChecked, TARGETS[2], "there is one truth"),
    ] {
        let (_, broken) = broken(Repartitioning::new(from, targets, Rules::without(rule)));
        println!("{rule:?}: {broken:?}");
        assert!(broken.contains(&promise), "{rule:?}: {broken:?}");
    }
}
