//! The rules of the protocol, each of which can be switched off.

/// One rule. Without it, something that is promised must break: that is how we
/// know that the promise is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// An ack removes only what its token holds.
    TokenAtAck,
    /// Any other end changes only what its token holds.
    TokenAtSettle,
    /// An end that leaves the timer in place takes the token away.
    TokenTakenAway,
    /// A repeated claim gets what its lane's slot names.
    LaneSlot,
    /// A claim leaves live leases alone, also within the lookahead.
    LiveLease,
    /// What was claimed ahead is held until its deadline.
    HeldUntilDeadline,
    /// A claimed timer stays in the index, with the end of its lease.
    StaysIndexed,
    /// A repeated arm looks for its tombstone.
    ArmTombstone,
    /// An arm knows its own arming again.
    OwnArming,
    /// A repeated arm that acts once more has replaced nothing so far.
    ArmAfresh,
    /// What follows a timer leaves a tombstone of it.
    FollowedTombstone,
    /// A repeated cancel looks for its tombstone.
    CancelTombstone,
    /// A cancel ends a running attempt as well.
    CancelFences,
    /// An ack lets the kept arming follow.
    NextAtAck,
    /// A kept arming takes the place of a retry.
    NextAtRetry,
    /// A kept arming waits through a release and a snooze.
    NextWaits,
    /// A kept arming leaves its place once it has followed.
    NextLeaves,
    /// What has lost two leases waits in an index of its own.
    QuarantineApart,
    /// What has one lease to lose runs alone.
    AloneAtLast,
    /// A timer in quarantine keeps its place until its end is settled.
    QuarantinePlace,
    /// So many lost leases bury.
    Poison,
    /// A kept arming inherits lost leases.
    Inherit,
    /// What a pill has armed for its own key dies with it.
    OwnDies,
    /// An arm over a waiting timer keeps its lost leases.
    Stain,
    /// A repeated replay looks for its tombstone.
    ReplayTombstone,
    /// A letter is not replayed over a timer of its own arming, nor said to be.
    OwnLetter,
    /// A replay clears its arming's tombstone.
    ReplayLives,
    /// Each death of an arming has a letter of its own.
    LetterOfDeath,
}

/// The rules in force.
pub type Rules = crate::rules::Rules<Rule>;
