//! A topic is destroyed while others arm and destroyers die, in every order.

use keylapse_protocol::destroying::{CALLS, Destroying, Rule};
use keylapse_protocol::rules::Rules;
use stateright::{Checker, Model};

/// Who uses force: nobody, one, and two at a time.
const FORCED: [[bool; CALLS]; 3] = [[false, false], [true, false], [true, true]];

/// The promises that do not hold.
fn broken(model: Destroying) -> (usize, Vec<&'static str>) {
    let promises: Vec<_> = model.properties().into_iter().map(|promise| promise.name).collect();
    let checker = model.checker().spawn_bfs().join();
    let is_always = |name: &str| !name.starts_with("a ") && !name.starts_with("an ");
    let broken = promises.into_iter().filter(|name| checker.discovery(name).is_some() == is_always(name));
    (checker.unique_state_count(), broken.collect())
}

#[test]
fn what_is_armed_meanwhile_is_in_or_refused_whoever_dies() {
    for forced in FORCED {
        let (states, broken) = broken(Destroying::new(forced, Rules::default()));
        println!("{states} states");
        // That takes one of each.
        let expected: &[_] = if forced[0] == forced[1] {
            &["a call without force ends what one with force began"]
        } else {
            &[]
        };
        assert_eq!(broken, expected, "{forced:?}");
    }
}

#[test]
fn no_rule_is_there_for_nothing() {
    let nobody = [false, false];
    let (one, both) = ([true, false], [true, true]);
    for (rule, forced, promise) in [
        (Rule::EmptyWhenClosed, nobody, "nothing armed is removed without force"),
        (Rule::OnlyWhatIsClosed, nobody, "nothing armed is removed without force"),
        (Rule::ForcedStaysClosed, one, "what was there before a call that ends well is gone"),
        (Rule::LeftoversAreOpened, both, "one more call leaves nothing closed"),
    ] {
        let (_, broken) = broken(Destroying::new(forced, Rules::without(rule)));
        assert!(broken.contains(&promise), "{rule:?}: {broken:?}");
    }
}
