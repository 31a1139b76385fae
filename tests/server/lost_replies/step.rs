//! What somebody does, as data.

use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse_wire::Deed;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{Cargo, Close, End, Index, Listing, Reshape, Scan};

use super::call::id;

/// One thing that somebody does. Words name keys; numbers name armings, claims
/// and cancels.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Arm {
        timers: Vec<(&'static str, u8)>,
        in_ms: u64,
        absent: bool,
        /// The arming whose attempt arms.
        by: Option<u8>,
    },
    Cancel(Vec<(&'static str, u8)>),
    Reschedule(&'static str, WireWhen),
    Look(&'static str),
    Peek,
    Claim {
        index: Index,
        token: u8,
    },
    Ack(Vec<&'static str>, u8),
    Settle(&'static str, u8, End),
    Renew(&'static str, u8),
    /// More is due than can be run; or the slot of this claim ends.
    Left(Option<u8>),
    Pause(Option<&'static str>),
    /// Somebody looks on, for so many ms.
    Tail(u64),
    Overview,
    Page,
    /// A timer as it was exported, under this arming.
    Import(&'static str, u8),
    /// So many ends are kept.
    Journal(u64),
    Close(Close),
    /// A step of taking a closed partition apart: what goes, and how many are named at most.
    Destroy(Vec<&'static str>, usize),
    /// The letter of this arming.
    Drop(&'static str, u8),
    /// The topic gets two partitions.
    Reshape(Reshape<'static>),
    List(Listing),
    Take(Cargo, Vec<&'static str>),
    /// At which place.
    Put(u64, &'static str),
    Shed(Vec<&'static str>),
    /// The arming that died and when, in ms from the beginning (none: its first letter); the number of
    /// the replay; and that of a new arming.
    Replay {
        key: &'static str,
        died: (u8, Option<u64>),
        number: u8,
        anew: Option<u8>,
    },
    Repair(Scan),
    Init,
    Trigger(&'static str, u8),
    Untrigger(&'static str, u8),
    Canary,
    /// Of a listener that says how it is, or leaves.
    Report {
        leaves: bool,
    },
    Reports,
    /// Expiries of keys that others write: at which place, and the number of the arming.
    Note(Vec<(&'static str, Spot, u8)>),
    /// The key lives for 100 ms from the beginning.
    Enrol(&'static str, Spot),
    DueChecks,
    Judge(&'static str, Spot, Deed),
    /// A listener says its policy, of this revision.
    Policy(u32),
    /// For so many ms.
    Scanner(u8, u64),
    /// Something is put into the list, which may have two members.
    Forward(&'static str),
    Touch(&'static str),
    Returned(&'static str),
    WriteBack(&'static str),
    /// Time passes, in ms.
    Wait(u64),
    /// Another program talks to the server.
    Raw(&'static [&'static str]),
}

/// The number of the last canary, in ms from the beginning, and how many expiries since; nothing:
/// without an anchor.
pub(super) type Spot = Option<(u64, u32)>;

pub(super) fn note(key: &'static str, at: Spot, arming: u8) -> Step {
    Step::Note(vec![(key, at, arming)])
}

pub(super) fn fire(arming: u8) -> Deed {
    Deed::Fire { arming: id(arming), flags: 3 }
}

pub(super) fn arm(key: &'static str, arming: u8) -> Step {
    arm_all(&[(key, arming)])
}

pub(super) fn arm_all(timers: &[(&'static str, u8)]) -> Step {
    Step::Arm { timers: timers.to_vec(), in_ms: 100, absent: false, by: None }
}

pub(super) fn arm_absent(key: &'static str, arming: u8) -> Step {
    Step::Arm { timers: vec![(key, arming)], in_ms: 100, absent: true, by: None }
}

/// An attempt of one arming arms its own key.
pub(super) fn arm_own(key: &'static str, arming: u8, by: u8) -> Step {
    Step::Arm { timers: vec![(key, arming)], in_ms: 100, absent: false, by: Some(by) }
}

/// Arms a timer that is due at once.
pub(super) fn arm_now(key: &'static str, arming: u8) -> Step {
    Step::Arm { timers: vec![(key, arming)], in_ms: 0, absent: false, by: None }
}

pub(super) fn cancel(key: &'static str, number: u8) -> Step {
    Step::Cancel(vec![(key, number)])
}

pub(super) fn claim(token: u8) -> Step {
    Step::Claim { index: Index::Due, token }
}

pub(super) fn claim_quarantined(token: u8) -> Step {
    Step::Claim { index: Index::Quarantine, token }
}

pub(super) fn ack(key: &'static str, token: u8) -> Step {
    Step::Ack(vec![key], token)
}

/// Replays what died at the beginning.
pub(super) fn replay(key: &'static str, arming: u8, number: u8) -> Step {
    Step::Replay { key, died: (arming, Some(0)), number, anew: None }
}

pub(super) fn settle(key: &'static str, token: u8, end: End) -> Step {
    Step::Settle(key, token, end)
}

pub(super) fn retry() -> End {
    End::Retry { delay: 50, attempt: 2, snoozes: 0, history: Bytes::from_static(b"[]") }
}

pub(super) fn snooze() -> End {
    End::Snooze { delay: 50, attempt: 1, snoozes: 1, history: Bytes::new() }
}

pub(super) fn again(arming: u8) -> End {
    End::Again { delay: 50, arming: id(arming) }
}

pub(super) fn dead() -> End {
    End::Dead { reason: DeadReason::Permanent, history: Bytes::from_static(b"[]") }
}

impl Step {
    /// The script that it runs, if any.
    pub(super) fn script(&self) -> Option<&'static str> {
        Some(match self {
            Self::Arm { .. } => "arm",
            Self::Cancel(_) => "cancel",
            Self::Reschedule(..) => "reschedule",
            Self::Look(_) => "look",
            Self::Peek => "peek",
            Self::Overview => "overview",
            Self::Page => "page",
            Self::Import(..) => "import",
            Self::Claim { .. } => "claim",
            Self::Ack(..) => "ack",
            Self::Settle(..) => "settle",
            Self::Renew(..) => "renew",
            Self::Left(_) => "left",
            Self::Pause(_) => "pause",
            Self::Tail(_) => "tail",
            Self::Journal(_) => "journal",
            Self::Close(_) => "close",
            Self::Destroy(..) => "destroy",
            Self::Drop(..) => "drop",
            Self::Reshape(_) => "reshape",
            Self::List(_) => "list",
            Self::Take(..) => "take",
            Self::Put(..) => "put",
            Self::Shed(_) => "shed",
            Self::Replay { .. } => "replay",
            Self::Repair(_) => "repair",
            Self::Init => "init",
            Self::Trigger(..) => "trigger",
            Self::Untrigger(..) => "untrigger",
            Self::Canary => "canary",
            Self::Report { .. } => "report",
            Self::Reports => "reports",
            Self::Note(_) => "note",
            Self::Enrol(..) => "enrol",
            Self::DueChecks => "checks",
            Self::Judge(..) => "judge",
            Self::Policy(_) => "policy",
            Self::Scanner(..) => "scanner",
            Self::Forward(_) => "forward",
            Self::Touch(_) => "touch",
            Self::Returned(_) => "returned",
            Self::WriteBack(_) => "write_back",
            Self::Wait(_) | Self::Raw(_) => return None,
        })
    }
}
