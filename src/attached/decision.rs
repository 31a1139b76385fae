//! Decides what follows from the check of an attached key at its deadline.
//!
//! | key | event stream | verdict |
//! | --- | --- | --- |
//! | another deadline | – | [`Extended`](Verdict::Extended): track the new deadline |
//! | the tracked deadline | – | [`NotYet`](Verdict::NotYet): check again, as clocks differ or expiry is paused |
//! | no deadline | – | [`Persisted`](Verdict::Persisted): stop tracking |
//! | gone before its deadline | no event | [`NotYet`](Verdict::NotYet): check again at the deadline |
//! | gone | `expired` received | [`Lapsed`](Verdict::Lapsed): recorded by its position |
//! | gone | deletion received | [`Deleted`](Verdict::Deleted): stop tracking |
//! | gone | no event, and none was missed | [`Vanished`](Verdict::Vanished): the topic's policy decides |
//! | gone | no event, not yet proven | [`Unproven`](Verdict::Unproven): wait for a heartbeat |
//! | gone | no event, and some may be missing | [`Recovered`](Verdict::Recovered): by policy, marked as recovered |
//!
//! The function is pure and uses no types of other modules, so the model in tests/protocol compiles this file, too.

/// The state of a key on the server that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyState {
    /// The key has another deadline than the tracked one.
    OtherDeadline,
    /// The key exists and has the tracked deadline.
    SameDeadline,
    /// The key exists without a deadline.
    NoDeadline,
    /// The key does not exist, and the tracked deadline is still to come.
    GoneEarly,
    /// The key does not exist, and the tracked deadline has passed by its server's clock.
    Gone,
}

/// The evidence of the event stream on the tracked expiry cycle of a key. The reader has processed all events that were
/// published before the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamEvidence {
    /// An `expired` event came after the deadline was read.
    Expired,
    /// A deletion or a rename on the primary came after the deadline was read.
    Deleted,
    /// No such event, and none was missed. Heartbeats are unbroken up to one that was received after the check. They
    /// begin with one that was *received* before the deadline, or before the deadline was read. Its creation before
    /// that proves nothing, as an expiry may come in between.
    Nothing,
    /// No such event so far. A heartbeat after the check, or the time of the anchor, is still missing.
    NothingYet,
    /// No such event, and events may have been missed since the deadline.
    Broken,
}

/// The verdict on a checked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Its writer has changed the deadline: track the new one.
    Extended,
    /// Check again at its deadline. If that has passed, check again at least 2 ms later.
    NotYet,
    /// The key no longer expires: stop tracking it.
    Persisted,
    /// Its expiry was announced. Recording that expiry ends the tracking.
    Lapsed,
    /// It was deleted or renamed: stop tracking it.
    Deleted,
    /// It was deleted or evicted while no event was missed: the topic's policy decides.
    Vanished,
    /// Too early to decide: wait for the next heartbeat.
    Unproven,
    /// It may have expired while no listener received events. It fires as recovered, unless the topic's policy ignores
    /// it.
    Recovered,
}

/// Returns the verdict on a key in this state with this evidence.
pub const fn decide(key: KeyState, evidence: StreamEvidence) -> Verdict {
    match (key, evidence) {
        (KeyState::OtherDeadline, _) => Verdict::Extended,
        (KeyState::SameDeadline, _) => Verdict::NotYet,
        (KeyState::NoDeadline, _) => Verdict::Persisted,
        (KeyState::GoneEarly | KeyState::Gone, StreamEvidence::Expired) => Verdict::Lapsed,
        (KeyState::GoneEarly | KeyState::Gone, StreamEvidence::Deleted) => Verdict::Deleted,
        (KeyState::GoneEarly, _) => Verdict::NotYet,
        (KeyState::Gone, StreamEvidence::Nothing) => Verdict::Vanished,
        (KeyState::Gone, StreamEvidence::NothingYet) => Verdict::Unproven,
        (KeyState::Gone, StreamEvidence::Broken) => Verdict::Recovered,
    }
}
