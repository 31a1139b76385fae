//! Each rule is needed: without it the checker finds a promise that breaks.
//!
//! That is the evidence that a promise can break at all, and so that the
//! exploration with all rules says something.

use crate::missed;
use keylapse_protocol::model::{Protocol, Rule, Rules, Scope};

const REPEATS: &str = "a repeat says what the first call did, and does nothing";
const STALE: &str = "P4: a stale claimant changes nothing";
const CROWD: &str = "P6: what is in quarantine does not run among others";
const LETTERS: &str = "each death leaves a letter, and each letter comes back once";
const LOSS: &str = "P1: what was armed is there until it has ended";
const COMPANY: &str = "P6: what has one lease to lose runs alone";
const BYSTANDER: &str = "P6: a bystander is not buried";

/// Explores until the promise named breaks.
fn breaks(rule: Rule, scope: Scope, promise: &'static str) {
    missed::breaks(Protocol::with_rules(scope, Rules::without(rule)), rule, promise);
}

each_is_missed! {
    token_at_ack: TokenAtAck, whole, STALE;
    token_at_settle: TokenAtSettle, real, STALE;
    token_taken_away: TokenTakenAway, real, REPEATS;
    lane_slot: LaneSlot, whole, REPEATS;
    live_lease: LiveLease, ahead, "P4: no live lease is taken";
    held_until_deadline: HeldUntilDeadline, ahead, "P2: nothing starts before its deadline";
    stays_indexed: StaysIndexed, whole, "everything ends once the faults do";
    arm_tombstone: ArmTombstone, whole, REPEATS;
    own_arming: OwnArming, whole, REPEATS;
    arm_afresh: ArmAfresh, repeated, REPEATS;
    followed_tombstone: FollowedTombstone, whole, REPEATS;
    cancel_tombstone: CancelTombstone, whole, REPEATS;
    cancel_fences: CancelFences, whole, "P7: what was withdrawn does not come back";
    next_at_ack: NextAtAck, whole, LOSS;
    next_at_retry: NextAtRetry, real, "what is kept for later follows when, and only when, it should";
    next_waits: NextWaits, ahead, LOSS;
    next_leaves: NextLeaves, whole, "what is kept for later follows once";
    quarantine_apart: QuarantineApart, pill, BYSTANDER;
    alone_at_last: AloneAtLast, pill, COMPANY;
    quarantine_place: QuarantinePlace, pill, BYSTANDER;
    poison: Poison, whole, "P6: lost leases are bounded";
    own_dies: OwnDies, pill_of_its_own, "P6: what a pill has armed for its own key does not run";
    inherit: Inherit, real, CROWD;
    stain: Stain, real, CROWD;
    replay_tombstone: ReplayTombstone, replayed, REPEATS;
    own_letter: OwnLetter, replayed, LETTERS;
    replay_lives: ReplayLives, replayed, REPEATS;
    letter_of_death: LetterOfDeath, replayed, LETTERS;
}
