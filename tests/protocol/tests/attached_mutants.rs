//! Attached topics: each rule is needed. Without it the checker finds a
//! promise that breaks.

use crate::missed;
use keylapse_protocol::attach::{Attached, Deed, Rule, Rules, Scope, Step};
use stateright::Model;

const LOST: &str = "no expiry is lost";
const DOUBLE: &str = "none fires twice, and once more at most what was heard without an anchor";
const EARLY: &str = "nothing fires early, or for a deadline that was changed";

/// Explores until the promise named breaks.
fn breaks(rule: Rule, scope: Scope, promise: &'static str) {
    missed::breaks(Attached::with_rules(scope, Rules::without(rule)), rule, promise);
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

each_is_missed! {
    counted: Counted, calm, LOST;
    since_anchor: SinceAnchor, broken, LOST;
    anchored: Anchored, broken, LOST;
    unsure_fires: UnsureFires, broken, LOST;
    unsure_leaves_no_trace: UnsureLeavesNoTrace, broken, LOST;
    agreed: Agreed, gathered, DOUBLE;
    counted_back: CountedBack, broken, LOST;
    torn: Torn, torn, LOST;
    found_gone: FoundGone, torn, LOST;
    jump_is_gap: JumpIsGap, muted, LOST;
    drop_is_gap: DropIsGap, crowded, LOST;
    look_anchored: LookAnchored, broken, DOUBLE;
    fenced: Fenced, broken, LOST;
    canary_after_touch: CanaryAfterTouch, muted, LOST;
    heard_before_deadline: HeardBeforeDeadline, broken, LOST;
    look_again: LookAgain, calm, EARLY;
    not_before_deadline: NotBeforeDeadline, vanishing, EARLY;
    replica_ignored: ReplicaIgnored, replicated, LOST;
    same_enrolment: SameEnrolment, broken, DOUBLE;
    same_touch: SameTouch, revoked, LOST;
    stamped: Stamped, broken, LOST;
    stale_refused: StaleRefused, vanishing, DOUBLE;
    enrolments_ordered: EnrolmentsOrdered, broken, LOST;
    deletions_forgotten_at_gap: DeletionsForgottenAtGap, rewritten, LOST;
    deletion_proven: DeletionProven, revoked, LOST;
    lives_beside: LivesBeside, mortal, LOST;
    look_is_no_lease: LookIsNoLease, forsaken, LOST;
    recovery_remembered: RecoveryRemembered, broken, DOUBLE;
    one_for_one: OneForOne, broken, LOST;
    node_named: NodeNamed, moved_lives, LOST;
    places_apart: PlacesApart, moved_alone, LOST;
    missed_is_gap: MissedIsGap, replaced, DOUBLE;
    promotion_is_gap: PromotionIsGap, replaced, LOST;
    held_for_canary: HeldForCanary, replaced_late, DOUBLE;
    held_for_other: HeldForOther, replaced_loud, DOUBLE;
    dropped_looked: DroppedLooked, replaced_alone, LOST;
    touched_at_owner: TouchedAtOwner, moved_broken, EARLY;
    asked_after: AskedAfter, moved_broken, DOUBLE;
    answered_elsewhere: AnsweredElsewhere, moved_vanishing, DOUBLE;
    both_fenced: BothFenced, moved_broken, DOUBLE;
    trace_on_both: TraceOnBoth, moved_broken, DOUBLE;
}

/// One looks at a deadline that was put off, and recovers. Another had read the
/// new one before, at the same place, and enrols it: it is recovered again.
#[test]
fn forgotten_by_stamp() {
    use Step::{Act, EndCanary, Gap, Hear, Judge, MakeCanary, Mute, Tick, Touch, Unmute};
    let enrolled =
        [Act(Deed::Write), MakeCanary(0), Touch(0), Act(Deed::Extend), Tick, Gap(0, 0), EndCanary(0)];
    let read_before =
        [MakeCanary(0), Mute, EndCanary(0), Judge(1), Touch(1), Tick, MakeCanary(0), Hear(0, 0), Touch(1)];
    let recovered_twice = [Unmute, EndCanary(0), Judge(1), Judge(0), Hear(0, 0), Touch(1), Judge(1)];
    let path = [&enrolled[..], &read_before, &recovered_twice].concat();
    breaks_on(&path, Rule::ForgottenByStamp, Scope::overtaken(), DOUBLE);
}
