//! What somebody does, as data.

use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse_wire::CheckAction;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, CloseMode, Index, ListTarget, MovedKind, RepairTarget, RepartitionStep};

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
    Settle(&'static str, u8, AttemptEnd),
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
    Close(CloseMode),
    /// A step of taking a closed partition apart: what goes, and how many are named at most.
    Destroy(Vec<&'static str>, usize),
    /// The letter of this arming.
    Drop(&'static str, u8),
    /// The topic gets two partitions.
    Reshape(RepartitionStep<'static>),
    List(ListTarget),
    Take(MovedKind, Vec<&'static str>),
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
    Repair(RepairTarget),
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
    Judge(&'static str, Spot, CheckAction),
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

pub(super) fn fire(arming: u8) -> CheckAction {
    CheckAction::Fire { arming: id(arming), flags: 3 }
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

pub(super) fn settle(key: &'static str, token: u8, end: AttemptEnd) -> Step {
    Step::Settle(key, token, end)
}

pub(super) fn retry() -> AttemptEnd {
    AttemptEnd::Retry { delay: 50, attempt: 2, snoozes: 0, history: Bytes::from_static(b"[]") }
}

pub(super) fn snooze() -> AttemptEnd {
    AttemptEnd::Snooze { delay: 50, attempt: 1, snoozes: 1, history: Bytes::new() }
}

pub(super) fn again(arming: u8) -> AttemptEnd {
    AttemptEnd::Again { delay: 50, arming: id(arming) }
}

pub(super) fn dead() -> AttemptEnd {
    AttemptEnd::Dead { reason: DeadReason::Permanent, history: Bytes::from_static(b"[]") }
}

impl Step {
    /// The script that it runs, if any.
    pub(super) fn script(&self) -> Option<&'static str> {
        Some(match self {
            Self::Arm { .. } => "arm",
            Self::Cancel(_) => "cancel",
            Self::Reschedule(..) => "reschedule",
            Self::Look(_) => "get_timer",
            Self::Peek => "peek",
            Self::Overview => "overview",
            Self::Page => "page",
            Self::Import(..) => "import",
            Self::Claim { .. } => "claim",
            Self::Ack(..) => "ack",
            Self::Settle(..) => "settle",
            Self::Renew(..) => "renew",
            Self::Left(_) => "wake_followers",
            Self::Pause(_) => "pause",
            Self::Tail(_) => "renew_watch",
            Self::Journal(_) => "set_journal_limits",
            Self::Close(_) => "close_partition",
            Self::Destroy(..) => "destroy",
            Self::Drop(..) => "delete_dead_letter",
            Self::Reshape(_) => "repartition_step",
            Self::List(_) => "list_names",
            Self::Take(..) => "move_read",
            Self::Put(..) => "move_write",
            Self::Shed(_) => "move_delete",
            Self::Replay { .. } => "replay",
            Self::Repair(_) => "repair",
            Self::Init => "init",
            Self::Trigger(..) => "set_marker",
            Self::Untrigger(..) => "delete_marker",
            Self::Canary => "canary",
            Self::Report { .. } => "save_report",
            Self::Reports => "list_reports",
            Self::Note(_) => "record_expiries",
            Self::Enrol(..) => "track_keys",
            Self::DueChecks => "take_checks",
            Self::Judge(..) => "apply_checks",
            Self::Policy(_) => "sync_policy",
            Self::Scanner(..) => "take_duty",
            Self::Forward(_) => "forward",
            Self::Touch(_) => "read_keys",
            Self::Returned(_) => "write_back_expired",
            Self::WriteBack(_) => "write_back",
            Self::Wait(_) | Self::Raw(_) => return None,
        })
    }
}
