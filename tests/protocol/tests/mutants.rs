//! Each rule is needed: without it the checker finds a promise that breaks.
//!
//! That is the evidence that a promise can break at all, and so that the
//! exploration with all rules says something.

use keylapse_protocol::model::{Protocol, Rule, Rules, Scope};
use stateright::{Checker, HasDiscoveries, Model};

const REPEATS: &str = "a repeat says what the first call did, and does nothing";
const STALE: &str = "P4: a stale claimant changes nothing";
const CROWD: &str = "P6: what is in quarantine does not run among others";
const LOSS: &str = "P1: what was armed is there until it has ended";
const BYSTANDER: &str = "P6: a bystander is not buried";

/// Explores until the promise named breaks.
fn breaks(rule: Rule, scope: Scope, promise: &'static str) {
    let model = Protocol::with_rules(scope, Rules::without(rule));
    let checker = model.checker().finish_when(HasDiscoveries::AnyOf([promise].into())).spawn_bfs().join();
    let path = checker.discovery(promise).unwrap_or_else(|| panic!("{rule:?} is not missed"));
    println!("{rule:?}: {promise}, found among {} states:", checker.unique_state_count());
    path.into_actions().iter().for_each(|step| println!("    {step:?}"));
}

#[test]
fn token_at_ack() {
    breaks(Rule::TokenAtAck, Scope::whole(), STALE);
}

#[test]
fn token_at_settle() {
    breaks(Rule::TokenAtSettle, Scope::real(), STALE);
}

#[test]
fn token_taken_away() {
    breaks(Rule::TokenTakenAway, Scope::real(), REPEATS);
}

#[test]
fn lane_slot() {
    breaks(Rule::LaneSlot, Scope::whole(), REPEATS);
}

#[test]
fn live_lease() {
    breaks(Rule::LiveLease, Scope::ahead(), "P4: no live lease is taken");
}

#[test]
fn held_until_deadline() {
    breaks(Rule::HeldUntilDeadline, Scope::ahead(), "P2: nothing starts before its deadline");
}

#[test]
fn stays_indexed() {
    breaks(Rule::StaysIndexed, Scope::whole(), "everything ends once the faults do");
}

#[test]
fn arm_tombstone() {
    breaks(Rule::ArmTombstone, Scope::whole(), REPEATS);
}

#[test]
fn own_arming() {
    breaks(Rule::OwnArming, Scope::whole(), REPEATS);
}

#[test]
fn arm_afresh() {
    breaks(Rule::ArmAfresh, Scope::repeated(), REPEATS);
}

#[test]
fn followed_tombstone() {
    breaks(Rule::FollowedTombstone, Scope::whole(), REPEATS);
}

#[test]
fn cancel_tombstone() {
    breaks(Rule::CancelTombstone, Scope::whole(), REPEATS);
}

#[test]
fn cancel_fences() {
    breaks(Rule::CancelFences, Scope::whole(), "P7: what was withdrawn does not come back");
}

#[test]
fn next_at_ack() {
    breaks(Rule::NextAtAck, Scope::whole(), LOSS);
}

#[test]
fn next_at_retry() {
    breaks(Rule::NextAtRetry, Scope::real(), "what is kept for later follows when, and only when, it should");
}

#[test]
fn next_waits() {
    breaks(Rule::NextWaits, Scope::ahead(), LOSS);
}

#[test]
fn next_leaves() {
    breaks(Rule::NextLeaves, Scope::whole(), "what is kept for later follows once");
}

#[test]
fn quarantine_apart() {
    breaks(Rule::QuarantineApart, Scope::pill(), BYSTANDER);
}

#[test]
fn quarantine_place() {
    breaks(Rule::QuarantinePlace, Scope::pill(), BYSTANDER);
}

#[test]
fn poison() {
    breaks(Rule::Poison, Scope::whole(), "P6: lost leases are bounded");
}

#[test]
fn inherit() {
    breaks(Rule::Inherit, Scope::real(), CROWD);
}

#[test]
fn stain() {
    breaks(Rule::Stain, Scope::real(), CROWD);
}
