//! Several listeners, and every order in which they can wake.

use keylapse_protocol::damping::{Damping, LISTENERS};
use stateright::{Checker, Model};

#[test]
fn somebody_always_comes_in_time() {
    let model = Damping { listeners: LISTENERS, knows_rivals: true };
    let checker = model.checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Why a claim says whether a rival made the last one: a head that has moved
/// may just have been cancelled.
#[test]
fn without_rivals_being_named_a_lone_listener_would_step_back() {
    let model = Damping { listeners: 1, knows_rivals: false };
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.discovery("a lone listener leads, once it has claimed").is_some());
}
