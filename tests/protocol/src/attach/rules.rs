//! The rules for attached topics, each of which can be switched off.

/// One rule. Without it, something that is promised must break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// An identity counts events since a canary; without, it is a stamp, one an interval.
    Counted,
    /// A note speaks for what its listener has heard since its anchor; without, for all that came before.
    SinceAnchor,
    /// A subscription that is not anchored has no identities to give.
    Anchored,
    /// What was heard before the anchor is fired all the same.
    UnsureFires,
    /// It has the same name for all who have heard it so: the next canary's, and how many expiries come before that.
    Agreed,
    /// They are counted back from the canary; without, from the first that was heard.
    CountedBack,
    /// What is heard before another gap is not counted to the canary after it: it has no name.
    Torn,
    /// Such a firing ends an enrolment only if the key was found gone by a touch after it.
    FoundGone,
    /// Such a firing leaves no trace: it might be taken for another expiry.
    UnsureLeavesNoTrace,
    /// A number left out between two canaries is a gap.
    JumpIsGap,
    /// A dropped hint is a gap.
    DropIsGap,
    /// A key is looked at, and judged, by who has an anchor, and never in a gap.
    LookAnchored,
    /// A touch has read all that was published before it.
    Fenced,
    /// That nothing was heard is proven by a canary heard after the touch.
    CanaryAfterTouch,
    /// All was heard since the anchor was heard, not since it was made.
    HeardBeforeDeadline,
    /// A key with its old deadline is looked at again.
    LookAgain,
    /// A key that is gone is judged once its deadline has passed by its server's clock.
    NotBeforeDeadline,
    /// A replica's deletions are nobody's business.
    ReplicaIgnored,
    /// A verdict holds for the enrolment that was looked at.
    SameEnrolment,
    /// Two enrolments of one deadline at one place are two: they were read by two touches.
    SameTouch,
    /// An enrolment knows its place in the stream: a note of something earlier leaves it.
    Stamped,
    /// An enrolment that something noted has overtaken is refused.
    StaleRefused,
    /// An enrolment that was read before the one that stands is refused.
    EnrolmentsOrdered,
    /// A key is forgotten as of a touch: what an earlier one read at the same place is refused.
    ForgottenByStamp,
    /// A deletion is remembered as long as the anchor.
    DeletionsForgottenAtGap,
    /// One at the very place of the enrolment may have come before it: a canary proves that no
    /// expiry was missed since.
    DeletionProven,
    /// Later lives are kept beside a lapse that waits or runs.
    LivesBeside,
    /// A look whose listener died is no lost lease.
    LookIsNoLease,
    /// A firing without an identity leaves a trace in the memory.
    RecoveryRemembered,
    /// Such a trace takes up one identity; without, all up to its place.
    OneForOne,
    /// A place names its server: numbers are the clocks', and three servers may use the same.
    NodeNamed,
    /// Places of two servers are never compared.
    PlacesApart,
    /// A canary that is missed is a gap at once: its server may have been replaced meanwhile.
    MissedIsGap,
    /// A replica that becomes a primary was heard before: that is a gap, and nobody is deaf to it.
    PromotionIsGap,
    /// What a server announces in a gap is held until a canary of it was heard after that.
    HeldForCanary,
    /// And until another server has named it a primary since the gap began. What one has announced that was
    /// replaced is dropped.
    HeldForOther,
    /// Of what was dropped the key's present owner is asked.
    DroppedLooked,
    /// A look goes to the key's present owner, wherever its deadline was read.
    TouchedAtOwner,
    /// What was read of a key that was met with on several servers is refused if anything was written of it since
    /// it was asked for.
    AskedAfter,
    /// A note of another server than that of the enrolment leaves word of it.
    AnsweredElsewhere,
    /// Before a key is judged that has moved, all was heard that its server before has published.
    BothFenced,
    /// A recovery of a key that has moved takes up a note of either server.
    TraceOnBoth,
}

/// The rules in force.
pub type Rules = crate::rules::Rules<Rule>;
