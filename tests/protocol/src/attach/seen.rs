//! What an exploration has come across, so that none is complete for want of
//! anything happening.

use std::sync::atomic::{AtomicU64, Ordering};

use super::decision::Verdict;

/// Something that has to be met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// A row of the table.
    Row(Verdict),
    /// An expiry was noted by another before.
    LateListener,
    /// Two expiries between two canaries.
    TwiceInAnInterval,
    /// An expiry was fired already, as a recovery.
    RecoveredBefore,
    /// A life ended while the lapse of another ran.
    KeptBeside,
    /// Something heard without an anchor was fired.
    UnsureFired,
    /// What was heard without an anchor was fired for another before.
    AgreedBefore,
    /// A canary's number showed that something was lost.
    JumpNoticed,
    /// A handler's run was begun again.
    RunAgain,
    /// An enrolment came too late.
    StaleRefused,
    /// A replica said something.
    ReplicaIgnored,
    /// A listener that never had an anchor ignored an expiry.
    Deaf,
    /// A server may have been replaced.
    Missed,
    /// What a server announced was dropped, as another owns the key.
    Dropped,
    /// What was dropped had fired already, or will.
    DroppedKnown,
    /// A key that has moved was found on its new owner.
    TouchedAgain,
}

impl Seen {
    const fn place(self) -> usize {
        match self {
            Self::Row(verdict) => verdict as usize,
            Self::LateListener => 8,
            Self::TwiceInAnInterval => 9,
            Self::RecoveredBefore => 10,
            Self::KeptBeside => 11,
            Self::UnsureFired => 12,
            Self::JumpNoticed => 13,
            Self::RunAgain => 14,
            Self::StaleRefused => 15,
            Self::ReplicaIgnored => 16,
            Self::Deaf => 17,
            Self::AgreedBefore => 18,
            Self::Missed => 19,
            Self::Dropped => 20,
            Self::DroppedKnown => 21,
            Self::TouchedAgain => 22,
        }
    }
}

/// How often each was met with; beside the states and not in them.
#[derive(Debug, Default)]
pub(super) struct Log([AtomicU64; 23]);

impl Log {
    pub(super) fn note(&self, seen: Seen) {
        self.0[seen.place()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, seen: Seen) -> u64 {
        self.0[seen.place()].load(Ordering::Relaxed)
    }
}
