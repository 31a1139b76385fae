//! What an exploration has come across, so that none is complete for want of
//! anything happening.

use std::sync::atomic::{AtomicU64, Ordering};

/// Something that has to be met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Seen {
    ArmTombstone,
    CancelTombstone,
    CancelInFlight,
    Kept,
    NextFollowed,
    ClaimRepeated,
    SettleRepeated,
    StaleRefused,
    LateButAccepted,
    SuspectParked,
    SuspectBuried,
    FollowedBuried,
    HeldAhead,
}

impl Seen {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::ArmTombstone,
        Self::CancelTombstone,
        Self::CancelInFlight,
        Self::Kept,
        Self::NextFollowed,
        Self::ClaimRepeated,
        Self::SettleRepeated,
        Self::StaleRefused,
        Self::LateButAccepted,
        Self::SuspectParked,
        Self::SuspectBuried,
        Self::FollowedBuried,
        Self::HeldAhead,
    ];
}

/// How often each was met with. Beside the states and not in them: the number
/// of worlds must not grow by what led to them.
#[derive(Debug, Default)]
pub(super) struct Log([AtomicU64; Seen::ALL.len()]);

impl Log {
    pub(super) fn note(&self, seen: Seen) {
        self.0[seen as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, seen: Seen) -> u64 {
        self.0[seen as usize].load(Ordering::Relaxed)
    }
}
