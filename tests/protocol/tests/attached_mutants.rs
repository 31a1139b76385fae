//! Attached topics: each rule is needed. Without it the checker finds a
//! promise that breaks.

use keylapse_protocol::attach::{Attached, Rule, Rules, Scope};
use stateright::{Checker, HasDiscoveries, Model};

const LOST: &str = "no expiry is lost";
const DOUBLE: &str = "none fires twice, but what was heard without an anchor";
const EARLY: &str = "nothing fires early, or for a deadline that was changed";

/// Explores until the promise named breaks.
fn breaks(rule: Rule, scope: Scope, promise: &'static str) {
    let model = Attached::with_rules(scope, Rules::without(rule));
    let checker = model.checker().finish_when(HasDiscoveries::AnyOf([promise].into())).spawn_bfs().join();
    let path = checker.discovery(promise).unwrap_or_else(|| panic!("{rule:?} is not missed"));
    println!("{rule:?}: {promise}, found among {} states:", checker.unique_state_count());
    path.into_actions().iter().for_each(|step| println!("    {step:?}"));
}

#[test]
fn counted() {
    breaks(Rule::Counted, Scope::calm(), LOST);
}

#[test]
fn each_identity() {
    breaks(Rule::EachIdentity, Scope::broken(), LOST);
}

#[test]
fn anchored() {
    breaks(Rule::Anchored, Scope::broken(), LOST);
}

#[test]
fn unsure_fires() {
    breaks(Rule::UnsureFires, Scope::broken(), LOST);
}

#[test]
fn unsure_leaves_no_trace() {
    breaks(Rule::UnsureLeavesNoTrace, Scope::broken(), LOST);
}

#[test]
fn jump_is_gap() {
    breaks(Rule::JumpIsGap, Scope::muted(), LOST);
}

#[test]
fn drop_is_gap() {
    breaks(Rule::DropIsGap, Scope::crowded(), LOST);
}

#[test]
fn fenced() {
    breaks(Rule::Fenced, Scope::broken(), LOST);
}

#[test]
fn canary_after_touch() {
    breaks(Rule::CanaryAfterTouch, Scope::muted(), LOST);
}

#[test]
fn heard_before_deadline() {
    breaks(Rule::HeardBeforeDeadline, Scope::broken(), LOST);
}

#[test]
fn look_again() {
    breaks(Rule::LookAgain, Scope::calm(), EARLY);
}

#[test]
fn not_before_deadline() {
    breaks(Rule::NotBeforeDeadline, Scope::vanishing(), EARLY);
}

#[test]
fn replica_ignored() {
    breaks(Rule::ReplicaIgnored, Scope::replicated(), LOST);
}

#[test]
fn same_enrolment() {
    breaks(Rule::SameEnrolment, Scope::broken(), DOUBLE);
}

#[test]
fn stamped() {
    breaks(Rule::Stamped, Scope::broken(), LOST);
}

#[test]
fn stale_refused() {
    breaks(Rule::StaleRefused, Scope::vanishing(), DOUBLE);
}

#[test]
fn lives_beside() {
    breaks(Rule::LivesBeside, Scope::mortal(), LOST);
}

#[test]
fn look_is_no_lease() {
    breaks(Rule::LookIsNoLease, Scope::forsaken(), LOST);
}

#[test]
fn recovery_remembered() {
    breaks(Rule::RecoveryRemembered, Scope::broken(), DOUBLE);
}

#[test]
fn one_for_one() {
    breaks(Rule::OneForOne, Scope::broken(), LOST);
}
