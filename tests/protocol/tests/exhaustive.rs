//! Every state within the bounds, and every promise in each of them.

use crate::explore;
use keylapse_protocol::model::{Protocol, Scope, Seen};
use stateright::{Checker, Model};

/// Explores a scope to its end, and must meet with all that is expected.
fn explore(name: &str, scope: Scope, least: usize, expected: &[Seen]) {
    explore::explore(name, Protocol::new(scope), least, Protocol::seen, expected);
}

/// All but what needs two keys of one claim, a lookahead, more lost leases before the last, arms of handlers, or a replay.
fn everything() -> Vec<Seen> {
    let other = [Seen::HandedBack, Seen::HeldAhead, Seen::Grouped, Seen::OwnBuried];
    Seen::ALL.into_iter().filter(|seen| !other.contains(seen) && !Seen::REPLAYS.contains(seen)).collect()
}

#[test]
fn three_workers_and_two_keys() {
    let expected = [everything(), vec![Seen::HandedBack]].concat();
    explore("three workers, two keys", Scope::whole(), 450_000, &expected);
}

#[test]
fn the_real_constants() {
    explore("the real constants", Scope::real(), 100_000, &everything());
}

#[test]
fn a_reply_lost_twice() {
    explore("a reply lost twice", Scope::repeated(), 2_000, &[Seen::ClaimRepeated]);
}

#[test]
fn dead_letters_are_replayed() {
    explore("dead letters are replayed", Scope::replayed(), 1_000, &Seen::REPLAYS);
}

#[test]
fn claims_ahead_of_deadlines() {
    explore(
        "claims ahead of deadlines",
        Scope::ahead(),
        150_000,
        &[everything(), vec![Seen::HeldAhead]].concat(),
    );
}

#[test]
fn a_pill_and_a_bystander() {
    let expected = [
        Seen::Quarantined,
        Seen::Grouped,
        Seen::QuarantinedBuried,
        Seen::FollowedBuried,
        Seen::ClaimRepeated,
    ];
    explore("a pill and a bystander", Scope::pill(), 40_000, &expected);
}

#[test]
fn a_pill_that_arms_its_own_key() {
    let expected = [Seen::OwnBuried, Seen::FollowedBuried, Seen::Kept];
    explore("a pill that arms its own key", Scope::pill_of_its_own(), 1_000, &expected);
}

/// A limit, not a promise: what one pill has put in quarantine runs beside the
/// first attempts of the next, and two pills can bury it.
#[test]
fn a_pill_that_is_armed_again_can_bury_a_bystander() {
    let checker = Protocol::new(Scope::pill_again()).checker().spawn_bfs().join();
    let path =
        checker.discovery("P6: a bystander is not buried").expect("the limit is gone: say so in the docs");
    path.into_actions().iter().for_each(|step| println!("    {step:?}"));
}

/// Millions of states, for whoever sets `KEYLAPSE_MODEL=wide`.
#[test]
fn all_ends_and_two_lost_replies() {
    if explore::is_wide() {
        explore("all ends, two lost replies", Scope::wide(), 500_000, &everything());
    }
}
