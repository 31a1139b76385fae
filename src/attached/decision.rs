//! What a check of an attached key says: the decision table, and nothing else.
//!
//! | the touch says | the stream says | verdict |
//! | --- | --- | --- |
//! | another deadline | – | [`Extended`](Verdict::Extended): re-index, nothing fires |
//! | the same deadline | – | [`NotYet`](Verdict::NotYet): two clocks, or a pause; look again |
//! | no deadline | – | [`Persisted`](Verdict::Persisted): forget it |
//! | gone early | nothing | [`NotYet`](Verdict::NotYet): whatever it was, look at its deadline |
//! | gone | `expired` heard | [`Lapsed`](Verdict::Lapsed): noted with its identity |
//! | gone | deletion heard | [`Deleted`](Verdict::Deleted): forget it |
//! | gone | nothing, and proven so | [`Vanished`](Verdict::Vanished): by policy |
//! | gone | nothing, not yet proven | [`Unproven`](Verdict::Unproven): wait for a canary |
//! | gone | nothing, but it is broken | [`Recovered`](Verdict::Recovered): by policy; if it fires, it says so |
//!
//! Pure, and of no types but its own, so that the listener and the model of it
//! can share one table.

/// What the key's owner answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyState {
    /// It has a deadline, and not the one that was remembered.
    OtherDeadline,
    /// It has the deadline that was remembered, and still lives.
    SameDeadline,
    /// It has none any more.
    NoDeadline,
    /// There is no such key, before the deadline that was remembered.
    GoneEarly,
    /// There is no such key, and the deadline has passed, by its server's clock.
    Gone,
}

/// What an anchored stream has said of the remembered expiry cycle: everything that was
/// published before the touch has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamSays {
    /// `expired`, later in the stream than the enrolment.
    Expired,
    /// From the master: a deletion or a rename, later than the enrolment.
    Deleted,
    /// Nothing; canaries are unbroken to one that was heard after the touch,
    /// from one that was *heard* before the deadline or before the enrolment.
    /// That it was made before says nothing: an expiry may come in between.
    Nothing,
    /// Nothing; no canary has been heard yet since the touch.
    NothingYet,
    /// Nothing; something may have been lost since the deadline.
    Broken,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Its writer changed the deadline: remember the new one.
    Extended,
    /// Look again: after what it still has to live, or at its deadline, at
    /// least 2 ms later.
    NotYet,
    /// It does not expire: forget it.
    Persisted,
    /// The identity of what was heard is noted, which ends the enrolment.
    Lapsed,
    /// It was taken away: forget it.
    Deleted,
    /// It was deleted or evicted while all was heard: the topic's policy.
    Vanished,
    /// Too early to say: have a canary made, and judge when it is heard.
    Unproven,
    /// It may have expired while nobody listened: fire, marked as recovered, unless the topic's policy is to forget.
    Recovered,
}

/// The table.
pub const fn decide(touch: KeyState, stream: StreamSays) -> Verdict {
    match (touch, stream) {
        (KeyState::OtherDeadline, _) => Verdict::Extended,
        (KeyState::SameDeadline, _) => Verdict::NotYet,
        (KeyState::NoDeadline, _) => Verdict::Persisted,
        (KeyState::GoneEarly | KeyState::Gone, StreamSays::Expired) => Verdict::Lapsed,
        (KeyState::GoneEarly | KeyState::Gone, StreamSays::Deleted) => Verdict::Deleted,
        (KeyState::GoneEarly, _) => Verdict::NotYet,
        (KeyState::Gone, StreamSays::Nothing) => Verdict::Vanished,
        (KeyState::Gone, StreamSays::NothingYet) => Verdict::Unproven,
        (KeyState::Gone, StreamSays::Broken) => Verdict::Recovered,
    }
}
