//! Attached topics: each rule is needed. Without it the checker finds a
//! promise that breaks.

use keylapse_protocol::attach::{Attached, Deed, Rule, Rules, Scope, Step};
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

/// Takes the shortest path to a promise that breaks: to look for it takes half a minute.
fn breaks_on(path: &[Step], rule: Rule, scope: Scope, promise: &'static str) {
    let model = Attached::with_rules(scope, Rules::without(rule));
    let begin = model.init_states().remove(0);
    let end = path.iter().fold(begin, |world, step| {
        let mut steps = Vec::new();
        model.actions(&world, &mut steps);
        assert!(steps.contains(step), "{step:?} cannot happen");
        model.next_state(&world, *step).expect("something happens")
    });
    let keeps = model.property(promise).condition;
    assert!(!keeps(&model, &end), "{rule:?} is not missed");
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
fn same_touch() {
    breaks(Rule::SameTouch, Scope::revoked(), LOST);
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
fn enrolments_ordered() {
    breaks(Rule::EnrolmentsOrdered, Scope::broken(), LOST);
}

/// One looks at a deadline that was put off, and recovers. Another had read the
/// new one before, at the same place, and enrols it: it is recovered again.
#[test]
fn forgotten_by_stamp() {
    use Step::{Act, EndCanary, Gap, Hear, Judge, MakeCanary, Mute, Tick, Touch, Unmute};
    let enrolled = [Act(Deed::Write), MakeCanary, Touch(0), Act(Deed::Extend), Tick, Gap(0), EndCanary];
    let read_before = [MakeCanary, Mute, EndCanary, Judge(1), Touch(1), Tick, MakeCanary, Hear(0), Touch(1)];
    let recovered_twice = [Unmute, EndCanary, Judge(1), Judge(0), Hear(0), Touch(1), Judge(1)];
    let path = [&enrolled[..], &read_before, &recovered_twice].concat();
    breaks_on(&path, Rule::ForgottenByStamp, Scope::overtaken(), DOUBLE);
}

#[test]
fn deletions_forgotten_at_gap() {
    breaks(Rule::DeletionsForgottenAtGap, Scope::rewritten(), LOST);
}

#[test]
fn deletion_proven() {
    breaks(Rule::DeletionProven, Scope::revoked(), LOST);
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
