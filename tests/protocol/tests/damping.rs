//! Several listeners, and every order in which they can wake.

use keylapse_protocol::damping::{Damping, LISTENERS, Told};
use stateright::{Checker, Model};

#[test]
fn somebody_always_comes_in_time_and_nobody_steps_back_but_for_a_living_rival() {
    let checker = Damping { listeners: LISTENERS, told: Told::When }.checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn a_lone_listener_leads_whoever_was_there_before() {
    let checker = Damping { listeners: 1, told: Told::When }.checker().spawn_bfs().join();
    assert!(checker.discovery("nobody steps back but for a living rival").is_none());
}

/// Why a claim says that another made the last one, and when: a head that has moved may just have been cancelled, and
/// who took something long ago may be dead.
#[test]
fn without_being_told_who_was_here_and_when_a_lone_listener_would_step_back() {
    for told in [Told::Nothing, Told::Who] {
        let checker = Damping { listeners: 1, told }.checker().spawn_bfs().join();
        assert!(checker.discovery("nobody steps back but for a living rival").is_some(), "{told:?}");
    }
}
